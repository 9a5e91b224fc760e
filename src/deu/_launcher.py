"""Builds and loads ``launcher.cpp``, which calls the GPU kernels without Python in between.

In eager mode a unit's own work on the host, by Python, takes several times that of one of
PyTorch's activations, and a network of moderate size waits for the host.  So the first unit on a
GPU has the launcher compiled, in the background, by the C++ compiler that is there, against the
PyTorch that is there; it is kept for the next time.  Until then, and wherever there is no compiler
or anything else is in the way, Python launches the same kernels.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import struct
import subprocess
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ._settings import Settings

_SOURCE = Path(__file__).parent / "csrc" / "launcher.cpp"
_HEADERS = tuple(
    _SOURCE.with_name(f"{name}.h")
    for name in ("launch", "launch_norm", "launch_packed", "with_python", "autograd", "operators")
)
_NAME = "deu_launcher"
_FLAGS = ("-std=c++2a", "-O2", "-g0", "-shared", "-fPIC", "-fvisibility=hidden", "-w")
_ABI = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
_STALE = 900  # seconds after which another process's build is taken for dead

_whole: dict[str, Any] = {}  # those for which the launcher has a shortcut, as they were

Kernel = tuple[int, int, int, int, bool, bytes]  # what the launcher has to know of one

call: Callable[[Tensor, tuple[Tensor, ...], Settings], Tensor | None] | None = None
call_norm: Callable[..., Tensor | None] | None = None  # of batch norm and a unit in one
call_packed: Callable[..., Tensor | None] | None = None  # by packed numbers
problem: Exception | None = None  # why there is none
_module: ModuleType | None = None
_built: Path | None = None  # and to be loaded by whoever comes next
_lock = threading.RLock()
_thread: threading.Thread | None = None
_backward: Callable[..., Any]
_norm_backward: Callable[..., Any]
_norm_rows: int


def connect(backward: Callable[..., Any]) -> None:
    """What the launcher calls for gradients that it has no plan for, or that are to have their own.

    It takes (grad, t, a, b, c, c1, c2, saved, settings).
    """
    global _backward
    _backward = backward


def connect_norm(backward: Callable[..., Any], rows: int) -> None:
    """The same of batch norm and a unit in one, and how many numbers of a neuron are saved.

    It takes (grad, saved, x, residual, weight, bias, a, b, c, c1, c2, eps, settings).
    """
    global _norm_backward, _norm_rows
    _norm_backward, _norm_rows = backward, rows


def begin() -> None:
    """Have the launcher built, unless it is; called with the first tensors on a GPU."""
    global _built, _thread, problem
    with _lock:
        if any(x is not None for x in (_thread, _built, _module, problem)):
            return
        try:
            _check_wanted()
            path = _place()
            if path.exists():
                _built = path
            else:
                _thread = threading.Thread(target=_build, args=(path,), daemon=True)
                _thread.start()
        except Exception as error:  # it is a help; its failing must never stop a program
            problem = error


def ready(seconds: float = 300.0) -> bool:
    """Wait until the launcher is there or known not to come, as to measure, and say which."""
    begin()
    if _thread is not None:
        _thread.join(seconds)
    return _loaded()


def _check_wanted() -> None:
    if os.environ.get("DEU_LAUNCHER") == "0":
        raise RuntimeError("DEU_LAUNCHER=0 says that Python launches")
    if os.name != "posix" or torch.version.hip is not None:
        raise RuntimeError("the launcher is for CUDA on Linux")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise RuntimeError("the launcher needs Python's GIL")


def _build(path: Path) -> None:
    global _built, problem
    try:
        build(path)
        _built = path
    except Exception as error:
        problem = error


def _loaded() -> bool:
    """Whether the launcher is there, after loading it if it has been built.

    In the thread of a caller: operators must not change while others call them.
    """
    global _built, problem
    if _module is None and _built is not None:
        with _lock:
            path, _built = _built, None
            try:
                if path is not None:
                    _load(path)
            except Exception as error:
                problem = error
    return _module is not None


def _place() -> Path:
    """Where the launcher for this PyTorch, this Python and this source is kept."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    if root is None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        root = str(Path(cache) / "torch_extensions")
    pytorch = (torch.__version__, torch.version.git_version, _ABI)
    python = sysconfig.get_config_var("EXT_SUFFIX")
    source = (path.read_text() for path in (_SOURCE, *_HEADERS))
    what = (*pytorch, python, *_FLAGS, *source)
    tag = hashlib.sha256("\0".join(map(str, what)).encode()).hexdigest()[:16]
    return Path(root) / f"deu-{tag}" / f"{_NAME}.so"


def build(path: Path) -> None:
    """Compile the launcher, unless another process is at it: then wait for that one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = path.with_suffix(".building")
    while not _marked(mark):
        if path.exists():
            return
        time.sleep(0.5)
    part = path.with_suffix(f".{uuid.uuid4().hex}")
    # A shell of its own goes on to the end when the program that began it is over.
    script = '"$@" && mv "$PART" "$WHOLE"; code=$?; rm -f "$PART" "$MARK"; exit $code'
    where = {"PART": str(part), "WHOLE": str(path), "MARK": str(mark)}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *_command(part)],
            env={**os.environ, **where},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        mark.unlink(missing_ok=True)
        part.unlink(missing_ok=True)
    if done.returncode:
        raise RuntimeError(f"the launcher was not compiled: {done.stderr.strip()[-2000:]}")


def _marked(mark: Path) -> bool:
    """Whether a build is now this process's: nobody else has begun one, or lately enough."""
    try:
        mark.touch(exist_ok=False)
        return True
    except FileExistsError:
        pass
    try:
        if time.time() - mark.stat().st_mtime < _STALE:
            return False
    except FileNotFoundError:  # it has just ended
        return False
    mark.touch()
    return True


def _command(output: Path) -> list[str]:
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++"))), None)
    if compiler is None:
        raise RuntimeError("there is no C++ compiler")
    home = Path(torch.__file__).parent
    includes = (
        home / "include",
        home / "include/torch/csrc/api/include",
        sysconfig.get_paths()["include"],
    )
    return [
        *shlex.split(compiler),
        *_FLAGS,
        _ABI,
        *(f"-I{folder}" for folder in includes),
        str(_SOURCE),
        "-o",
        str(output),
        f"-L{home / 'lib'}",
        *("-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10"),
    ]


def _load(path: Path) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    pytorch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
    use(path, "cuda", driver.cuLaunchKernelEx, pytorch.aoti_torch_get_current_cuda_stream)


def use(path: Path, device: str, launch: Any, stream: Any) -> None:
    """Load the launcher for one type of device, with the functions that launch and name streams."""
    global call, call_norm, call_packed, _module
    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    addresses = (ctypes.cast(f, ctypes.c_void_p).value for f in (launch, stream))
    module.use(device, *addresses, _backward, _norm_backward, _norm_rows)
    _module, call, call_norm = module, module.call, module.call_norm
    call_packed = module.call_packed
    for name in module.names():
        operator = getattr(torch.ops.deu, name).default
        _whole[name] = operator._op
        operator._op = module.shortened(name, operator._op)


def release() -> None:
    """Go back to Python."""
    global call, call_norm, call_packed, _module
    if _module is not None:
        call = call_norm = call_packed = None
        for name, whole in _whole.items():
            getattr(torch.ops.deu, name).default._op = whole
        _whole.clear()
        _module.release()
        _module = None


def forget() -> None:
    """Forget all plans."""
    if _module is not None:
        _module.clear()


def keep_forward(
    t: Tensor, a: Tensor, settings: Settings, keep: bool, forms: int, launch: Any
) -> bool:
    """Leave calls like this one to the launcher; False while there is none."""
    return _tell("keep_forward", (t, a, settings, keep, forms), (launch,))


def keep_backward(
    grad: Tensor, t: Tensor, a: Tensor, settings: Settings, sums: int, launch: Any, finish: Any
) -> bool:
    """The same for backward."""
    return _tell("keep_backward", (grad, t, a, settings, sums), (launch, finish))


def keep_norm_forward(
    x: Tensor,
    residual: Tensor | None,
    norm: tuple[Tensor | None, float, float, bool],
    settings: Settings,
    sizes: tuple[int, int],
    launches: tuple[Any, ...],
) -> bool:
    """The same for batch norm and a unit in one.

    ``norm`` is its running mean, if it is tracked, momentum, eps and whether it is frozen; of
    ``sizes`` the first is that of the sums.
    """
    return _tell("keep_norm_forward", (x, residual, *norm, settings, *sizes), launches)


def keep_norm_backward(
    grad: Tensor,
    x: Tensor,
    residual: Tensor | None,
    settings: Settings,
    sums: int,
    launches: tuple[Any, ...],
) -> bool:
    return _tell("keep_norm_backward", (grad, x, residual, settings, sums), launches)


def keep_packed(
    x: Tensor,
    residual: Tensor | None,
    packed: Tensor,
    normed: bool,
    settings: Settings,
    launch: Any,
) -> bool:
    """The same for values by packed numbers."""
    return _tell("keep_packed", (x, residual, packed, normed, settings), (launch,))


def _tell(function: str, call: tuple[Any, ...], launches: tuple[Any, ...]) -> bool:
    global problem
    if not _loaded():
        return False
    try:
        kernels = tuple(launch.described() for launch in launches)
        if None not in kernels:
            getattr(_module, function)(*call, kernels)
    except Exception as error:  # then Python goes on doing it
        problem = error
    return True


_kept: dict[int, Any] = {}  # compiled kernels: Triton may unload one that nobody holds


def describe(compiled: Any, programs: int, fixed: tuple[Any, ...]) -> Kernel | None:
    """What it takes to launch a kernel that Triton has compiled; None if that is not known.

    ``fixed`` are its parameters after the tensors, as they were given to Triton, which leaves out
    those that it compiled into the kernel.
    """
    metadata = compiled.metadata
    kinds = list(compiled.src.signature.values())
    scratch = (getattr(metadata, f"{name}_scratch_size", 0) for name in ("global", "profile"))
    unusual = (
        getattr(metadata, "num_ctas", 1) != 1,
        getattr(metadata, "launch_cooperative_grid", False),
        *scratch,
    )
    tensors = len(kinds) - len(fixed)
    if any(unusual) or any(not kind.startswith("*") for kind in kinds[:tensors]):
        return None
    slots = [pack(kind, value) for kind, value in zip(kinds[tensors:], fixed, strict=True)]
    packed = [slot for slot in slots if slot is not None]
    unnamed = _parameters(compiled.function) - tensors - len(packed)  # Triton's own scratch memory
    if not 0 <= unnamed <= 2:
        return None
    _kept[compiled.function] = compiled
    return (
        compiled.function,
        programs,
        32 * metadata.num_warps,
        metadata.shared,
        bool(getattr(metadata, "launch_pdl", False)),
        b"".join(packed) + bytes(8 * unnamed),
    )


_FORMATS = {"i1": "q", "i8": "q", "i16": "q", "i32": "q", "i64": "q", "fp32": "f4x", "fp64": "d"}


def pack(kind: str, value: Any) -> bytes | None:
    """A parameter in the eight bytes that the launcher keeps of it; None if it is compiled in."""
    return None if kind == "constexpr" else struct.pack(f"<{_FORMATS[kind]}", value)


def _parameters(function: int) -> int:
    """How many parameters a kernel takes, by CUDA's driver."""
    driver = ctypes.CDLL("libcuda.so.1")
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    for count in range(64):
        if driver.cuFuncGetParamInfo(
            ctypes.c_void_p(function),
            ctypes.c_size_t(count),
            ctypes.byref(offset),
            ctypes.byref(size),
        ):
            return count
        if size.value > 8:
            break
    return 0  # fewer than there are: nothing that is known
