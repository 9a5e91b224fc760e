"""Write the table of subspaces, with its derivatives, for the kernels.

As C++ into src/deu/csrc/{form,rows}.h, as Triton into src/deu/_triton_rows.py.

    python tools/generate.py            write the files
    python tools/generate.py --check    fail if a file is not what the table says

The table is src/deu/_subspaces.py; SymPy differentiates it and finds common subexpressions.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import sympy
from sympy.logic.boolalg import Boolean
from sympy.printing.cxx import CXX17CodePrinter
from sympy.printing.pycode import PythonCodePrinter

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


class Products:
    """Powers written as products, quotients and square roots."""

    square_root: str
    parenthesize: Callable[..., str]  # of every printer

    def _print_Pow(self, expr, **_):
        base = self.parenthesize(expr.base, sympy.printing.precedence.PRECEDENCE["Func"])
        halves = abs(int(2 * expr.exp))
        factors = [base] * (halves // 2) + [f"{self.square_root}({base})"] * (halves % 2)
        product = "*".join(factors)
        if expr.exp > 0:
            return f"({product})" if len(factors) > 1 else product
        return f"(1.0/({product}))"


class CppPrinter(Products, CXX17CodePrinter):
    square_root = "std::sqrt"

    def _print_Piecewise(self, expr):
        (yes, condition), (no, _) = expr.args
        return f"({self._print(condition)} ? {self._print(yes)} : {self._print(no)})"


class TritonPrinter(Products, PythonCodePrinter):
    square_root = "root"

    def _print_Pow(self, expr, **_):
        if expr.exp < 0:
            return f"inverse({super()._print_Pow(sympy.Pow(expr.base, -expr.exp, evaluate=False))})"
        return super()._print_Pow(expr)

    def _print_Mul(self, expr):
        level = sympy.printing.precedence.PRECEDENCE["Mul"]
        if expr.args[0] == -1:
            rest = sympy.Mul(*expr.args[1:], evaluate=False)
            return f"-{self.parenthesize(rest, level)}"
        return "*".join(self.parenthesize(arg, level) for arg in expr.args)

    def _print_Piecewise(self, expr):
        (yes, condition), (no, _) = expr.args
        return f"tl.where({self._print(condition)}, {self._print(yes)}, {self._print(no)})"

    def _print_And(self, expr):
        return " & ".join(f"({self._print(arg)})" for arg in expr.args)

    def _print_Or(self, expr):
        return " | ".join(f"({self._print(arg)})" for arg in expr.args)

    def _print_Relational(self, expr):
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_Abs(self, expr):
        return f"tl.abs({self._print(expr.args[0])})"

    def _print_sign(self, expr):
        of = self._print(expr.args[0])
        return f"tl.where({of} > 0, 1.0, tl.where({of} < 0, -1.0, 0.0))"

    def _print_Rational(self, expr):
        return f"({expr.p}.0/{expr.q}.0)"


printer = CppPrinter()
triton_printer = TritonPrinter()
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

    lines += [f"  static constexpr int ROWS = {len(solution.rows)};"]
    kinds = ", ".join(row.kind.name for row in solution.rows)
    lines += [f"  static constexpr Kind KINDS[] = {{{kinds}}};", ""]

    lines += ["  DEU_INLINE void snap(double& a, double& b, double& c, double eps) {"]
    snapped = solution.snap(m, A, B, C, EPS)
    lines += ["    double s_a, s_b, s_c;"]
    lines += assignments([(f"s_{s}", e) for s, e in zip((A, B, C), snapped, strict=True)], " " * 4)
    lines += ["    a = s_a; b = s_b; c = s_c;", "  }", ""]

    lines += ["  // The first row from `first` on that holds, for snapped coefficients."]
    lines += ["  DEU_INLINE int row(double a, double b, double c, double eps, int first = 0) {"]
    lines += ["    (void)eps;"]
    last = len(solution.rows) - 1
    lines += [f"    int row = {last};  // {solution.rows[last].name}"]
    for i, row in reversed(list(enumerate(solution.rows[:-1]))):
        holds = printer.doprint(row.when(m, A, B, C, EPS))
        lines += [f"    row = first <= {i} && ({holds}) ? {i} : row;  // {row.name}"]
    lines += ["    return row;", "  }", ""]

    lines += ["  DEU_INLINE void force(int row, double& a, double& b, double& c) {"]
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
        name, result = ("jacobian", "J") if with_jacobian else ("solve", "n")
        given = "int row, double a, double b, double c, double c1, double c2"
        lines += ["  template <class Numbers>"]
        lines += [f"  DEU_INLINE void {name}({given}, Numbers {result}) {{"]
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
    return "\n".join([note, *body])


def six_numbers(row) -> dict[str, sympy.Expr]:
    """The row's numbers by their places; nothing of its form may be left out."""
    form = row.solve(SymbolicMath, A, B, C, C1, C2)
    used = {field for field, _ in table.places_of(row.kind).values()}
    lost = {f for f, e in form._asdict().items() if sympy.sympify(e) != 0} - used
    assert not lost, f"{row.name} has {lost}, for which {row.kind.name} has no place"
    return {
        place: sympy.simplify(sympy.piecewise_fold(sympy.sympify(number)))
        if row.kind.name in ("EXPONENTIAL", "REAL") and place in ("Af", "Bf")
        else sympy.sympify(number)
        for place, number in table.six_numbers(row.kind, form).items()
    }


def triton_assignments(targets: list[tuple[str, sympy.Expr]], indent: str) -> list[str]:
    shared, reduced = sympy.cse([expr for _, expr in targets], order="canonical")
    lines = [f"{name} = {triton_printer.doprint(expr)}" for name, expr in shared]
    lines += [
        f"{name} = {triton_printer.doprint(expr)}"
        for (name, _), expr in zip(targets, reduced, strict=True)
    ]
    return [indent + line for line in lines]


def triton_code(name: str, solution) -> list[str]:
    m = SymbolicMath
    abc = (A, B, C)
    lines = []

    def function(title: str, arguments: str, note: str) -> None:
        lines.extend(["", "", "@triton.jit", f"def {name}_{title}({arguments}):", f"    # {note}"])

    function("snap", "a, b, c, eps", "The coefficients as the rows take them.")
    snapped = solution.snap(m, *abc, EPS)
    lines += triton_assignments([(f"s_{s}", e) for s, e in zip(abc, snapped, strict=True)], " " * 4)
    lines += ["    return s_a, s_b, s_c"]

    function(
        "row",
        "a, b, c, eps, FIRST: tl.constexpr = 0",
        "The first row from FIRST on that holds, for snapped coefficients.",
    )
    last = len(solution.rows) - 1
    lines += [f"    row = tl.where(a == a, {last}, {last})  # {solution.rows[-1].name}"]
    for i, row in reversed(list(enumerate(solution.rows[:-1]))):
        holds = triton_printer.doprint(row.when(m, *abc, EPS))
        lines += [
            f"    if FIRST <= {i}:",
            f"        row = tl.where({holds}, {i}, row)  # {row.name}",
        ]
    lines += ["    return row"]

    function("kind", "row", "The kind of each row.")
    lines += [
        f"    kind = tl.where(row == 0, {int(solution.rows[0].kind)}, {int(solution.rows[0].kind)})"
    ]
    for i, row in enumerate(solution.rows[1:], 1):
        lines += [f"    kind = tl.where(row == {i}, {int(row.kind)}, kind)  # {row.name}"]
    lines += ["    return kind"]

    function("force", "row, a, b, c", "The values at which a row and its derivatives are taken.")
    for i, row in enumerate(solution.rows):
        forced = row.force(m, *abc)
        if forced != abc:
            lines += triton_assignments(
                [(f"f_{s}", e) for s, e in zip(abc, forced, strict=True)], " " * 4
            )
            lines += [f"    {s} = tl.where(row == {i}, f_{s}, {s})" for s in abc]
    lines += ["    return a, b, c"]

    def choose(results: list[tuple[str, list[sympy.Expr]]]) -> None:
        """Set each named result to the expression of the neuron's row.

        All rows are computed, with what they share computed once: that takes a handful of
        divisions and roots, less than finding out which rows occur.
        """
        targets = [
            (f"{name}_{i}", expr)
            for name, by_row in results
            for i, expr in enumerate(by_row)
            if expr != 0
        ]
        lines.extend(triton_assignments(targets, " " * 4))
        for name, by_row in results:
            lines.append(f"    {name} = tl.zeros_like(a)")
            for i, expr in enumerate(by_row):
                if expr != 0:
                    lines.append(f"    {name} = tl.where(row == {i}, {name}_{i}, {name})")

    given = "row, a, b, c, c1, c2"
    forms = [six_numbers(row) for row in solution.rows]
    symbols = (*abc, C1, C2)

    function("solve", given, "The numbers of the normal form.")
    choose([(place, [form[place] for form in forms]) for place in table.PLACES])
    lines += [f"    return {', '.join(table.PLACES)}"]

    function(
        "pull",
        f"{given}, g_p, g_q, g_A, g_B, g_Af, g_Bf",
        "The gradient of the five coefficients, from that of the numbers.",
    )
    gradient = {place: sympy.Symbol(f"g_{place}", real=True) for place in table.PLACES}
    choose(
        [
            (
                f"d_{s}",
                [
                    sum((gradient[k] * e.diff(s) for k, e in form.items()), sympy.S.Zero)
                    for form in forms
                ],
            )
            for s in symbols
        ]
    )
    lines += ["    return d_a, d_b, d_c, d_c1, d_c2"]

    return lines


def triton_module() -> str:
    lines = [
        "# Written by tools/generate.py from src/deu/_subspaces.py.  Do not edit.",
        "# ruff: noqa",
        "# mypy: ignore-errors",
        "import triton",
        "import triton.language as tl",
        "",
        "from ._triton_elements import inverse, root",
    ]
    for name, solution in table.SOLUTIONS.items():
        lines += triton_code(name, solution)
    return "\n".join([*lines, ""])


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
    rows = ["// Included inside a namespace of its own for each instruction set.", ""]
    for name, solution in table.SOLUTIONS.items():
        rows += solution_code(name, solution)
    return {
        CSRC / "form.h": header(["#pragma once", "", *form, "}  // namespace deu", ""]),
        CSRC / "rows.h": header(rows),
        ROOT / "src/deu/_triton_rows.py": triton_module(),
    }


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
