"""The Triton kernels compile to the machine code of NVIDIA's chips; that needs no GPU.

Triton's interpreter, which the other tests run them in, takes more than its compiler does.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = """
import re
import sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from deu import _launcher, _triton
from deu._settings import Settings

solution, dtype, layout, chip = sys.argv[1], getattr(torch, sys.argv[2]), sys.argv[3], sys.argv[4]
_triton._processors = lambda device: 132
_triton._has_ptx = lambda device: True
_triton._is_since = lambda device, major: int(chip) >= 10 * major
t = torch.empty(int(sys.argv[5]), 64, 56, 56, dtype=dtype, device="meta")
if layout == "channels_last":
    t = t.to(memory_format=torch.channels_last)
a = torch.empty(64, device="meta")
settings = Settings(1, solution, 0.01, 100.0, 1.0, 1000.0, 1.0, True)
forward = _triton._plan_forward(t, t, a, settings, True).forward
plan = _triton._plan_backward(t, t, t, a, settings)
POINTERS = {torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16"}
coefficient, wide = torch.float32, torch.float64


def compile(launch, tensors):
    signature, constants, attributes = {}, {}, {}
    for i, (name, value) in enumerate(zip(launch.kernel.arg_names, (*tensors, *launch.fixed))):
        if isinstance(value, torch.dtype):
            signature[name] = POINTERS[value]
            attributes[(i,)] = [["tt.divisibility", 16]]
        elif launch.kernel.params[i].is_constexpr:
            signature[name], constants[(i,)] = "constexpr", value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    source = ASTSource(launch.kernel, signature, constants, attributes)
    target = GPUTarget("cuda", int(chip), 32)
    made = triton.compile(source, target=target, options=dict(launch.options))
    assert made.asm["cubin"], launch.kernel
    print(made.metadata.name, len(made.asm["cubin"]))
    # What the launcher would launch it with has as many parameters as the kernel takes.
    entry = made.asm["ptx"].partition(".entry")[2].partition("{")[0]
    made.function, count = 1, len(re.findall(r"\\.param", entry))
    _launcher._parameters = lambda function: count
    *_, threads, shared, overlap, fixed = _launcher.describe(made, launch.programs, launch.fixed)
    assert (threads, shared) == (32 * launch.options["num_warps"], made.metadata.shared)
    assert overlap == launch.options.get("launch_pdl", False)
    assert len(fixed) == 8 * (count - len(tensors))


compile(forward, [dtype] * 2 + [coefficient] * 5 + [wide])
compile(plan.backward, [dtype] * 3 + [coefficient] * 3 + [wide] * 2)
compile(plan.finish, [coefficient] * 5 + [wide] + [coefficient] * 5)
"""


@pytest.mark.parametrize(
    ("solution", "dtype", "layout", "chip", "batch"),
    [
        ("continuous", "float32", "contiguous", 90, 256),
        ("continuous", "bfloat16", "channels_last", 80, 8),
        ("paper", "float32", "channels_last", 80, 256),
        ("paper", "bfloat16", "contiguous", 90, 8),
    ],
)
def test_kernels_compile(solution, dtype, layout, chip, batch, tmp_path: Path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            PROGRAM,
            solution,
            dtype,
            layout,
            *map(str, (chip, batch)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[::2] == ["forward", "backward", "finish"]
