"""Loads the compiled form of hot modules where there is a true one, and the plain file everywhere else.

`make compile` builds the modules of `gatehouse/hot.py` into `build/compiled/` and writes `manifest.json` beside them:

    python    what they were built for: the tag that extension modules of this interpreter carry
    modules   module name -> file, relative to the folder
    sources   source file, relative to the root -> SHA-256, of every module and all that they import of ours

They are one unit, since compiled modules call each other directly: when one source differs from what was compiled, none
is loaded and one line on standard error says so. An extension that lies beside its source was not built by that
command and is never loaded. `GATEHOUSE_PLAIN=1` asks for the plain files.

Installed by `kernel/__init__.py`, which every way of import passes: command line, pytest, a spawned process.
"""
from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = ("kernel", "gateways", "transactions")
PLAIN_VARIABLE: Final = "GATEHOUSE_PLAIN"
REMEDY: Final = "the plain files are used, which is slower: run `make compile`"


def folder_of(root: Path) -> Path:
    """Where the compiled modules of a source tree lie."""
    return root / "build" / "compiled"


def digest(file: Path) -> str:
    """SHA-256 of a file in hex; empty where it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def read_manifest(root: Path) -> dict[str, Any] | None:
    """What `make compile` wrote; None where there is nothing or nothing that can be understood."""
    try:
        manifest = json.loads((folder_of(root) / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and isinstance(manifest.get("sources"), dict) else None


# decision 58: only while the hashes are true
def staleness(manifest: dict[str, Any], root: Path) -> str:
    """Why what was compiled is not true any more; empty where it is."""
    if manifest.get("python") != EXTENSION_SUFFIXES[0]:
        return "the hot modules were compiled for another Python"
    for name, recorded in manifest["sources"].items():
        if digest(root / name) != recorded:
            return f"{name} has changed since it was compiled"
    return ""


class CompiledFinder(MetaPathFinder):
    """Finds the modules of `files` in compiled form, and keeps other extensions of our packages from being found."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is not None:
            return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))
        package, _, name = fullname.rpartition(".")
        if path is None or package.partition(".")[0] not in PACKAGES:
            return None
        for folder in path:
            extension = Path(folder, name + EXTENSION_SUFFIXES[0])
            source = Path(folder, name + ".py")
            if extension.exists() and source.exists():
                _say(f"{extension.name} beside its source was not built by `make compile`: the plain file is used")
                return spec_from_file_location(fullname, source)
        return None


def _say(line: str) -> None:
    print(f"gatehouse: {line}", file=sys.stderr)


def install() -> None:
    """Put the finder in front of all others; once per process."""
    if any(isinstance(finder, CompiledFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, CompiledFinder(_true_files(Path(__file__).parent.parent)))


def _true_files(root: Path) -> dict[str, Path]:
    """The compiled modules that may be loaded."""
    if os.environ.get(PLAIN_VARIABLE, "0") not in ("", "0"):
        return {}
    manifest = read_manifest(root)
    if manifest is None or not manifest.get("modules"):
        return {}
    reason = staleness(manifest, root)
    if reason:
        _say(f"{reason}; {REMEDY}")
        return {}
    return {name: folder_of(root) / file for name, file in manifest["modules"].items()}
