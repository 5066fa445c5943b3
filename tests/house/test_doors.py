"""What differs from door to door is declared by the door: nobody else asks which one it is."""
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.parsed import tree_of

ROOT = Path(__file__).parents[2]
DOORS = ("amqp", "http", "kafka", "mqtt")
SHARED = sorted(file for folder in ("gateways", "gatehouse", "kernel", "transactions", "spark", "relay", "tracing")
                for file in (ROOT / folder).rglob("*.py")
                if not any(file.is_relative_to(ROOT / "gateways" / door) for door in DOORS))
SUBJECTS = {"door", "door_name", "name", "spec", "protocol"}
"""What variables and attributes are called that hold a door, or its name."""


def compared(tree: ast.AST) -> Iterator[ast.expr | ast.pattern]:
    """Comparisons of a door with the name of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            terms = [term for side in (node.left, *node.comparators) for term in ast.walk(side)]
            names = {term.value for term in terms if isinstance(term, ast.Constant) and isinstance(term.value, str)}
            subjects = {term.attr if isinstance(term, ast.Attribute) else term.id for term in terms
                        if isinstance(term, ast.Attribute | ast.Name)}
            if subjects & SUBJECTS and any(name.startswith(DOORS) for name in names):
                yield node
        elif isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant) \
                and str(node.value.value).startswith(DOORS):
            yield node


@pytest.mark.parametrize("file", SHARED, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_shared_file_asks_which_door_it_is(file: Path) -> None:  # decision 128
    assert not [f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
                for node in compared(tree_of(file))]


@pytest.mark.parametrize("source", [
    'if door == "amqp": pass', 'x = spec.name != "mqtt5"', 'x = door in ("http", "kafka")',
    'match door:\n    case "amqp": pass'])
def test_such_questions_are_found(source: str) -> None:
    assert list(compared(ast.parse(source)))
