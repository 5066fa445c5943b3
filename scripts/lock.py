"""Writes requirements/*.lock: everything that is installed, direct or not, with the hashes of its files. `make lock`

    run        what the hub needs, and what builds it
    compile    beyond it: mypyc, Cython
    test       beyond it: the tests, Spark and OpenTelemetry among them
    interop    beyond run and test: PostgreSQL
    spark      beyond run
    demo       beyond run and spark

`pyproject.toml` says what is needed directly; one resolution for all sets and all Pythons that it allows gives every
package one version. The resolver is uv, in a temporary environment of its own. Nothing here names a registry.
"""
from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "requirements"
RESOLVER: Final = "uv==0.13.9"
OLDEST_PYTHON: Final = "3.11"

SETS: Final = {
    "run": ((), ()),
    "compile": (("compile",), ("run",)),
    "test": (("dev", "spark", "otlp"), ("run",)),
    "interop": (("dev", "spark", "otlp", "postgresql"), ("run", "test")),
    "spark": (("spark",), ("run",)),
    "demo": (("demo", "spark"), ("run", "spark")),
}
"""By name: the extras in it, and the sets that are installed before."""


def blocks_of(text: str) -> dict[str, str]:
    """Each package's lines, by the first: its name, its version, and for which Pythons where that matters."""
    return {block.partition("\n")[0]: block for block in re.split(r"\n(?=\S)", text.strip())}


def resolve(uv: Path, extras: tuple[str, ...], build: Path, output: Path, constraint: Path | None) -> dict[str, str]:
    """The lock of one set, as blocks."""
    command = [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST_PYTHON, "--no-header",
               "--no-annotate", "--generate-hashes", "--no-emit-package", "gatehouse-client", "pyproject.toml",
               "client/pyproject.toml", "--extra", "handled", str(build), "-o", str(output)]
    command += [part for extra in extras for part in ("--extra", extra)]
    command += ["--constraint", str(constraint)] if constraint is not None else []
    subprocess.run(command, cwd=ROOT, check=True)
    return blocks_of(output.read_text())


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    with TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "tools"], check=True)
        subprocess.run([folder / "tools/bin/pip", "--quiet", "install", RESOLVER], check=True)
        uv, build, everything = folder / "tools/bin/uv", folder / "build.in", folder / "all.lock"
        build.write_text("\n".join(project["build-system"]["requires"]) + "\n")
        resolve(uv, tuple(project["project"]["optional-dependencies"]), build, everything, None)
        FOLDER.mkdir(exist_ok=True)
        for set_, (extras, before) in SETS.items():
            blocks = resolve(uv, extras, build, folder / f"{set_}.lock", everything)
            earlier = {package for other in before for package in resolve(
                uv, SETS[other][0], build, folder / f"{other}.lock", everything)}
            lines = [block for package, block in sorted(blocks.items()) if package not in earlier]
            (FOLDER / f"{set_}.lock").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
