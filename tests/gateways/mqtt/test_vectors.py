"""Every byte conversation of `tests/vectors/mqtt`: whole, joined, byte by byte, cut off, with more behind it."""
from __future__ import annotations

import pytest

from tests.gateways.mqtt.conversations import Conversation, Player, bytes_of, read_all

ALL = read_all()
SMALL = [c for c in ALL if sum(len(bytes_of(rest)) for what, rest in c.steps if what == ">") < 2000]


def titled(conversations: list[Conversation]) -> list[object]:
    return [pytest.param(conversation, id=conversation.title) for conversation in conversations]


def ended_by_packet(conversation: Conversation) -> bool:
    """Whether it was the client's last bytes, and not time or the hub, that closed the connection."""
    kinds = [what for what, _ in conversation.steps]
    return "closed" in kinds and not {"advance", "stop", "disk"} & set(kinds)


def test_titles_differ() -> None:
    titles = [conversation.title for conversation in ALL]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("conversation", titled(ALL))
def test_whole(conversation: Conversation) -> None:
    Player().play(conversation)


@pytest.mark.parametrize("conversation", titled(ALL))
def test_joined(conversation: Conversation) -> None:
    Player().play(conversation.joined())


@pytest.mark.parametrize("conversation", titled(SMALL))
def test_byte_by_byte(conversation: Conversation) -> None:
    Player(chunk_bytes=1).play(conversation)


@pytest.mark.parametrize("conversation", titled(SMALL))
def test_cut_off_everywhere(conversation: Conversation) -> None:
    """However little of the client's last bytes comes, the door waits for more, or has refused with a reason."""
    sends = [index for index, (what, _) in enumerate(conversation.steps) if what == ">"]
    data = bytes_of(conversation.steps[sends[-1]][1])
    before = Conversation(conversation.title, conversation.steps[:sends[-1]])
    for size in range(len(data)):
        player = Player()
        for what, rest in before.steps:
            getattr(player, "do_" + {">": "send", "<": "expect"}.get(what, what))(rest)
        player.feed(data[:size])
        if player.link.closed:
            assert player.link.reason or data[:size].startswith(b"\xe0\0") or b"\xe0\0" in data[:size]
        player.hub.cut(player.session)
        player.hub.kernel.flush()


@pytest.mark.parametrize("conversation", titled([c for c in SMALL if ended_by_packet(c)]))
def test_nothing_behind_the_end_counts(conversation: Conversation) -> None:
    """Bytes behind the packet that ended the connection change nothing."""
    steps = list(conversation.steps)
    last = max(index for index, (what, _) in enumerate(steps) if what == ">")
    steps[last] = (">", steps[last][1] + " 30 04 0001 'z' 'z'")
    Player().play(Conversation(conversation.title, tuple(steps)))
