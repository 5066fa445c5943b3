"""Doors know of the kernel its port and values, and nothing behind them; the type checker's imports count too."""
from __future__ import annotations

import ast
from pathlib import Path

from tests.house.parsed import tree_of

ROOT = Path(__file__).parents[2]
KERNEL = "gatehouse.kernel"

# decision 144: what may be known on the doors' side
PORT = "api"
VALUES = {
    "addresses.address", "addresses.audience", "addresses.filters", "addresses.murmur2", "addresses.routes",
    "addresses.templates", "assigned.assigned_values", "errors", "groups.group_settings", "ids", "message",
    "ports", "records.batch", "records.compression", "records.headers", "records.validation",
    "sessions.session_values", "settings", "shedding", "state.partition_ids", "state.topics",
}
"""Modules of values, and of pure functions of them."""

NAMES = {
    "circuit_breaker": {"CircuitBreaker", "CircuitSettings", "CircuitState"},
    "groups.cursor": {"MAX_ATTEMPT"},
    "groups.dead_lettering": {"HEADER", "SEAL", "read_deaths"},
    "groups.group": {"Counts"},
    "groups.handing_out": {"Budget", "HoldLimit"},
    "groups.policy": {"ATTEMPTS", "EXPIRED", "OVERFLOW", "REJECTED"},
    "groups.sharing": {"SHARE", "parse_share"},
    "halves.halves": {"Offsets"},
    "journeys.looking": {"Journey"},
    "journeys.origins": {"Came"},
    "journeys.why": {"NOTHING_THERE", "Reason"},
    "addresses.placing": {"QUEUE_PREFIX"},
    "records.pieces": {"encode_pieces", "encode_principals"},
    "scheduling.scheduling": {"first_due"},
    "selectors.tokens": {"MAX_TEXT_CHARS"},
    "scheduling.queries": {"Page", "Scheduled"},
    "scheduling.schedule_records": {"Pending"},
    "selectors.selector": {"Selector", "parse_selector"},
    "backup.backups": {"Backup", "BackupFile", "Backups"},
    "state.catalogue": {"settle"},
    "state.state": {"MAX_METADATA_BYTES"},
    "write.committer": {"Slices"},
}
"""Values that stand in a module with more in it; and the copies of the log, which an administrator reads."""

KIT = "kit.py"
"""Builds a kernel for tests, and is no part of a door."""

OF_THE_HUB = {"slices", "sessions", "looking", "reasons", "definitions", "put_definition", "wall_of", "bulk_turn"}
"""What the HTTP door asks of `api.HubPort`: all else it asks by a guard, or by its port."""


def known_of_the_kernel(file: Path) -> set[tuple[str, str]]:
    """(module below the kernel, name) of every import of a file, wherever it stands in it."""
    names: set[tuple[str, str]] = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module and (node.module + ".").startswith(KERNEL + "."):
            inside = node.module.removeprefix(KERNEL).removeprefix(".")
            names.update((inside, alias.name) if inside else (alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update((alias.name.removeprefix(KERNEL + "."), "") for alias in node.names
                         if alias.name.startswith(KERNEL))
    return names


def is_allowed(module: str, name: str) -> bool:
    return module == PORT or module in VALUES or name in NAMES.get(module, ())


def test_doors_know_the_port_and_values_alone() -> None:
    files = [file for file in (ROOT / "gateways").rglob("*.py") if file.name != KIT]
    assert len(files) > 80
    wrong = {f"{file.relative_to(ROOT)} imports {module}: {name}" for file in files
             for module, name in known_of_the_kernel(file) if not is_allowed(module, name)}
    assert not wrong


def test_what_is_listed_is_there_and_in_use() -> None:
    used = {pair for file in (ROOT / "gateways").rglob("*.py") for pair in known_of_the_kernel(file)}
    modules = {module for module, _ in used}
    assert modules >= VALUES | set(NAMES)
    assert used >= {(module, name) for module, names in NAMES.items() for name in names}


def test_nothing_behind_the_port_is_reached() -> None:
    """No attribute of the kernel that is not its face."""
    behind = {"parts", "leasing", "scheduling", "halves", "_appending", "_committer"}
    files = [file for file in (ROOT / "gateways").rglob("*.py") if file.name != KIT]
    reached = [f"{file.relative_to(ROOT)}:{node.lineno} {node.attr}" for file in files
               for node in ast.walk(tree_of(file))
               if isinstance(node, ast.Attribute) and node.attr in behind
               and isinstance(node.value, (ast.Attribute, ast.Name))
               and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id).endswith("kernel")]
    assert not reached


def test_http_asks_the_hub_for_little_and_its_port_and_guards_for_the_rest() -> None:
    files = list((ROOT / "gateways" / "http").rglob("*.py"))
    assert len(files) > 60
    asked = {node.attr for file in files for node in ast.walk(tree_of(file))
             if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
             and node.value.attr == "kernel"}
    assert "slices" in asked, "the pattern finds them"
    assert asked <= OF_THE_HUB
