"""Examples that Hypothesis makes are those of the run before, whatever else was loaded in this process by then."""
from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def test_examples_are_the_same_whatever_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[int]] = []

    @given(st.lists(st.integers()))
    def look(numbers: list[int]) -> None:
        found.append(numbers)

    look()
    before, found[:] = found.copy(), []
    module = ModuleType("loaded_later")
    module.__file__ = str(tmp_path / "loaded_later.py")
    Path(module.__file__).write_text("A, B, C = 60_007, 123_456_789, 1 << 20\n")
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    look()
    assert found == before or not settings.default.derandomize, "others are made where that is asked for"
