"""When a message expires: its own word, its topic's, whichever is earlier."""
from __future__ import annotations

import pytest

from kernel.message import Headers
from kernel.message_expiry import NEVER, expires_at
from kernel.topics import TopicSettings


@pytest.mark.parametrize(("headers", "ttl_ms", "end"), [
    ((), None, NEVER), ((), 50, 1_050), (((b"expires-at", b"1020"),), None, 1_020),
    (((b"expires-at", b"1020"),), 50, 1_020), (((b"expires-at", b"2000"),), 50, 1_050),
    (((b"expires-at", b"soon"),), None, NEVER), (((b"expires-at", None),), 50, 1_050),
    (((b"expires-at", b"9" * 20),), None, NEVER), (((b"expires-at", b""),), None, NEVER),
    (((b"a", b"1"), (b"expires-at", b"7"), (b"expires-at", b"5")), None, 7),
])
def test_the_earlier_of_both(headers: Headers, ttl_ms: int | None, end: int) -> None:
    assert expires_at(headers, 1_000, TopicSettings(message_ttl_ms=ttl_ms)) == end


def test_a_topic_that_is_gone_says_nothing() -> None:
    assert expires_at((), 1_000, None) == NEVER
