"""The cursor: one written form, and garbage is told apart."""
from __future__ import annotations

import pytest

from gateways.http.cursor import MAX_CURSOR_CHARS, MAX_QUEUES, Cursor, decode_cursor, encode_cursor

UUID = bytes(range(16))
CURSOR = Cursor(UUID, None, 1, {0: 17, 1: 0, 2: 1 << 40})


def test_round_trip() -> None:
    for cursor in (CURSOR, Cursor(UUID, 3, 0, {3: 5}), Cursor(UUID, 0, 0, {0: 0}), Cursor(UUID, None, 0, {})):
        assert decode_cursor(encode_cursor(cursor)) == cursor


def test_is_url_safe() -> None:
    text = encode_cursor(CURSOR)
    assert text.replace("-", "").replace("_", "").isalnum()


def test_the_widest_topic_fits() -> None:
    wide = Cursor(UUID, None, 0, {queue: (1 << 35) - 1 for queue in range(MAX_QUEUES)})
    assert len(encode_cursor(wide)) <= MAX_CURSOR_CHARS
    assert decode_cursor(encode_cursor(wide)) == wide


@pytest.mark.parametrize("text", ["", "a", "AAAA", "earliest", "é", "A" * 7000, "=" * 40, "AQ==", " " + encode_cursor(CURSOR),
                                  encode_cursor(CURSOR) + "=", encode_cursor(CURSOR)[:-1], encode_cursor(CURSOR).lower()])
def test_garbage(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_cursor(text)
