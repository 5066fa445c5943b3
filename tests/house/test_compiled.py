"""A compiled module is loaded only while it is true to its source, whichever way it is imported."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from gatehouse import compile as builder
from kernel import compiled

ROOT = Path(__file__).parents[2]
WHERE = "import kernel.hot_sum; print(kernel.hot_sum.__file__)"
ASK = "from kernel.hot_sum import total; print(total(2))"
SPAWN = """
import multiprocessing

def where(_):
    import kernel.hot_sum
    return kernel.hot_sum.__file__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(where, [0])[0])
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A small source tree with one compiled module that takes a constant from another."""
    root = tmp_path_factory.mktemp("tree")
    (root / "kernel").mkdir()
    for name in ("__init__.py", "compiled.py"):
        shutil.copy(ROOT / "kernel" / name, root / "kernel" / name)
    (root / "kernel" / "step.py").write_text("from typing import Final\nSTEP: Final = 40\n")
    (root / "kernel" / "hot_sum.py").write_text(
        "from kernel.step import STEP\n\ndef total(number: int) -> int:\n    return number + STEP\n")
    assert builder.has_c_compiler(), "these tests compile: on Debian, apt-get install gcc python3-dev"
    builder.compile_modules(["kernel.hot_sum"], root, level="0")
    return root


@pytest.fixture
def tree(built, tmp_path):
    return Path(shutil.copytree(built, tmp_path / "tree"))


def python(tree: Path, code: str, **environ: str) -> tuple[str, str]:
    """Standard output and standard error of a fresh interpreter in the tree."""
    clean = {name: value for name, value in os.environ.items() if name not in ("GATEHOUSE_PLAIN", "PYTHONPATH")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, env=clean | environ, capture_output=True, text=True,
                          check=True)
    return done.stdout.strip(), done.stderr.strip()


def test_the_compiled_form_is_loaded(tree):
    where, said = python(tree, WHERE)
    assert where == str(compiled.folder_of(tree) / "kernel" / f"hot_sum{EXTENSION_SUFFIXES[0]}")
    assert said == ""
    assert python(tree, ASK) == ("42", "")


def test_what_mypy_remembers_is_left_to_the_linter(built):
    """`make test` runs both at once, on one cache of which the second to come may find it locked, and fail."""
    assert not (built / ".mypy_cache").exists()
    assert (built / "build" / "mypy_cache").is_dir()


def test_plain_files_on_request(tree):
    assert python(tree, WHERE, GATEHOUSE_PLAIN="1") == (str(tree / "kernel" / "hot_sum.py"), "")
    assert python(tree, WHERE, GATEHOUSE_PLAIN="0")[0].endswith(EXTENSION_SUFFIXES[0])


def test_a_changed_source_is_used_and_the_compiled_form_refused(tree):
    source = tree / "kernel" / "hot_sum.py"
    source.write_text(source.read_text().replace("number +", "1000 + number +"))
    answer, said = python(tree, ASK)
    assert answer == "1042"
    assert said == ("gatehouse: kernel/hot_sum.py has changed since it was compiled; the plain files are used, "
                    "which is slower: run `make compile`")


def test_a_changed_constant_of_another_module_counts(tree):
    (tree / "kernel" / "step.py").write_text("from typing import Final\nSTEP: Final = 50\n")
    answer, said = python(tree, ASK)
    assert answer == "52"
    assert said.startswith("gatehouse: kernel/step.py has changed")


def test_a_touched_source_is_still_the_same(tree):
    os.utime(tree / "kernel" / "hot_sum.py", (2**31, 2**31))
    assert python(tree, WHERE)[0].endswith(EXTENSION_SUFFIXES[0])


def test_another_python_does_not_load_it(tree):
    file = compiled.folder_of(tree) / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"python": ".cpython-27.so"}))
    where, said = python(tree, WHERE)
    assert where.endswith(".py")
    assert "compiled for another Python" in said


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"sources": 3}', b"\xff"])
def test_a_damaged_manifest_means_plain_files(tree, content):
    (compiled.folder_of(tree) / "manifest.json").write_bytes(content)
    assert python(tree, WHERE)[0].endswith(".py")


def test_an_extension_beside_its_source_is_refused(tree):
    shutil.rmtree(tree / "build")
    (tree / "kernel" / f"hot_sum{EXTENSION_SUFFIXES[0]}").write_bytes(b"no extension at all")
    where, said = python(tree, WHERE)
    assert where == str(tree / "kernel" / "hot_sum.py")
    assert "was not built by `make compile`" in said


def test_a_spawned_process_decides_the_same(tree):
    (tree / "spawn.py").write_text(SPAWN)
    run = "import runpy; runpy.run_path('spawn.py', run_name='__main__')"
    assert python(tree, run)[0].endswith(EXTENSION_SUFFIXES[0])
    with (tree / "kernel" / "hot_sum.py").open("a") as source:
        source.write("\n")
    where, said = python(tree, run)
    assert where.endswith(".py")
    assert "has changed since it was compiled" in said


def test_a_module_that_does_not_compile_changes_nothing(tree):
    (tree / "kernel" / "hot_sum.py").write_text("def total(number: int) -> int:\n    return 'text'\n")
    with pytest.raises(builder.CompileError, match=r"the compiler failed, see build/compile\.log"):
        builder.compile_modules(["kernel.hot_sum"], tree, level="0")
    assert (compiled.folder_of(tree) / "manifest.json").exists()


def test_without_a_compiler_one_line_and_the_plain_files(tree, monkeypatch, capsys):
    shutil.rmtree(tree / "build")
    monkeypatch.setenv("CC", "no-such-compiler")
    for arguments in ([], ["--quiet"]):
        assert builder.main(arguments, tree, ("kernel.hot_sum",)) == 0
        assert capsys.readouterr() == ("", "no C compiler (or no Python.h): running the plain Python files, which is "
                                           "slower\n")
    assert python(tree, WHERE)[0].endswith(".py")


def test_a_failure_is_said_once_and_tried_again_when_asked_by_name_or_changed(tree, capsys):
    good = (tree / "kernel" / "hot_sum.py").read_text()
    (tree / "kernel" / "hot_sum.py").write_text("def total(number: int) -> int:\n    return 'text'\n")
    assert builder.main(["--quiet"], tree, ("kernel.hot_sum",)) == 0
    assert capsys.readouterr().err == ("not compiled: the compiler failed, see build/compile.log; the plain files are "
                                       "used\n")
    assert python(tree, WHERE) == (str(tree / "kernel" / "hot_sum.py"), "")
    assert builder.main(["--quiet"], tree, ("kernel.hot_sum",)) == 0
    assert capsys.readouterr() == ("", "")
    assert builder.main([], tree, ("kernel.hot_sum",)) == 1
    (tree / "kernel" / "hot_sum.py").write_text(good)
    assert builder.main(["--quiet"], tree, ("kernel.hot_sum",)) == 0
    assert python(tree, ASK) == ("42", "")
    capsys.readouterr()
    assert builder.main([], tree, ("kernel.hot_sum",)) == 0
    assert capsys.readouterr().out == "the hot modules are compiled already\n"


def test_the_sources_are_the_module_and_all_it_imports_of_ours(tree):
    (tree / "kernel" / "step.py").write_text("import os\nimport kernel.far\nSTEP = 1\n")
    (tree / "kernel" / "far.py").write_text("from kernel import hot_sum\n")
    assert list(builder.sources_of(["kernel.hot_sum"], tree)) == [
        "kernel/__init__.py", "kernel/compiled.py", "kernel/far.py", "kernel/hot_sum.py", "kernel/step.py"]
