"""Builds the CPU kernels where a C++ compiler is there, and installs without them where none is.

The kernels know nothing of Python or PyTorch: they are a plain shared library with a C interface,
so one build serves every version of both.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CSRC = Path("src/deu/csrc")
X86 = platform.machine().lower() in ("x86_64", "amd64")

GNU = {
    "common": [
        "-std=c++17",
        "-O3",
        "-g0",
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fopenmp-simd",
    ],
    # Which subspace a unit is in must not depend on how the compiler rounds.
    "exact": ["-ffp-contract=off"],
    "portable": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": [
        "-mavx512f",
        "-mavx512dq",
        "-mavx512bw",
        "-mavx512vl",
        "-mfma",
        "-mprefer-vector-width=512",
        "-funroll-loops",
        "--param=max-unroll-times=2",
    ],
}
MSVC = {
    "common": ["/std:c++17", "/O2", "/EHsc"],
    "exact": ["/fp:precise"],
    "portable": [],
    "avx2": ["/arch:AVX2"],
    "avx512": ["/arch:AVX512"],
}


class BuildKernels(build_ext):
    """Compiles the kernels once for each instruction set and links all of them into one library."""

    def get_ext_filename(self, fullname: str) -> str:
        suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
        return str(Path(*fullname.split("."))) + suffix

    def run(self) -> None:
        try:
            super().run()
        except (
            Exception
        ) as error:  # whatever keeps a compiler from working must not stop the install
            message = (
                f"deu: the CPU kernels were not built ({error}); deu works without, but slower."
            )
            print(message, file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # an editable install without a compiler
            super().copy_extensions_to_source()

    def build_extension(self, ext: Extension) -> None:
        flags = MSVC if self.compiler.compiler_type == "msvc" else GNU
        isas = ["portable", "avx2", "avx512"] if X86 else ["portable"]
        common, exact = flags["common"], flags["common"] + flags["exact"]
        work = []
        for isa in isas:
            macros = [("DEU_ISA", isa)]
            work.append(("kernels.cpp", isa, macros, common + flags[isa]))
            work.append(("neurons.cpp", isa, macros, exact + flags[isa]))
        work.append(("api.cpp", "api", [("DEU_X86", "1")] if X86 else [], exact))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda file: self._compile(*file), work))
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            extra_postargs=[] if flags is MSVC else ["-pthread"],
            target_lang="c++",
        )

    def _compile(self, name: str, part: str, macros: list, flags: list[str]) -> str:
        folder = Path(self.build_temp) / part
        folder.mkdir(parents=True, exist_ok=True)
        (compiled,) = self.compiler.compile(
            [str(CSRC / name)], output_dir=str(folder), macros=macros, extra_postargs=flags
        )
        return compiled


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python 3."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


sources = sorted(str(path) for path in CSRC.glob("*.cpp"))
headers = sorted(str(path) for path in CSRC.glob("*.h"))
setup(
    ext_modules=[Extension("deu._kernels", sources, depends=headers, language="c++")],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
)
