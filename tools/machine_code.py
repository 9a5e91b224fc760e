"""Compile the GPU kernels for one of NVIDIA's chips, without a GPU, and say what their loops hold.

    python tools/machine_code.py paper float32 channels_last
    python tools/machine_code.py continuous bfloat16 contiguous --batch 8 --chip 80
    python tools/machine_code.py continuous bfloat16 channels_last --norm

For each kernel its registers, stack and instructions, and for each of its loops how many
instructions, and which of them are slow: in float64, special functions, choices, barriers, and
registers that did not fit (spills).  A thread does several elements in one turn of a loop.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from deu import _triton, _triton_launch, _triton_normed, _triton_packed
from deu._layout import DTYPES
from deu._settings import Settings
from deu._subspaces import SOLUTIONS

_POINTERS = {
    torch.int64: "*i64",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
}
_LEAST = 60  # instructions; shorter loops are not over elements
_SORTS = {
    "float64": r"D(FMA|ADD|MUL|SETP|MNMX)\b",
    "special": r"MUFU",
    "choices": r"F?SEL|F?SETP|FMNMX",
    "barriers": r"BAR|WARPSYNC",
    "spills": r"(LD|ST)L\b",
}


class Compiled(NamedTuple):
    """A kernel as it would be launched, and what Triton made of it."""

    launch: Any
    made: Any


@contextlib.contextmanager
def _on_chip(chip: int) -> Iterator[None]:
    """As if there were one, with as many multiprocessors as an H200 has."""
    with contextlib.ExitStack() as stack:
        for module, name, function in (
            (_triton, "processors", lambda device: 132),
            (_triton_normed, "processors", lambda device: 132),
            (_triton_packed, "processors", lambda device: 132),
            (_triton_launch, "has_ptx", lambda device: True),
            (_triton_launch, "is_since", lambda device, major: chip >= 10 * major),
        ):
            stack.enter_context(mock.patch.object(module, name, function))
        yield


def compiled(
    solution: str, dtype: torch.dtype, layout: str, chip: int, batch: int, norm: bool = False
) -> dict[str, Compiled]:
    """The kernels of a training step of a layer on (batch, 64, 56, 56), by their names.

    With ``norm``, of batch norm, a residual and the layer in one.
    """
    t = torch.empty(batch, 64, 56, 56, dtype=dtype, device="meta")
    if layout == "channels_last":
        t = t.to(memory_format=torch.channels_last)
    a = torch.empty(64, device="meta")
    settings = Settings(1, solution, 0.01, 100.0, 1.0, 1000.0, 1.0, True)
    with _on_chip(chip):
        if norm:
            batches = torch.empty((), dtype=torch.int64, device="meta")
            of = _triton_normed.BatchNorm(a, a, a, a, batches, 0.1, 1e-5)
            ahead = _triton_normed._plan_forward(t, t, t, of, settings, False)
            frozen = _triton_normed._plan_forward(t, t, t, of, settings, True)
            packed = _triton_packed._plan(t, t, t, 64, True, settings)
            assert packed is not None
            back = _triton_normed._plan_backward(t, t, t, t, 64, settings)
            launches = {
                "measure": ahead.measure,
                "settle": ahead.settle,
                "norm_forward": ahead.forward,
                "norm_backward": back.backward,
                "norm_finish": back.finish,
                "norm_backward, onward": back.onward,
                "norm_forward, frozen": frozen.forward,
                "packed_value": packed.value,
            }
        else:
            forward = _triton._plan_forward(t, t, a, settings, True)
            backward = _triton._plan_backward(t, t, t, a, settings)
            assert forward is not None
            assert backward is not None
            launches = {
                "forward": forward.forward,
                "backward": backward.backward,
                "finish": backward.finish,
            }
    return {name: _compile(launch, chip) for name, launch in launches.items()}


def _compile(launch: Any, chip: int) -> Compiled:
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    arguments = zip(launch.kernel.arg_names, (*launch.types, *launch.fixed), strict=True)
    for i, (name, value) in enumerate(arguments):
        parameter = launch.kernel.params[i]
        special = not parameter.do_not_specialize
        if isinstance(value, torch.dtype):
            signature[name] = _POINTERS[value]
            attributes[(i,)] = [["tt.divisibility", 16]]
        elif parameter.is_constexpr or (value == 1 and special):  # Triton compiles a 1 in
            signature[name], constants[(i,)] = "constexpr", value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
            if value % 16 == 0 and special:  # and takes note of this
                attributes[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, attributes)
    target = GPUTarget("cuda", chip, 32)
    return Compiled(launch, triton.compile(source, target=target, options=dict(launch.options)))


def describe(cubin: bytes) -> str:
    """What a kernel takes, and its loops in the order of the code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        code = _run("nvdisasm", "-c", str(path))
        usage = _run("cuobjdump", "--dump-resource-usage", str(path))
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", usage)[-1]
    instructions, loops = _loops(code)
    lines = [f"{registers} registers, {stack} bytes of stack, {len(instructions)} instructions"]
    for first, last in loops:
        body = instructions[first : last + 1]
        found = {sort: sum(bool(re.search(at, x)) for x in body) for sort, at in _SORTS.items()}
        said = ", ".join(f"{sort} {n}" for sort, n in found.items() if n)
        lines.append(f"  {first:6}: {len(body):5} instructions  {said}")
    return "\n".join(lines)


def _loops(code: str) -> tuple[list[str], list[tuple[int, int]]]:
    labels: dict[str, int] = {}
    instructions: list[str] = []
    for line in code.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif instruction := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);", line):
            instructions.append(instruction[1])
    loops = []
    for last, text in enumerate(instructions):
        target = re.search(r"BRA.*(\.L_x_\d+)", text)
        first = labels.get(target[1], last) if target else last
        if last - first >= _LEAST:
            loops.append((first, last))
    return instructions, loops


def _run(program: str, *arguments: str) -> str:
    path = Path(triton.__file__).parent / "backends/nvidia/bin" / program
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("solution", choices=SOLUTIONS)
    parser.add_argument("dtype", choices=[str(x).removeprefix("torch.") for x in DTYPES])
    parser.add_argument("layout", choices=["contiguous", "channels_last"])
    parser.add_argument("--batch", type=int, default=256, help="images (default: 256)")
    parser.add_argument("--norm", action="store_true", help="with batch norm before it")
    parser.add_argument("--chip", type=int, default=90, help="compute capability (default: 90)")
    given = parser.parse_args()
    dtype = getattr(torch, given.dtype)
    kernels = compiled(given.solution, dtype, given.layout, given.chip, given.batch, given.norm)
    for name, kernel in kernels.items():
        print(f"{name}: {kernel.launch.options}, {describe(kernel.made.asm['cubin'])}", flush=True)


if __name__ == "__main__":
    main()
