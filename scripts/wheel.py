"""The compiled wheel of these very sources: builds it, and runs Python on it.

    python scripts/wheel.py build                build it, unless that has been done; 0 also where nothing can compile
    python scripts/wheel.py python ARGUMENTS     build it, and run Python with what is in it
    python scripts/wheel.py plain ARGUMENTS      run Python on the plain files, unless it has passed before, on these
                                                 hot modules and all that they import (tests/plain.passed)
    python scripts/wheel.py serve CONFIG         start the hub from it where it is there, else from the plain files, and
                                                 build it beside the hub for the next start

The repository itself runs plain. Compiled code exists in wheels alone (setup.py): each is unpacked in
`build/wheels/DIGEST/`, by the digest of all that it is made of, so what runs is never older than the sources. Building
takes a minute or two where a hot module has changed, else some seconds. decision 58
"""
from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from gatehouse.hot import digest_of, hot_digest

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build"
WHEELS: Final = BUILD / "wheels"
LOG: Final = BUILD / "wheel.log"
PACKAGES: Final = ("gatehouse", "pyspark_gatehouse")
PASSED: Final = ROOT / "tests" / "plain.passed"
KEPT: Final = 4
"""Unpacked wheels that stay: a hub may still run from an older one."""
BUILD_TIMEOUT_S: Final = 1800
"""For what hangs: mypyc and the C compiler take some three minutes of processor time."""
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def digest() -> str:
    """What a wheel would be made of, and for which Python."""
    files = sorted([ROOT / "setup.py", ROOT / "pyproject.toml", *_package_files()])
    return digest_of(files, ROOT) + EXTENSION_SUFFIXES[0].removesuffix(".so")


def _package_files() -> Iterator[Path]:
    for package in PACKAGES:
        for folder, folders, files in os.walk(ROOT / package, followlinks=True):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield from (Path(folder, name) for name in files if not name.endswith((".pyc", ".so")))


def can_compile() -> bool:
    """Whether the C compiler that extension modules are built with is there, and Python's headers."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(command) is not None and Path(sysconfig.get_paths()["include"], "Python.h").exists()


@contextmanager
def only_one() -> Iterator[None]:
    """One build at a time: `make test` may come while a hub's own build runs."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build() -> Path | None:
    """The folder of the wheel, built if need be; None where it cannot be built, which is said on standard error."""
    if not can_compile():
        print("no C compiler (or no Python.h): the plain Python files are used, which is slower", file=sys.stderr)
        return None
    with only_one():
        folder = WHEELS / digest()
        if folder.is_dir():
            return folder
        try:
            _build(folder)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"the wheel could not be built ({error}), see {LOG.relative_to(ROOT)}: the plain Python files are "
                  "used, which is slower", file=sys.stderr)
            return None
        return folder


def _build(folder: Path) -> None:
    with LOG.open("wb") as log, TemporaryDirectory(dir=BUILD) as place:
        def run(*command: str, **environ: str) -> None:
            subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=True,
                           timeout=BUILD_TIMEOUT_S, env={**os.environ, **environ})
        if find_spec("mypyc") is None or find_spec("Cython") is None:    # only somebody with a C compiler waits for it
            run(*PIP, "install", "--require-hashes", "--no-build-isolation", "-r", "requirements/compile.lock")
        for stale in BUILD.glob("lib*"):  # setuptools would put modules that are gone into the wheel
            shutil.rmtree(stale)
        run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, ".", GATEHOUSE_COMPILE="1")
        wheel, = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(Path(place, "unpacked"))
        WHEELS.mkdir(exist_ok=True)
        Path(place, "unpacked").rename(folder)
        shutil.copy(wheel, WHEELS)
    for old in sorted((entry for entry in WHEELS.iterdir() if entry.is_dir()), key=os.path.getmtime)[:-KEPT]:
        shutil.rmtree(old)


def environment(folder: Path | None) -> dict[str, str]:
    """That of a process that finds our packages in the folder, else in the sources, and tests and benchmarks there."""
    path = [str(folder)] if folder is not None else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]), "PYTHONSAFEPATH": "1"}


def serve(config: str) -> None:
    """Become the hub. What is said first tells which form of it runs."""
    folder = WHEELS / digest()
    if not folder.is_dir():
        folder = None
        if can_compile():
            print("starting from the plain Python files; the compiled wheel is being built beside the hub, for the "
                  f"next start ({LOG.relative_to(ROOT)})", file=sys.stderr)
            _build_beside()
        else:
            print("starting from the plain Python files, which is slower: there is no C compiler", file=sys.stderr)
    os.execve(sys.executable, [sys.executable, "-m", "gatehouse.cli", "serve", "--config", config], environment(folder))


def _build_beside() -> None:
    """Build in a process that is nobody's child, with what the hub leaves of the processor. Ctrl-C ends it too."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.nice(19)
            silent = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            os.execv(sys.executable, [sys.executable, __file__, "build"])
        os._exit(0)
    os.wait()


def run_plain(command: list[str]) -> int:
    """What proves that the plain files do the same as the compiled ones is proved once for each state of them."""
    hot = hot_digest(ROOT)
    if PASSED.exists() and PASSED.read_text().split()[:1] == [hot]:
        print(f"the plain files have passed as they are: {PASSED.relative_to(ROOT)}")
        return 0
    code = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment(None), check=False).returncode
    if code == 0:
        PASSED.write_text(f"{hot}\n")
    return code


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build"]:
            build()
            return 0
        case ["python", *command]:
            os.execve(sys.executable, [sys.executable, *command], environment(build()))
        case ["plain", *command]:
            return run_plain(command)
        case ["serve", config]:
            serve(config)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
