"""What the tests of the house read of a file: each is parsed once for all of them, as they run in one process."""
from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(file: Path) -> ast.Module:
    """A Python file, for reading only."""
    return ast.parse(file.read_text())
