"""One layer after another: checked, timed in turn, said in rows."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from . import check
from .cases import DTYPES, LAST, Case
from .providers import Copy, NotThereError, is_ours, make
from .rounds import Clock, Times, enough, summarise, take_turns, wrong_row
from .rows import FAILED, MISSING, Row, first_line
from .timing import Subject, buffers

Emit = Callable[[list[Row]], None]


def measure(
    case: Case, device: torch.device, rounds: int, clock: Clock, emit: Emit, template: Row
) -> None:
    """Measure a case and hand its rows over, those of a run that was stopped too."""
    template = copy.copy(template)
    template.kind, template.case, template.shape = "layer", case.title, str(case.shape)
    template.layout, template.dtype = case.layout, case.dtype
    torch.manual_seed(0)
    dtype = DTYPES[case.dtype]
    x, grad = (check.data(case.shape, dtype, device, case.layout == LAST) for _ in range(2))
    inputs, grads = buffers(x), buffers(grad)
    for buffer in inputs:
        buffer.requires_grad_()
    subjects: dict[str, Subject] = {}
    seconds: dict[str, float] = {}
    errors: dict[str, check.Error] = {}
    apart: list[Row] = []
    base = case.base(device.type)
    for name in case.providers:
        row = copy.copy(template)
        row.provider = name
        try:
            module = make(name, case.shape[case.dim], case.dim, device, dtype)
            plain = isinstance(module, Copy)
            errors[name] = check.error(module, x, grad, differentiable=not plain)
            if errors[name].wrong:
                apart.append(wrong_row(template, name, errors[name]))
            else:
                subject = Subject(module, inputs, grads, differentiable=not plain)
                seconds[name] = subject.warm_up()
                subjects[name] = subject
        except NotThereError as reason:
            row.status, row.note = MISSING, str(reason)
            apart.append(row)
        except Exception as reason:  # of a peer or a compiler: said, and the others go on
            row.status, row.note = FAILED, first_line(reason)
            apart.append(row)
    times: Times = {}
    finished = False
    try:
        take_turns(subjects, seconds, base, rounds, clock, times)
        finished = True
    finally:
        if finished or enough(times, base):
            rows = summarise(template, times, base, case.limits(device.type), errors, is_ours)
            _put_memory(rows, subjects)
            emit(rows + apart)


def _put_memory(rows: list[Row], subjects: dict[str, Subject]) -> None:
    for row in rows:
        row.memory_bytes = subjects[row.provider].memory
        base = "GELU" if "GELU" in subjects else row.base
        if base in subjects:
            row.memory_ratio = row.memory_bytes / subjects[base].memory
