"""What is installed: one name in site-packages, compiled modules that agree with their sources, the client alone."""
from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from gatehouse import hot
from scripts import wheel
from tests.running_hub import ROOT

FOLDERS = ("kernel", "gateways", "relay", "transactions", "tracing", "spark", "client", "tests", "bench", "scripts")
ASK = """
import sys
import gatehouse.cli.main, gatehouse.serve, gatehouse.spark.options
print(sorted(set(sys.modules) & set(sys.argv[1:])))
print(gatehouse.serve.__file__)
"""


def python(code: str, *arguments: str, path: Path, cwd: Path) -> list[str]:
    """The lines that a fresh interpreter prints, which finds our packages in one folder alone."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    start = f"import sys\nsys.path.insert(0, {str(path)!r})\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", start, *arguments], cwd=cwd, env=environ,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The plain wheel of the hub and that of the client, made of copies of the sources."""
    folder = tmp_path_factory.mktemp("wheels")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    for name in listed:
        source, target = ROOT / name, folder / "src" / name
        if name.startswith(("tests/", "bench/", "docs/")) or not os.path.lexists(source) or not name:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        else:
            target.write_bytes(source.read_bytes())
    for project in (".", "client"):
        done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps",
                               "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "src" / project)],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return {file.name.partition("-")[0]: file for file in folder.glob("*.whl")}


def names_in(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as packed:
        return set(packed.namelist())


def test_a_wheel_puts_one_name_into_site_packages(built: dict[str, Path], tmp_path: Path) -> None:
    top = {name.partition("/")[0] for name in names_in(built["gatehouse"])}
    assert {name for name in top if not name.endswith(".dist-info")} == {"gatehouse", "pyspark_gatehouse"}
    with zipfile.ZipFile(built["gatehouse"]) as packed:
        packed.extractall(tmp_path / "site")
    imported, where = python(ASK, *FOLDERS, path=tmp_path / "site", cwd=tmp_path)
    assert imported == "[]"
    assert where == str(tmp_path / "site" / "gatehouse" / "serve.py")


def test_every_file_that_the_hub_reads_is_in_the_wheel(built: dict[str, Path]) -> None:
    sources = {Path(folder, name).relative_to(ROOT).as_posix()
               for folder, _, names in os.walk(ROOT / "gatehouse", followlinks=True) for name in names
               if not name.endswith(".pyc")}
    assert len(sources) > 500
    assert sources <= names_in(built["gatehouse"])


def test_the_client_is_a_distribution_of_its_own(built: dict[str, Path], tmp_path: Path) -> None:
    top = {name.partition("/")[0] for name in names_in(built["gatehouse_client"])}
    assert {name for name in top if not name.endswith(".dist-info")} == {"gatehouse_client"}
    assert "gatehouse_client/py.typed" in names_in(built["gatehouse_client"])
    code = ("import gatehouse_client as c, sys; [getattr(c, name) for name in c._MODULES]; "
            "print(c.__file__, sorted(set(sys.modules) & {'gatehouse', *sys.argv[1:]}))")
    assert python(code, *FOLDERS, path=built["gatehouse_client"], cwd=tmp_path) == [
        f"{built['gatehouse_client']}/gatehouse_client/__init__.py []"]


def tree(folder: Path) -> Path:
    (folder / "gatehouse" / "kernel").mkdir(parents=True)
    (folder / "gatehouse" / "__init__.py").write_text("")
    (folder / "gatehouse" / "kernel" / "__init__.py").write_text("")
    (folder / "gatehouse" / "kernel" / "step.py").write_text("import os\nimport gatehouse.kernel.far\nSTEP = 1\n")
    (folder / "gatehouse" / "kernel" / "far.py").write_text("from gatehouse.kernel import hot\n")
    (folder / "gatehouse" / "kernel" / "hot.py").write_text("from gatehouse.kernel.step import STEP\n")
    (folder / "gatehouse" / "kernel" / "cold.py").write_text("from gatehouse.kernel.hot import STEP\n")
    return folder


def test_what_is_compiled_is_as_true_as_all_that_it_imports(tmp_path: Path) -> None:
    """Constants and types are copied across modules: what is compiled is thrown away when one of them changes."""
    root = tree(tmp_path)
    def current() -> str:
        files = hot.sources_of(["gatehouse.kernel.hot"], root)
        assert [file.name for file in files] == ["__init__.py", "far.py", "hot.py", "step.py"]
        return hot.digest_of(files, root)

    before = current()
    (root / "gatehouse" / "kernel" / "cold.py").write_text("")
    os.utime(root / "gatehouse" / "kernel" / "hot.py", (2**31, 2**31))
    assert current() == before
    (root / "gatehouse" / "kernel" / "far.py").write_text("from gatehouse.kernel import hot\nFAR = 1\n")
    assert current() != before


def test_every_hot_module_exists() -> None:
    assert not [name for name in hot.HOT_MODULES if hot.source_of(name, ROOT) is None]


def test_every_native_module_has_its_types_and_plain_python_beside_it() -> None:
    for name in hot.NATIVE_MODULES:
        native = hot.native_source_of(name, ROOT)
        assert native is not None, name
        assert native.with_suffix(".pyi").is_file(), name
        assert not native.with_suffix(".py").is_file(), f"{name}: the plain files must not hide it"


def test_what_says_which_modules_are_compiled_and_how_compiles_them_anew(monkeypatch) -> None:
    """A module that leaves the list is imported by others all the same: the modules' files alone would not tell."""
    before, read = (hot.hot_digest(ROOT), hot.native_digest(ROOT)), Path.read_bytes
    for listed in (ROOT / "gatehouse" / "hot.py", ROOT / "setup.py"):
        monkeypatch.setattr(Path, "read_bytes",
                            lambda file, listed=listed: read(file) + (b"\n" if file == listed else b""))
        assert hot.hot_digest(ROOT) != before[0]
        assert hot.native_digest(ROOT) != before[1]


@pytest.mark.parametrize("changed", ["gatehouse/serve.py", "kernel/kernel.py", "kernel/state/migrations/env.py",
                                     "gateways/http/README.md", "pyproject.toml"])
def test_a_wheel_of_other_sources_is_never_started(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = wheel.digest()
    assert before == wheel.digest()
    read = Path.read_bytes
    other = (ROOT / changed).resolve()
    monkeypatch.setattr(Path, "read_bytes", lambda file: read(file) + (b"\n" if file.resolve() == other else b""))
    assert wheel.digest() != before


def test_the_plain_files_are_tested_once_for_each_state_of_them(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr(wheel, "PASSED", ROOT / "build" / f"passed-{os.getpid()}")
    wheel.PASSED.parent.mkdir(exist_ok=True)
    try:
        assert wheel.main(["plain", "-c", "raise SystemExit(3)"]) == 3
        assert not wheel.PASSED.exists()
        code = "import gatehouse.kernel.message as m; assert m.__file__.endswith('.py')"
        assert wheel.main(["plain", "-c", code]) == 0
        assert wheel.main(["plain", "-c", "raise SystemExit(3)"]) == 0, "it is not run again"
        assert "have passed as they are" in capsys.readouterr().out
        wheel.PASSED.write_text("0123456789abcdef\n")
        assert wheel.main(["plain", "-c", "raise SystemExit(3)"]) == 3
    finally:
        wheel.PASSED.unlink(missing_ok=True)


def test_without_a_compiler_one_line_and_the_plain_files(monkeypatch, capsys) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert wheel.main(["build"]) == 0
    assert capsys.readouterr() == ("", "no C compiler (or no Python.h): the plain Python files are used, which is "
                                       "slower\n")
    assert wheel.environment(None)["PYTHONPATH"] == str(ROOT)


def test_a_build_that_fails_says_so_and_leaves_the_plain_files(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr(wheel, "BUILD", tmp_path)
    monkeypatch.setattr(wheel, "WHEELS", tmp_path / "wheels")
    monkeypatch.setattr(wheel, "PIP", ("false",))
    monkeypatch.setattr(wheel, "can_compile", lambda: True)
    assert wheel.build() is None
    assert "the wheel could not be built" in capsys.readouterr().err
    assert not (tmp_path / "wheels").exists() or not list((tmp_path / "wheels").iterdir())


def test_the_tests_run_on_the_wheel_of_these_sources_or_on_the_sources() -> None:
    """Where they run on a wheel its hot modules are compiled, and it is this tree's."""
    import gatehouse.kernel.message as module

    if Path(module.__file__).is_relative_to(wheel.WHEELS):
        assert Path(module.__file__).relative_to(wheel.WHEELS).parts[0] == wheel.digest()
        assert module.__file__.endswith(EXTENSION_SUFFIXES[0])
        folder = Path(hot.__file__).parents[1]
        for name in (*hot.HOT_MODULES, *hot.NATIVE_MODULES):
            assert folder.joinpath(*name.split(".")).with_suffix(EXTENSION_SUFFIXES[0]).exists(), name
    else:
        assert Path(module.__file__) == ROOT / "gatehouse" / "kernel" / "message.py"
