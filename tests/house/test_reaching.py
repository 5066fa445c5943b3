"""Cursors, prefetchers and groups are changed by their own methods alone, whoever works with them."""
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.parsed import tree_of

ROOT = Path(__file__).parents[2]
GROUPS = sorted((ROOT / "kernel" / "groups").glob("*.py"))
OTHERS = sorted(file for folder in ("kernel", "transactions", "gateways", "gatehouse", "relay", "examples")
                for file in (ROOT / folder).rglob("*.py")
                if not file.is_relative_to(ROOT / "gatehouse" / "kernel") and file not in GROUPS)
NAMES = {"cursor", "prefetcher", "group", "lease"}
"""What variables and attributes are called that hold one."""

NAMED_TUPLES = {"_replace", "_fields", "_asdict", "_make"}       # public, whatever they are called


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`, without underscores in front."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_")


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def defined_in(tree: ast.AST) -> set[str]:
    """Attributes and methods that classes of this file have."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)} \
        | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def private_accesses(tree: ast.AST) -> Iterator[ast.Attribute]:
    """`x._y`, where no class of this file has a `_y`."""
    own = defined_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__") \
                and not is_self(node.value) and node.attr not in own | NAMED_TUPLES:
            yield node


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """`x.y = …`, `x.y += …`, `del x.y`, where `x` is not `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and not is_self(node.value):
            yield node


def at(file: Path, node: ast.AST) -> str:
    return f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


@pytest.mark.parametrize("file", GROUPS, ids=lambda file: file.name)
def test_in_groups_nobody_reaches_into_another(file: Path) -> None:
    tree = tree_of(file)
    assert not [at(file, node) for node in (*private_accesses(tree), *assigned(tree))]


def test_nobody_else_reaches_into_a_cursor_a_prefetcher_or_a_group() -> None:
    reached = []
    for file in OTHERS:
        tree = tree_of(file)
        nodes = [node for node in (*private_accesses(tree), *assigned(tree)) if last_name(node.value) in NAMES]
        reached += [at(file, node) for node in nodes]
    assert not reached


@pytest.mark.parametrize("line", ["cursor._out = {}", "prefetcher.cursor._again.pop()", "self._group.settings = None",
                                  "lease.left -= 1", "del self.cursor.next"])
def test_the_test_sees_it(line: str) -> None:
    tree = ast.parse(line)
    assert any(last_name(node.value) in NAMES for node in (*private_accesses(tree), *assigned(tree)))
