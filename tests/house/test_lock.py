"""Whatever is installed is in a lock with its version and hashes, and the locks are what pyproject asks for."""
from __future__ import annotations

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
OURS = {"gatehouse", "gatehouse-client", "pip"}             # itself, and what comes with Python
BEFORE = {"run": [], "compile": ["run"], "test": ["run"], "interop": ["run", "test"], "spark": ["run"],
          "demo": ["run", "spark"]}
EXTRAS = {"run": [], "compile": ["compile"], "test": ["dev", "spark", "otlp"],
          "interop": ["dev", "spark", "otlp", "postgresql"],
          "spark": ["spark"], "demo": ["demo", "spark"]}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: Path) -> set[tuple[str, str]]:
    """Name and version; two of one name are for different Pythons."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", lock.read_text(), re.M)
    return {(normal(name), version) for name, version in found}


def test_everything_that_is_installed_is_locked() -> None:
    known = {one for lock in LOCKS for one in locked(lock)}
    installed = {(normal(one.metadata["Name"]), one.version) for one in distributions()}
    foreign = {(name, version) for name, version in installed - known if name not in OURS}
    assert not foreign, f"not in requirements/*.lock: {foreign}; make lock writes them"


def test_no_package_has_two_versions_for_one_python() -> None:
    versions: dict[str, set[str]] = {}
    for head in {line for lock in LOCKS for line in re.findall(r"^(\S+==.*) \\$", lock.read_text(), re.M)}:
        versions.setdefault(normal(head.partition("==")[0]), set()).add(head)
    assert not {name: heads for name, heads in versions.items()
                if len(heads) > 1 and not all("python" in head for head in heads)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_line_is_a_version_and_its_hashes(lock: Path) -> None:
    blocks = re.split(r"\n(?=\S)", lock.read_text().strip())
    for block in blocks:
        head, *hashes = block.split(" \\\n")
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[^ ;]+( ; [^\\]+)?", head), head
        assert hashes and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", one) for one in hashes), head


@pytest.mark.parametrize("name", sorted(EXTRAS))
def test_a_set_is_what_pyproject_asks_for(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    wanted += client["dependencies"] + client["optional-dependencies"]["handled"]
    for extra in EXTRAS[name]:
        wanted += project["project"]["optional-dependencies"][extra]
    known = {one for part in [*BEFORE[name], name] for one in locked(ROOT / "requirements" / f"{part}.lock")}
    for line in wanted:
        requirement = Requirement(line)
        assert requirement.specifier, f"{line} has no version"
        assert normal(requirement.name) in OURS or any(
            name == normal(requirement.name) and requirement.specifier.contains(version, prereleases=True)
            for name, version in known), f"{line} is not in the locks: make lock"


def test_there_is_a_lock_for_each_set() -> None:
    assert {lock.stem for lock in LOCKS} == set(EXTRAS) == set(BEFORE)
