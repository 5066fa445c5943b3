"""Builds a wheel, plain or, with GATEHOUSE_COMPILE=1, with the hot modules compiled by mypyc.

    python -m pip wheel --no-deps .                        plain
    GATEHOUSE_COMPILE=1 python -m pip wheel --no-deps .    compiled: needs mypy, Cython, a C compiler and Python's
                                                           headers

Modules that mypyc compiles call each other directly and copy each other's constants, so they are one library, of a C
file for each module, which the C compiler takes side by side (decision 276); each native module is a library of its
own. What was compiled is kept: the hot modules in `build/hot/DIGEST.PYTHON/`, by the digest of them and of all that
they import; the native ones in `build/native/DIGEST.PYTHON/`, by their own; both by this file, too. A wheel whose other
files have changed is made of both in seconds, and one with another native module in less than a minute. decision 58
"""
from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from gatehouse.hot import (  # noqa: E402
    HOT_MODULES,
    NATIVE_MODULES,
    hot_digest,
    native_digest,
    native_source_of,
    source_of,
)

GROUP: Final = "gatehouse.hot"    # decision 129: dotted, as the modules are found through links
"""All compiled modules are one shared library, which lies in the package too."""
MYPY_CACHE: Final = "build/mypy_cache"
"""Not the one of `make lint`, which runs beside this: two at one cache end with "database is locked"."""
DIRECTIVES: Final = {"language_level": 3, "boundscheck": True, "wraparound": False, "initializedcheck": True}
"""How Cython translates: what a peer sends is never trusted, so every index is checked."""


def native_extensions() -> list[Extension]:
    """The native modules; those in Cython are translated into C."""
    from Cython.Build import cythonize

    extensions = [Extension(module, [str(native_source_of(module, ROOT).relative_to(ROOT))],
                            extra_compile_args=["-O2", "-Wno-unused-function"],
                            optional=sys.platform != "linux") for module in NATIVE_MODULES]
    in_c = [extension for extension in extensions if extension.sources[0].endswith(".c")]
    in_cython = [extension for extension in extensions if extension not in in_c]
    return in_c + cythonize(in_cython, build_dir="build/c", compiler_directives=DIRECTIVES, quiet=True)


def hot_extensions() -> list[Extension]:
    """The hot modules, which mypyc translates into C."""
    from mypyc.build import mypycify

    files = [str(source_of(module, ROOT).relative_to(ROOT)) for module in HOT_MODULES]
    # decision 276
    extensions = mypycify(["--follow-imports=silent", f"--cache-dir={MYPY_CACHE}", *files], group_name=GROUP,
                          opt_level="3", debug_level="0", target_dir="build/c", multi_file=True)
    for extension in extensions:
        extension.include_dirs.append("build/c/gatehouse")     # a group whose name has a dot has its header there
        extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]    # decision 356
    return extensions


class CompiledDistribution(Distribution):
    """A wheel of one platform and one Python, though the list of its extensions is empty until they are built."""

    def has_ext_modules(self) -> bool:
        return True


class BuildBeside(build_ext):
    """Compiles the C files of one library side by side, the largest first: else one follows the other."""

    def build_extensions(self) -> None:
        one_by_one = self.compiler.compile

        def side_by_side(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                made = threads.map(lambda source: one_by_one([source], **options),
                                   sorted(sources, key=os.path.getsize, reverse=True))
                return [file for files in made for file in files]

        self.compiler.compile = side_by_side
        super().build_extensions()


class BuildNative(BuildBeside):
    """Compiles the native modules alone: for tests under a sanitizer (scripts/sanitize.py)."""

    def finalize_options(self) -> None:
        self.distribution.ext_modules = native_extensions()
        super().finalize_options()


class BuildHot(BuildBeside):
    """Compiles the hot modules and the native ones, or takes of each what was compiled from the same sources before."""

    def finalize_options(self) -> None:
        missing = [module for module in HOT_MODULES if source_of(module, ROOT) is None]
        missing += [module for module in NATIVE_MODULES if native_source_of(module, ROOT) is None]
        if missing:
            raise SystemExit(f"{', '.join(missing)} of gatehouse/hot.py does not exist")
        python, folder = EXTENSION_SUFFIXES[0].removesuffix(".so"), ROOT / "build"
        hot, native = folder / "hot" / (hot_digest(ROOT) + python), folder / "native" / (native_digest(ROOT) + python)
        self.kept = {hot: [] if hot.is_dir() else hot_extensions(),
                     native: [] if native.is_dir() else native_extensions()}
        self.distribution.ext_modules = [extension for extensions in self.kept.values() for extension in extensions]
        super().finalize_options()

    def run(self) -> None:
        wanted, compiler = self.build_lib, self.compiler
        for kept, extensions in self.kept.items():
            if extensions:
                self.extensions, self.compiler = extensions, compiler
                self.build_lib = f"{kept}.new"
                shutil.rmtree(self.build_lib, ignore_errors=True)
                super().run()
                Path(self.build_lib).rename(kept)    # whole, or not at all
            shutil.copytree(kept, wanted, dirs_exist_ok=True)
        self.build_lib = wanted

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib, file.relative_to(kept))) for kept in self.kept for file in kept.rglob("*.so")]


if __name__ == "__main__":
    compiled = {"1": BuildHot, "native": BuildNative}.get(os.environ.get("GATEHOUSE_COMPILE", ""))
    if compiled is not None:
        setup(distclass=CompiledDistribution, cmdclass={"build_ext": compiled})
    else:
        setup()
