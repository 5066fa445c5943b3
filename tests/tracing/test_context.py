"""Trace contexts as messages bring them."""
from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.records.batch import encode_headers
from gatehouse.tracing.context import in_a_line, read, trace_id_in, traceparent_in

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CONTEXT: Final = f"00-{TRACE}-b7ad6b7169203331-01".encode()


@pytest.mark.parametrize("said", [
    encode_headers([(b"unit", b"C"), (b"traceparent", CONTEXT), (b"a", b"1")]),
    b"\x00\x0btraceparent\x00\x37" + CONTEXT,                  # a user property of MQTT
    b"\x0btraceparentS\x00\x00\x00\x37" + CONTEXT,             # a field of AMQP
    b"traceparent:" + CONTEXT])
def test_it_is_found_however_a_door_encodes_it(said: bytes) -> None:
    assert traceparent_in(said) == CONTEXT
    assert trace_id_in(b"before" + said + b"behind") == TRACE


@pytest.mark.parametrize("said", [
    b"", CONTEXT, b"traceparent:" + CONTEXT[:-1], b"traceparent:" + CONTEXT.upper(),
    b"traceparent" + b" " * 20 + CONTEXT, b"traceparent:00-" + b"0" * 32 + b"-b7ad6b7169203331-01"])
def test_what_is_none_is_none(said: bytes) -> None:
    assert (traceparent_in(said), trace_id_in(said)) == (b"", "")


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_context_or_nothing(said: bytes) -> None:
    found = traceparent_in(b"traceparent" + said)
    assert found == b"" or read(found) is not None


def test_a_line_ends_with_it_or_says_nothing() -> None:
    assert in_a_line(TRACE) == (f" (trace {TRACE})", {"trace_id": TRACE})
    assert in_a_line("") == ("", {})
