"""The page that says where things are done names what is there."""
from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "code-map.md"
CELLS = [cell for line in PAGE.read_text().splitlines() if line.startswith("| ") for cell in line.split(" | ")]


@cache
def names_in(file: Path) -> frozenset[str]:
    """What a file defines: functions, classes, constants, and CLASS.METHOD."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names.update(f"{node.name}.{item.name}" for item in node.body
                         if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(names)


def places():
    """(file, name or None) for all that the page names: a name belongs to the file named before it in its cell."""
    for cell in CELLS:
        file = None
        for quoted in re.findall(r"`([^`]+)`", cell):
            if "/" in quoted:
                file = quoted
                yield file, None
            else:
                yield file, quoted


@pytest.mark.parametrize(("file", "name"), sorted(set(places()), key=str))
def test_what_the_page_names_is_there(file, name):
    assert file is not None, "a name has its file before it"
    assert (ROOT / file).exists()
    assert name is None or name in names_in(ROOT / file)


def test_the_page_names_many():
    assert len(set(places())) > 200
