"""The Triton kernels compile to the machine code of NVIDIA's chips; that needs no GPU.

Triton's interpreter, which the other tests run them in, takes more than its compiler does.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

TOOLS = Path(__file__).resolve().parent.parent / "tools"
PROGRAM = """
import re
import sys
import torch
from deu import _launcher

sys.path.insert(0, sys.argv[1])
import machine_code

dtype, (chip, batch, norm) = getattr(torch, sys.argv[3]), map(int, sys.argv[5:])
kernels = machine_code.compiled(sys.argv[2], dtype, sys.argv[4], chip, batch, bool(norm))
for name, (launch, made) in kernels.items():
    assert made.metadata.name == name.partition(",")[0]
    print(made.metadata.name, machine_code.describe(made.asm["cubin"]))
    # What the launcher would launch it with has as many parameters as the kernel takes.
    entry = made.asm["ptx"].partition(".entry")[2].partition("{")[0]
    made.function, count = 1, len(re.findall(r"\\.param", entry))
    _launcher._parameters = lambda function: count
    *_, threads, shared, overlap, fixed = _launcher.describe(made, launch.programs, launch.fixed)
    assert (threads, shared) == (32 * launch.options["num_warps"], made.metadata.shared)
    assert overlap == launch.options.get("launch_pdl", False)
    assert len(fixed) == 8 * (count - len(launch.types))
"""


UNIT = ["forward", "backward", "finish"]
NORM = ["measure", "settle", "norm_forward"]
NORM += ["norm_backward", "norm_finish", "norm_backward", "norm_forward", "packed_value"]


@pytest.mark.parametrize(
    ("solution", "dtype", "layout", "chip", "batch", "names"),
    [
        ("continuous", "float32", "contiguous", 80, 256, UNIT),
        ("continuous", "bfloat16", "channels_last", 90, 8, NORM),
        ("paper", "float32", "channels_last", 90, 256, UNIT),
    ],
)
def test_kernels_compile(solution, dtype, layout, chip, batch, names, tmp_path: Path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            PROGRAM,
            str(TOOLS),
            solution,
            dtype,
            layout,
            *map(str, (chip, batch, int(names is NORM))),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kernels = re.findall(r"^(\w+) \d+ registers", done.stdout, re.M)
    assert kernels == names, done.stdout
    assert len(re.findall(r"^ .* instructions", done.stdout, re.M)) > 6  # loops, a kind each
