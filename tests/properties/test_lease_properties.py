"""Documents about groups and receipt handles: whatever JSON comes, it is read or refused, never a fault."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.leases import (
    RETRY,
    SETTINGS,
    describe_settings,
    read_delay_ms,
    read_handles,
    read_invisible_ms,
    read_settings,
)
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import InvalidGroup

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                                       max_size=3), max_leaves=6)
RETRIES = JSON | st.dictionaries(st.sampled_from([*RETRY, "other"]), JSON, max_size=3)
GROUPS = st.dictionaries(st.sampled_from([*SETTINGS, "other"]), JSON, max_size=4).flatmap(
    lambda document: RETRIES.map(lambda retry: {**document, "retry": retry}))


@given(GROUPS)
def test_settings_are_read_or_refused(document):
    try:
        settings = read_settings(document)
        settings.check()
    except (Refusal, InvalidGroup):
        return
    assert read_settings(describe_settings(settings) | {"retry": describe_settings(settings)["retry"] | {
        "delays_ms": list(settings.retry.delays_ms)}}) == settings
    for attempt in (1, 2, 100, 65_535):
        assert settings.retry.delay_ms(attempt, 0.999) >= 0


@given(st.dictionaries(st.sampled_from(["receipt_handles", "invisible", "delay", "other"]), JSON, max_size=4))
def test_handles_and_times_are_read_or_refused(document):
    for read in (lambda: read_handles(document, 2, "invisible", "delay"), lambda: read_invisible_ms(document),
                 lambda: read_delay_ms(document)):
        try:
            read()
        except Refusal as refusal:
            assert refusal.code == "invalid_body"


def test_a_number_that_json_cannot_hold_is_refused():
    with pytest.raises(Refusal):
        read_delay_ms({"delay": float("inf")})
