"""Documents about groups and receipt handles: whatever JSON comes, it is read or refused, never a fault."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.declaring import shaped
from gatehouse.gateways.http.leases import (
    Extension,
    GroupInput,
    Handles,
    Release,
    RetryInput,
    describe_settings,
    handles_in,
    ms_of,
    read_settings,
)
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import InvalidGroup

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                                       max_size=3), max_leaves=6)
RETRIES = JSON | st.dictionaries(st.sampled_from([*RetryInput.__struct_fields__, "other"]), JSON, max_size=3)
GROUPS = st.dictionaries(st.sampled_from([*GroupInput.__struct_fields__, "other"]), JSON, max_size=4).flatmap(
    lambda document: RETRIES.map(lambda retry: {**document, "retry": retry}))
FIELDS = {*Handles.__struct_fields__, *Extension.__struct_fields__, *Release.__struct_fields__, "other"}


@given(GROUPS)
def test_settings_are_read_or_refused(document):
    try:
        settings = read_settings(shaped(document, GroupInput))
        settings.check()
    except (Refusal, InvalidGroup):
        return
    described = describe_settings(settings)
    described["retry"]["delays_ms"] = list(settings.retry.delays_ms)
    assert read_settings(shaped(described, GroupInput)) == settings
    for attempt in (1, 2, 100, 65_535):
        assert settings.retry.delay_ms(attempt, 0.999) >= 0


@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), JSON, max_size=4))
def test_handles_and_times_are_read_or_refused(document):
    for shape in (Handles, Extension, Release):
        try:
            handles = shaped(document, shape)
            assert 1 <= len(handles_in(handles, 2)) <= 2
        except Refusal as refusal:
            assert refusal.code == "invalid_body"


def test_a_number_that_json_cannot_hold_is_refused():
    with pytest.raises(Refusal):
        shaped({"receipt_handles": ["1"], "delay": float("inf")}, Release)


def test_times_are_in_ms():
    assert ms_of(shaped({"receipt_handles": ["1"], "delay": 0.0004}, Release).delay) == 0
    assert ms_of(shaped({"receipt_handles": ["1"], "invisible": 1.5}, Extension).invisible) == 1_500
    assert ms_of(shaped({"receipt_handles": ["1"], "invisible": None}, Extension).invisible) is None
