"""One thing has one word: those that were given up do not come back."""
from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.parsed import tree_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("kernel", "gateways", "transactions", "gatehouse", "relay", "tracing", "spark", "client", "examples",
           "scripts", "bench", "docs")
SEARCHED = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*")
                  if file.suffix in (".py", ".js", ".md", ".toml") and "migrations" not in file.parts)
GIVEN_UP = {
    r"queue_ids?|default_queues": "partition_id, default_partitions",
    r"[Ll]ight[ _][Qq]ueues?|LightQueues?": "queue",
    r"[Ss]uppl(?:y|ies)": "prefetcher",
    r"[Bb]urial|[Bb]urying|[Aa]geing": "dead_lettering, expiry",
    r"[Ss]urveyor|[Oo]wed\.wanted": "scanner, Holder.needed",
    r"shard_key": "partition_key",
    r"undress(?:ing)?|dressing": "from_door, to_door",
    r"[Ss]eats?|[Oo]ccupants?": "registration, session",
}


@pytest.mark.parametrize("pattern", GIVEN_UP)
def test_a_word_that_was_given_up_stays_away(pattern: str) -> None:
    word = re.compile(rf"(?<![A-Za-z0-9_])(?:{pattern})(?![A-Za-z0-9_])")
    found = [f"{file.relative_to(ROOT)}: {line.strip()[:80]}" for file in SEARCHED
             for line in file.read_text().splitlines() if word.search(line)]
    assert not found, f"say {GIVEN_UP[pattern]}: {found[:10]}"


def test_the_search_finds_something() -> None:
    assert len(SEARCHED) > 400
    assert any("prefetcher" in file.read_text() for file in SEARCHED)


def test_variables_say_what_they_hold() -> None:
    empty = {"found", "one", "ones", "told", "known"}
    product = [file for file in SEARCHED if file.suffix == ".py" and "bench" not in file.parts]
    assert len(product) > 400
    assert not [f"{file.relative_to(ROOT)}:{node.lineno} {name}" for file in product
                for node in ast.walk(tree_of(file))
                for name in [node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                             else node.arg if isinstance(node, ast.arg) else ""] if name in empty]


NEEDS_ANOTHER = re.compile(r"The same(,|\.| (for|of|by|with|to|where|in|as one|at|on)\b)|See above"
                           r"|Of (their|its|those|one|an?)\b|With its\b|Also\b")
"""How a docstring begins that says nothing without the one before it: an editor shows one alone."""


def test_a_docstring_stands_alone() -> None:
    folders = ("kernel", "gateways", "transactions", "gatehouse", "spark", "client", "relay", "tracing")
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    assert len(files) > 500
    assert not [f"{file.relative_to(ROOT)}:{node.lineno} {node.name}" for file in files
                for node in ast.walk(tree_of(file))
                if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))
                and NEEDS_ANOTHER.match(ast.get_docstring(node) or "")]
    assert all(NEEDS_ANOTHER.match(text) for text in ("The same, from 0 on.", "The same for those.", "Of their pages.",
                                                      "Of one hub.", "See above."))


@pytest.mark.parametrize("layer", ["kernel", "gateways", "transactions", "relay", "gatehouse", "tracing", "spark",
                                   "client"])
def test_a_class_name_means_one_class_in_its_layer(layer: str) -> None:
    names = [node.name for file in SEARCHED if file.suffix == ".py" and file.relative_to(ROOT).parts[0] == layer
             for node in ast.walk(tree_of(file)) if isinstance(node, ast.ClassDef)]
    assert names
    assert not {name for name in names if names.count(name) > 1}


def test_a_file_name_means_one_file_in_the_kernel() -> None:
    """The doors have the same parts, and the same names for them: a codec, a session, a mapping."""
    names = [file.name for file in (ROOT / "kernel").rglob("*.py") if file.name != "__init__.py"]
    assert len(names) > 130
    assert not {name for name in names if names.count(name) > 1}


def test_the_product_asks_no_door_for_its_name() -> None:
    """What differs from door to door is in its `GatewaySpec`, and in the folder of the door."""
    shared = [file for file in SEARCHED if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in
              ("kernel", "gateways", "transactions", "gatehouse", "relay", "tracing")]
    asks = re.compile(r"""\bdoor(?:_name)? (?:==|!=|in \() ?["']""")
    assert not [str(file) for file in shared if asks.search(file.read_text())]
