"""Without the compiled kernels everything works, with one warning; importing deu is cheap."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import deu

PACKAGE = Path(deu.__file__).parent

EAGER = """
import json, warnings
import torch
torch.set_num_threads(1)
layers, results = [], {}
with warnings.catch_warnings(record=True) as eager:
    warnings.simplefilter("always")
    import deu
    for solution in ("paper", "continuous"):
        torch.manual_seed(1)
        first = deu.DEU(6, init="spread", solution=solution)
        second = deu.DEU(6, init="relu", solution=solution)
        layers.append(first)
        t = torch.randn(9, 6, 4, requires_grad=True)
        for _ in range(3):
            t.grad = None
            first.zero_grad()
            second.zero_grad()
            y = second(first(t))
            y.square().mean().backward()
        grads = [p.grad for p in (*first.parameters(), *second.parameters())]
        results[solution] = [x.flatten().tolist() for x in (y, t.grad, *grads)]
        with torch.no_grad():
            first.eval()(t)
        first.train()
        deu.LazyDEU(solution=solution)(t)
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        unit = deu.DEU(init="spread", solution=solution)
        (slope,) = torch.autograd.grad(unit(x).sum(), x, create_graph=True)
        slope.square().sum().backward()
        assert x.grad.isfinite().all()
failed, compiling = [], []
"""

COMPILED = """
with warnings.catch_warnings(record=True) as compiling:
    warnings.simplefilter("always")
    for layer in layers:
        try:
            compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
            found = []
            for call in (compiled, layer):
                layer.zero_grad()
                out = call(t.detach())
                out.sum().backward()
                found.append([out.detach(), *(p.grad for p in layer.parameters())])
            for x, y in zip(*found):
                torch.testing.assert_close(x, y)
        except Exception as error:
            failed.append(f"{layer}: {error}")
"""

REPORT = """
from deu import _native
said = [str(w.message) for w in eager + compiling]
print(json.dumps({
    "file": deu.__file__,
    "native": _native.isas(),
    "results": results,
    "ours": [message for message in said if message.startswith("deu")],
    "others": [str(w.message) for w in eager if not str(w.message).startswith("deu")],
    "not compiled": failed,
}))
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def exercised(compiled: bool = True, **environment: str) -> dict:
    """What layers do in a process of their own, eager and, which takes longer, compiled."""
    return json.loads(run(EAGER + COMPILED * compiled + REPORT, **environment))


@pytest.fixture(scope="module")
def native() -> dict:
    found = exercised()
    if not found["native"]:
        pytest.skip("no compiled kernels to compare with")
    return found


def same(results: dict, native: dict) -> None:
    """Results within 1e-5 of the kernels', and torch.compile took every layer that it got."""
    assert results["others"] == []
    assert results["not compiled"] == []
    for solution, values in native["results"].items():
        for i, (x, y) in enumerate(zip(results["results"][solution], values, strict=True)):
            torch.testing.assert_close(
                torch.tensor(x), torch.tensor(y), rtol=1e-5, atol=1e-5, msg=f"{solution}: {i}"
            )


def test_native_warns_of_nothing(native: dict) -> None:
    assert native["ours"] == []
    same(native, native)


def test_without_the_library_there_is_one_warning(tmp_path: Path, native: dict) -> None:
    copy = tmp_path / "deu"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("_kernels.*", "__pycache__"))
    found = exercised(PYTHONPATH=str(tmp_path))
    assert Path(found["file"]).parent == copy
    assert found["native"] == []
    assert len(found["ours"]) == 1, found["ours"]
    assert "kernels" in found["ours"][0]
    assert "compiler" in found["ours"][0]
    same(found, native)


def test_a_library_that_does_not_load_is_one_warning(tmp_path: Path, native: dict) -> None:
    copy = tmp_path / "deu"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("_kernels.*", "__pycache__"))
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    (copy / f"_kernels{suffix}").write_bytes(b"not a library")
    found = exercised(compiled=False, PYTHONPATH=str(tmp_path))
    assert Path(found["file"]).parent == copy
    assert found["native"] == []
    assert len(found["ours"]) == 1, found["ours"]
    assert "cannot be loaded" in found["ours"][0]
    same(found, native)


def test_switched_off_there_is_no_warning(native: dict) -> None:
    found = exercised(compiled=False, DEU_NATIVE="0")
    assert found["native"] == []
    assert found["ours"] == []
    same(found, native)


IMPORT = """
import json, sys, time
import torch
before = set(sys.modules)
start = time.perf_counter()
import deu
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "new": sorted(set(sys.modules) - before)}))
"""


def test_importing_is_cheap() -> None:
    """Less than 0.3 s on top of torch, in the best of three, and nothing heavy comes along."""
    best = float("inf")
    for _ in range(3):
        found = json.loads(run(IMPORT))
        best = min(best, found["seconds"])
        if best < 0.3:
            break
    assert best < 0.3
    heavy = {"matplotlib", "sympy", "scipy", "numpy", "pandas", "sklearn", "tqdm"}
    assert not heavy & {name.split(".")[0] for name in found["new"]}


def test_works_without_anything_but_torch() -> None:
    code = """
import sys
for name in ("matplotlib", "sympy", "scipy", "mpmath", "tqdm"):
    sys.modules[name] = None
import torch, deu
layer = deu.DEU(3)
layer(torch.randn(4, 3)).sum().backward()
assert not {"matplotlib", "sympy", "scipy"} & {n for n in sys.modules if sys.modules[n]}
"""
    run(code)
