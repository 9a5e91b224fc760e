"""The CPU kernels' machine code: loops over neighbouring neurons are vectors from end to end.

Compilers say nothing when they fall back to one neuron at a time, which takes ten times as long.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess

import pytest

from deu import _native

# A loop that is not has twice as many operations on one number as on vectors, which it ends with.
SCALAR = re.compile(r"\tv?(add|sub|mul|div|min|max|fn?m(add|sub)\d+)s[sd]\b")
PACKED = re.compile(r"\tv?(add|sub|mul|div|min|max|fn?m(add|sub)\d+)p[sd]\b")
FUNCTION = re.compile(r"^[0-9a-f]+ <(?:void )?deu::(\w+)::((?:forward|backward)_lanes<.*)>:$")


@functools.cache
def _loops(isa: str) -> dict[str, str]:
    """The code of each kernel that works on neighbouring neurons."""
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", _native._find()]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for function in text.split("\n\n"):
        title, _, code = function.lstrip("\n").partition("\n")
        match = FUNCTION.match(title)
        jump = code.count("\n") < 10  # to another that does the same
        if match and match[1] == isa and not jump:
            found[match[2]] = code
    return found


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_loops_over_neighbouring_neurons_are_vectorised(isa: str) -> None:
    if isa not in _native.isas():
        pytest.skip(f"the kernels for {isa} cannot be run here")
    loops = _loops(isa)
    assert len(loops) > 40, "symbols are missing"
    for name, code in loops.items():
        packed, scalar = len(PACKED.findall(code)), len(SCALAR.findall(code))
        assert packed > scalar, f"{name}: {packed} operations on vectors, {scalar} on one number"
