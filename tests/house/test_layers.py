"""A folder imports only from those below it, and pure files ask nothing of the world."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.house.parsed import tree_of

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("gatehouse", "gateways", "kernel", "pyspark_gatehouse", "relay", "spark", "tracing", "transactions")
SPARK_PACKAGES = ("pyspark_gatehouse", "spark")
CLIENT = ROOT / "client" / "gatehouse_client"
DEMO = ("gatehouse", "demo")
OTLP = ("gatehouse", "otlp.py")
WORLD = {"asyncio", "os", "random", "socket", "ssl", "threading", "time"}
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]
PURE_PATTERNS = next(contract["source_modules"] for contract in CONTRACTS if contract["name"].startswith("Pure files"))
PURE = sorted(file for pattern in PURE_PATTERNS for file in ROOT.glob(pattern.replace(".", "/") + ".py"))


def imported(file: Path) -> set[str]:
    """Top-level names of what a file imports."""
    return names_in(tree_of(file))


def imported_for_checkers(file: Path) -> set[str]:
    """The same, of what it imports for type checkers and the compiler only: it does without when it runs."""
    blocks = [node for node in tree_of(file).body
              if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]
    return set().union(*(names_in(block) for block in blocks))


def names_in(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_every_pure_file_that_is_named_exists():
    for pattern in PURE_PATTERNS:
        assert any(ROOT.glob(pattern.replace(".", "/") + ".py")), pattern


def test_the_contracts_hold():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", PURE, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_pure_file_asks_nothing_of_the_world(file):
    assert imported(file).isdisjoint(WORLD)


def test_a_file_that_says_that_it_is_pure_asks_nothing_of_the_world():
    """Most of these are in no contract: what is imported by way of others is theirs."""
    says = [file for file in (*SOURCES, *CLIENT.glob("*.py"))
            if re.search(r"\bPure\b(?! but)", ast.get_docstring(tree_of(file)) or "")]
    assert len(says) > 100
    assert not [str(file.relative_to(ROOT)) for file in says if not imported(file).isdisjoint(WORLD | {"secrets"})]


def test_every_library_that_is_used_is_declared():
    hub = modules_of(PYPROJECT["project"]["dependencies"])
    extras = {name: modules_of(lines) for name, lines in PYPROJECT["project"]["optional-dependencies"].items()}
    ours = {"gatehouse", "gatehouse_client", "pyspark_gatehouse"}
    allowed = hub | ours | sys.stdlib_module_names | {"multidict", "yarl"}    # the last two are aiohttp's
    for file in SOURCES:
        folders = file.relative_to(ROOT).parts
        used = [extras["spark"]] if folders[0] in SPARK_PACKAGES else []
        used += [extras["demo"], extras["spark"]] if folders[:2] == DEMO else []
        used += [extras["otlp"]] if folders == OTLP else []
        used.append(imported_for_checkers(file) & {"mypy_extensions"})              # comes with the compiler
        assert imported(file) <= allowed.union(*used), file.relative_to(ROOT)


def test_the_client_declares_what_it_uses():
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    declared = modules_of(project["dependencies"] + project["optional-dependencies"]["handled"])
    assert len(list(CLIENT.glob("*.py"))) > 10
    for file in CLIENT.glob("*.py"):
        assert imported(file) <= declared | {"gatehouse_client"} | sys.stdlib_module_names, file.relative_to(ROOT)


def test_nothing_of_ours_is_imported_by_a_name_that_is_not_installed():
    folders = set(PACKAGES) - {"gatehouse", "pyspark_gatehouse"}
    for file in [*SOURCES, *CLIENT.glob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        assert not imported(file) & folders, file.relative_to(ROOT)


def modules_of(requirements: list[str]) -> set[str]:
    declared = {Requirement(line).name.lower().replace("-", "_") for line in requirements}
    names = {"kafka_python": "kafka", "paho_mqtt": "paho", "argon2_cffi": "argon2", "pyjwt": "jwt",
             "opentelemetry_sdk": "opentelemetry"}
    return {names.get(name, name) for name in declared} | ({"py4j"} if "pyspark" in declared else set())
