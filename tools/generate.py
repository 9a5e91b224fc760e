"""Write the table of subspaces, with its derivatives, as C++: src/deu/csrc/{form,rows}.h.

    python tools/generate.py            write the files
    python tools/generate.py --check    fail if a file is not what the table says

The table is src/deu/_subspaces.py; SymPy differentiates it and finds common subexpressions.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import sympy
from sympy.logic.boolalg import Boolean
from sympy.printing.cxx import CXX17CodePrinter

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "src/deu/csrc"

# Loaded by its path: the table needs neither PyTorch nor an installed package.
_spec = importlib.util.spec_from_file_location("_subspaces", ROOT / "src/deu/_subspaces.py")
assert _spec is not None
assert _spec.loader is not None
table = importlib.util.module_from_spec(_spec)
sys.modules["_subspaces"] = table
_spec.loader.exec_module(table)


class SymbolicMath:
    sqrt, abs, sign = staticmethod(sympy.sqrt), staticmethod(sympy.Abs), staticmethod(sympy.sign)

    @staticmethod
    def where(condition, yes, no):
        return sympy.Piecewise((yes, condition), (no, True))

    @staticmethod
    def zero(p):
        return sympy.Eq(p, 0)

    @staticmethod
    def true(p):
        return sympy.true


class Printer(CXX17CodePrinter):
    """C++ with powers written as products, quotients and square roots."""

    def _print_Piecewise(self, expr):
        (yes, condition), (no, _) = expr.args
        return f"({self._print(condition)} ? {self._print(yes)} : {self._print(no)})"

    def _print_Pow(self, expr):
        base = self.parenthesize(expr.base, sympy.printing.precedence.PRECEDENCE["Func"])
        doubled = 2 * expr.exp
        if not doubled.is_Integer:
            return super()._print_Pow(expr)
        halves = abs(int(doubled))
        factors = [base] * (halves // 2) + [f"std::sqrt({base})"] * (halves % 2)
        product = "*".join(factors)
        if expr.exp > 0:
            return f"({product})" if len(factors) > 1 else product
        return f"(1.0/({product}))"


printer = Printer()
A, B, C, C1, C2, EPS = sympy.symbols("a b c c1 c2 eps", real=True)


def _type(expr: sympy.Basic) -> str:
    return "bool" if isinstance(expr, Boolean) else "double"


def assignments(targets: list[tuple[str, sympy.Expr]], indent: str) -> list[str]:
    """C++ statements that set each named target, shared parts computed once."""
    shared, reduced = sympy.cse([expr for _, expr in targets], order="canonical")
    lines = [f"const {_type(expr)} {name} = {printer.doprint(expr)};" for name, expr in shared]
    lines += [
        f"{name} = {printer.doprint(expr)};"
        for (name, _), expr in zip(targets, reduced, strict=True)
    ]
    return [indent + line for line in lines]


def solution_code(name: str, solution) -> list[str]:
    m = SymbolicMath
    lines = [f"struct {name.capitalize()} {{"]

    lines += ["  static void snap(double& a, double& b, double& c, double eps) {"]
    snapped = solution.snap(m, A, B, C, EPS)
    lines += ["    double s_a, s_b, s_c;"]
    lines += assignments([(f"s_{s}", e) for s, e in zip((A, B, C), snapped, strict=True)], " " * 4)
    lines += ["    a = s_a; b = s_b; c = s_c;", "  }", ""]

    lines += ["  // The first row from `first` on that holds, for snapped coefficients."]
    lines += ["  static int row(double a, double b, double c, double eps, int first = 0) {"]
    lines += ["    (void)eps;"]
    for i, row in enumerate(solution.rows[:-1]):
        holds = printer.doprint(row.when(m, A, B, C, EPS))
        lines += [f"    if (first <= {i} && ({holds})) return {i};  // {row.name}"]
    lines += [f"    return {len(solution.rows) - 1};  // {solution.rows[-1].name}", "  }", ""]

    lines += ["  static int kind(int row) {"]
    kinds = ", ".join(str(int(row.kind)) for row in solution.rows)
    lines += [f"    static const int kinds[] = {{{kinds}}};", "    return kinds[row];", "  }", ""]

    lines += ["  static void force(int row, double& a, double& b, double& c) {"]
    lines += ["    (void)a; (void)b; (void)c;", "    switch (row) {"]
    for i, row in enumerate(solution.rows):
        forced = row.force(m, A, B, C)
        if forced != (A, B, C):
            lines += [f"      case {i}: {{  // {row.name}", "        double f_a, f_b, f_c;"]
            lines += assignments(
                [(f"f_{s}", e) for s, e in zip((A, B, C), forced, strict=True)], " " * 8
            )
            lines += ["        a = f_a; b = f_b; c = f_c;", "        break;", "      }"]
    lines += ["      default: break;", "    }", "  }", ""]

    for with_jacobian in (False, True):
        name, result = ("jacobian", "J[NUMBERS][5]") if with_jacobian else ("solve", "n[NUMBERS]")
        given = "int row, double a, double b, double c, double c1, double c2"
        lines += [f"  static void {name}({given}, double {result}) {{"]
        lines += ["    (void)a; (void)b; (void)c; (void)c1; (void)c2;", "    switch (row) {"]
        for i, row in enumerate(solution.rows):
            form = row.solve(m, A, B, C, C1, C2)
            targets = []
            for field, expr in zip(table.Form._fields, form, strict=True):
                expr = sympy.sympify(expr)
                if not with_jacobian and expr != 0:
                    targets.append((f"n[{field}_]", expr))
                for j, symbol in enumerate((A, B, C, C1, C2)):
                    slope = expr.diff(symbol)
                    if with_jacobian and slope != 0:
                        targets.append((f"J[{field}_][{j}]", slope))
            lines += [f"      case {i}: {{  // {row.name}"]
            lines += assignments(targets, " " * 8)
            lines += ["        break;", "      }"]
        lines += ["      default: break;", "    }", "  }", ""]
    return [*lines[:-1], "};", ""]


def header(body: list[str]) -> str:
    note = "// Written by tools/generate.py from src/deu/_subspaces.py.  Do not edit."
    return "\n".join([note, "#pragma once", "", *body, "}  // namespace deu", ""])


def generate() -> dict[Path, str]:
    fields = ", ".join(f"{f}_" for f in table.Form._fields)
    kinds = ", ".join(f"{k.name} = {int(k)}" for k in table.Kind)
    form = [
        "namespace deu {",
        "",
        f"enum Number {{ {fields}, NUMBERS }};",
        f"enum Kind {{ {kinds} }};",
        "",
    ]
    rows = ["#include <cmath>", "", '#include "form.h"', "", "namespace deu {", ""]
    for name, solution in table.SOLUTIONS.items():
        rows += solution_code(name, solution)
    return {CSRC / "form.h": header(form), CSRC / "rows.h": header(rows)}


def main() -> int:
    stale = [
        path for path, text in generate().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python tools/generate.py")
        return int(bool(stale))
    for path, text in generate().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
