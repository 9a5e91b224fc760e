"""Rows as text: a table for each case, and what is required beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .providers import is_ours
from .rows import LEFT_OUT, MEASURED, WRONG, Row
from .timing import BOTH

_EXPLANATION = """\
- Medians over the rounds, with quartiles in brackets; ratios are taken within a round.
- The error is the largest of output, input gradient and parameter gradients against float64, beside
  what is allowed. What is wrong is not timed. A network may be off by three times what plain
  PyTorch is in the same type.
- Data: normal, every block of the batch the same, so that float64 needs one block only.
- Layers on a GPU: the GPU's own time, its queue kept full, over buffers that together are larger
  than its cache as far as 50 of them go; "with launches" is a call's time on the clock.
- Networks: time on the clock, launches included; "captured": in a CUDA graph, where the host does
  not count. Training: forward, cross-entropy, backward, fused SGD. float32 may use TF32 on a GPU.
- Memory: on a GPU the peak that a training step adds, on a CPU what autograd keeps.
- "deu" is a layer of units as it is by default, near GELU in the continuous solution; "waves",
  "spread", "random" and "relu" are other starts of it, and "trained" is what training on images
  makes of it. "deu paper" is the paper's solution from its random start; a layer of one or of ten
  subspaces is in the paper's solution too; one has nothing that gravitation pulls outward, of the
  ten all but three do, and "pulled" is one of these alone. Each subspace alone goes by its name.
  "NormDEU" is batch norm and "deu" in one layer.
- Units in 16-bit layers keep float32 coefficients, as under autocast. On (B, T, C) PReLU has one
  parameter. A KAN layer has a function on each edge, so it stands beside a linear layer with its
  activation ("dense")."""
QUICK = "QUICK RUN: small sizes and few rounds, to see it run; not for comparing"


def by_case(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each case, in order."""
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    return cases


def case_table(rows: Sequence[Row]) -> str:
    """The rows of one case as a Markdown table, a provider a line."""
    timed = [row for row in rows if row.status == MEASURED]
    works = list(dict.fromkeys(row.work for row in timed))
    base = timed[0].base if timed else ""
    has_prelu = any(not math.isnan(row.over_prelu) for row in timed) and base != "ReLU"
    has_wall = any(not math.isnan(row.wall_seconds) for row in timed)
    has_launches = any(not math.isnan(row.launches) for row in timed)
    head = [""]
    for work in works:
        head += [f"{work}, ms", f"/ {base}"]
        head += ["/ PReLU"] if has_prelu and work == BOTH else []
        head += ["with launches, ms"] if has_wall else []
    head += ["memory, MB", "/ " + ("GELU" if rows[0].kind == "layer" else base)]
    head += ["kernels"] if has_launches else []
    head += ["error"]
    lines = [head]
    notes = []
    nothing = Row("", "", "", "", "", "")
    for name in dict.fromkeys(row.provider for row in rows):
        own = {row.work: row for row in rows if row.provider == name}
        first = next(iter(own.values()))
        if first.status != MEASURED:
            lines.append([name, first.status, *[""] * (len(head) - 3), _error(first)])
            said = "wrong, so not timed" if first.status == WRONG else first.note
            notes.append(f"{name}: {said}")
            continue
        line = [name]
        for work in works:
            row = own.get(work, nothing)
            line += [_number(1e3 * row.seconds, ".3g"), _ratio(row)]
            line += [_spread(row, "over_prelu")] if has_prelu and work == BOTH else []
            line += [_number(1e3 * row.wall_seconds, ".3g")] if has_wall else []
        line += [_number(first.memory_bytes / 1e6, ".3g"), _number(first.memory_ratio, ".3f")]
        line += [_number(first.launches, ".0f")] if has_launches else []
        lines.append([*line, _error(first)])
    return "\n\n".join([markdown_table(lines), *notes])


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def join(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "| " + " | ".join(cells) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([join(lines[0]), join(rule), *(join(line) for line in lines[1:])])


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def _spread(row: Row, name: str) -> str:
    if math.isnan(getattr(row, name)):
        return ""
    low, high = getattr(row, name + "_low"), getattr(row, name + "_high")
    return f"{getattr(row, name):.2f} ({low:.2f}–{high:.2f})"


def _ratio(row: Row) -> str:
    text = _spread(row, "ratio")
    if math.isnan(row.limit):
        return text
    return f"{text} {'≤' if row.ratio <= row.limit else '> LIMIT'} {row.limit:.2f}"


def _error(row: Row) -> str:
    return "" if math.isnan(row.error) else f"{row.error:.1e} of {row.error_limit:.1e}"


class Requirement(NamedTuple):
    """Something that is required, and what was measured."""

    text: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        return self.value <= self.limit


def requirements(rows: Sequence[Row]) -> list[Requirement]:
    """Every requirement that these rows speak to: of networks, and of layers by the worst unit."""
    found = []
    for case, own in by_case(rows).items():
        limited = [r for r in own if not math.isnan(r.limit) and r.status == MEASURED]
        if limited and limited[0].kind == "model":
            for row in limited:
                text = f"{case}: {row.work} / {row.base}, {row.provider}"
                found.append(Requirement(text, row.ratio, row.limit))
            continue
        for work in dict.fromkeys(r.work for r in limited):
            worst = max((r for r in limited if r.work == work), key=lambda r: r.ratio)
            text = f"{case}: {work} / {worst.base}, worst unit ({worst.provider})"
            found.append(Requirement(text, worst.ratio, worst.limit))
        if not limited:
            continue
        times = {(r.provider, r.work): r.seconds for r in limited}
        for work in dict.fromkeys(r.work for r in limited):
            ten = times.get(("deu ten subspaces", work))
            for which, name in (("one", "one subspace"), ("one that is pulled", "pulled subspace")):
                one = times.get((f"deu {name}", work))
                if ten and one:
                    text = f"{case}: {work}, ten subspaces / {which}"
                    found.append(Requirement(text, ten / one, 1.1))
        worst = max(limited, key=lambda r: r.memory_ratio)
        # A unit's sums and its five gradients are a trifle that GELU does not have.
        text = f"{case}: peak memory of a step / GELU, to 1 %, worst unit ({worst.provider})"
        found.append(Requirement(text, worst.memory_ratio, 1.01))
    return found


def document(rows: Sequence[Row], heading: Sequence[str]) -> str:
    """The whole run as a Markdown page."""
    quick = any(row.quick for row in rows)
    parts = ["# deu bench" + (" (quick)" if quick else ""), *heading]
    if quick:
        parts.append(f"**{QUICK}.**")
    parts.append(_EXPLANATION)
    wanted = requirements(rows)
    if wanted:
        lines = [["required", "measured", "at most", "met"]]
        for one in wanted:
            verdict = "yes" if one.met else "NO"
            lines.append([one.text, f"{one.value:.4f}", f"{one.limit:.2f}", verdict])
        parts += ["## Requirements", markdown_table(lines)]
    for kind, title in (("layer", "Layers"), ("model", "Networks")):
        cases = by_case(row for row in rows if row.kind == kind and row.status != LEFT_OUT)
        if cases:
            parts.append(f"## {title}")
        for case, own in cases.items():
            parts += [f"### {case}", case_table(own)]
    left_out = [f"- {row.case} {row.work}".rstrip() for row in rows if row.status == LEFT_OUT]
    if left_out:
        parts += ["## Left out, for want of time", "\n".join(left_out)]
    return "\n\n".join(parts) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """One line on what was required."""
    wanted = requirements(rows)
    ours = [row for row in rows if is_ours(row.provider)]
    wrong = sum(row.status == WRONG for row in ours)
    parts = []
    if wanted:
        parts.append(f"requirements met: {sum(one.met for one in wanted)} of {len(wanted)}")
    if wrong:
        parts.append(f"units that are WRONG: {wrong}")
    return "; ".join(parts)
