"""Runs tests on the native modules under AddressSanitizer: a read or write beyond a buffer, or of what was given back,
ends the run with where it was.

    python scripts/sanitize.py pytest ARGUMENTS                  build the native modules with the sanitizer, and run
                                                                 pytest on them
    python scripts/sanitize.py --seconds 3600 pytest ARGUMENTS   again and again, each time with other examples

What mypyc compiles is plain Python here, and Python's own allocator is the system's, so that each object has its own
bounds. Needs gcc with libasan, and Cython (requirements/compile.lock).
"""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "sanitized"
FLAGS: Final = "-fsanitize=address -fno-omit-frame-pointer -g -O1"


def library() -> str:
    """The sanitizer's own, which has to be there before the interpreter begins."""
    compiler = os.environ.get("CC", "gcc")
    return subprocess.run([compiler, "-print-file-name=libasan.so"], check=True, capture_output=True,
                          text=True).stdout.strip()


def build() -> None:
    """Our packages as they are, with the native modules beside them."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for package in ("gatehouse", "pyspark_gatehouse"):
        shutil.copytree(ROOT / package, FOLDER / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(FOLDER),
                    "--build-temp", str(FOLDER / "temp")], cwd=ROOT, check=True,
                   env={**os.environ, "GATEHOUSE_COMPILE": "native", "CFLAGS": FLAGS, "LDFLAGS": FLAGS})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    build()
    environ = {**os.environ, "LD_PRELOAD": library(), "PYTHONMALLOC": "malloc", "PYTHONSAFEPATH": "1",
               "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "PYTHONPATH": f"{FOLDER}{os.pathsep}{ROOT}"}
    if options.seconds:
        environ["GATEHOUSE_EXAMPLES"] = "random"
    end_s, runs = time.monotonic() + options.seconds, 0
    while not runs or time.monotonic() < end_s:
        code = subprocess.run([sys.executable, "-m", options.module, *options.arguments], cwd=ROOT, env=environ,
                              check=False).returncode
        if code:
            return code
        runs += 1
    print(f"{runs} runs under AddressSanitizer, all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
