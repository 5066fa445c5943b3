"""The cursor: one written form, and garbage is told apart."""
from __future__ import annotations

import pytest

from gatehouse.gateways.http.cursor import MAX_CURSOR_CHARS, MAX_PARTITIONS, Cursor, decode_cursor, encode_cursor

UUID = bytes(range(16))
CURSOR = Cursor(UUID, None, 1, {0: 17, 1: 0, 2: 1 << 40})
TEXT = encode_cursor(CURSOR)


def test_round_trip() -> None:
    for cursor in (CURSOR, Cursor(UUID, 3, 0, {3: 5}), Cursor(UUID, 0, 0, {0: 0}), Cursor(UUID, None, 0, {})):
        assert decode_cursor(encode_cursor(cursor)) == cursor


def test_is_url_safe() -> None:
    text = encode_cursor(CURSOR)
    assert text.replace("-", "").replace("_", "").isalnum()


def test_the_widest_topic_fits() -> None:
    wide = Cursor(UUID, None, 0, dict.fromkeys(range(MAX_PARTITIONS), (1 << 35) - 1))
    assert len(encode_cursor(wide)) <= MAX_CURSOR_CHARS
    assert decode_cursor(encode_cursor(wide)) == wide


@pytest.mark.parametrize("text", ["", "a", "AAAA", "earliest", "é", "A" * 7000, "=" * 40, "AQ==", " " + TEXT,
                                  TEXT + "=", TEXT[:-1], TEXT.lower()])
def test_garbage(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_cursor(text)
