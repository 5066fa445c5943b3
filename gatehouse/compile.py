"""Compiles the hot modules with mypyc: `make compile`. Optional; the plain files do the same, slower.

    python -m gatehouse.compile [--quiet]

Does nothing where what was compiled is still true. Without a C compiler, or when compiling fails, it says so in one
line, leaves the plain files in charge, and ends well: a hub must start either way. `--quiet` (used by `make run`)
does not repeat an attempt that failed on the same sources.

The result is put in place whole, by renaming a folder, and `kernel/compiled.py` loads it only while it is true.
"""
from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from gatehouse.hot import HOT_MODULES
from kernel.compiled import PACKAGES, digest, folder_of, read_manifest, staleness

# One C file for all modules: mypyc and gcc take about a minute and a half of a processor for it. For what hangs.
COMPILE_TIMEOUT_S: Final = 1800

ROOT: Final = Path(__file__).parent.parent

# mypyc's own cache: `make test` runs mypy beside it, and two at one cache end with "database is locked".
_BUILD: Final = """
import sys
from setuptools import setup
from mypyc.build import mypycify
folder, level, *files = sys.argv[1:]
setup(name="gatehouse-hot", packages=[], py_modules=[], script_args=[
    "--quiet", "build_ext", "--build-lib", folder + "/modules", "--build-temp", folder + "/objects"],
    ext_modules=mypycify(["--follow-imports=silent", "--cache-dir=build/mypy_cache", *files],
                         group_name="gatehouse_hot", opt_level=level, debug_level="0", target_dir=folder + "/c"))
"""


class CompileError(Exception):
    """Why there is no compiled form, in one line."""


def source_of(module: str, root: Path) -> Path | None:
    """The file of one of our modules, if there is such a module."""
    stem = root.joinpath(*module.split("."))
    for file in (stem.with_suffix(".py"), stem / "__init__.py"):
        if file.is_file():
            return file
    return None


def imported_modules(file: Path) -> set[str]:
    """Every module name that a file could mean by its import statements, ours and others."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def sources_of(modules: Iterable[str], root: Path) -> dict[str, str]:
    """Digest of every source that the compiled form depends on: constants and types are copied across modules."""
    digests: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        file = source_of(module, root) if module.partition(".")[0] in PACKAGES else None
        if file is None or file.relative_to(root).as_posix() in digests:
            continue
        digests[file.relative_to(root).as_posix()] = digest(file)
        waiting.extend(imported_modules(file))
    return dict(sorted(digests.items()))


def has_c_compiler() -> bool:
    """Whether the C compiler that extension modules are built with is there, and Python's headers."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(command) is not None and Path(sysconfig.get_paths()["include"], "Python.h").exists()


def compile_modules(modules: Iterable[str], root: Path, level: str = "3") -> None:
    """Build the modules and put them in place. Raises CompileError; nothing has changed then."""
    modules = tuple(modules)
    files = {module: source_of(module, root) for module in modules}
    missing = [module for module, file in files.items() if file is None]
    if missing:
        raise CompileError(f"{', '.join(missing)} of gatehouse/hot.py does not exist")
    sources = sources_of(modules, root)
    target = folder_of(root)
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="compiling-") as work:
        _run_mypyc([str(file.relative_to(root)) for file in files.values() if file], root, work, level)
        built = Path(work, "modules")
        found = {".".join(file.relative_to(built).parts).removesuffix(EXTENSION_SUFFIXES[0]):
                 file.relative_to(built).as_posix() for file in built.rglob("*" + EXTENSION_SUFFIXES[0])}
        if not set(modules) <= set(found):
            raise CompileError("the compiler left out " + ", ".join(sorted(set(modules) - set(found))))
        write_manifest(built, found, sources)
        shutil.rmtree(target, ignore_errors=True)
        built.rename(target)


def write_manifest(folder: Path, modules: dict[str, str], sources: dict[str, str]) -> None:
    """Say what lies in the folder and what it was made from; no modules means that compiling those sources failed."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"python": EXTENSION_SUFFIXES[0], "modules": modules, "sources": sources}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _run_mypyc(files: list[str], root: Path, work: str, level: str) -> None:
    command = [sys.executable, "-c", _BUILD, work, level, *files]
    log = folder_of(root).with_name("compile.log")
    try:
        done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=COMPILE_TIMEOUT_S, env={**os.environ, "GATEHOUSE_PLAIN": "1"})
    except subprocess.TimeoutExpired:
        raise CompileError(f"the compiler took more than {COMPILE_TIMEOUT_S} s") from None
    log.write_bytes(done.stdout)
    if done.returncode != 0:
        raise CompileError(f"the compiler failed, see {log.relative_to(root)}")


def _install_mypy(root: Path) -> None:
    """mypyc comes with the extra `compile`; only somebody with a C compiler waits for it."""
    if importlib.util.find_spec("mypyc") and importlib.util.find_spec("setuptools"):
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[compile]"]
    if subprocess.run(command, cwd=root, check=False).returncode != 0:
        raise CompileError("mypy could not be installed")


def main(arguments: list[str], root: Path = ROOT, modules: tuple[str, ...] = HOT_MODULES) -> int:
    """Compile what is not compiled yet; 0 even without a compiler, 1 only where asked for by name and failed."""
    quiet = "--quiet" in arguments
    manifest = read_manifest(root)
    if manifest is not None and not staleness(manifest, root) and set(modules) <= set(manifest["modules"]):
        if not quiet:
            print("the hot modules are compiled already")
        return 0
    sources = sources_of(modules, root)
    if quiet and manifest is not None and not manifest["modules"] and manifest["sources"] == sources:
        return 0    # this failed before and was said then
    if not has_c_compiler():
        print("no C compiler (or no Python.h): running the plain Python files, which is slower", file=sys.stderr)
        return 0
    print(f"compiling {len(modules)} hot modules (a minute or two, once per version)", flush=True)
    try:
        _install_mypy(root)
        compile_modules(modules, root)
    except CompileError as error:
        print(f"not compiled: {error}; the plain files are used", file=sys.stderr)
        shutil.rmtree(folder_of(root), ignore_errors=True)
        write_manifest(folder_of(root), {}, sources)
        return 0 if quiet else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
