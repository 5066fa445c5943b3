"""Every byte conversation of `tests/vectors/amqp`: whole, byte by byte, cut off, with more behind it."""
from __future__ import annotations

import pytest

from tests.gateways.amqp.conversations import Conversation, Player, bytes_of, read_all

ALL = [pytest.param(conversation, id=conversation.title) for conversation in read_all()]
ENDED = [one for one in ALL if one.values[0].steps[-1][0] == "closed"]


def test_titles_differ() -> None:
    titles = [conversation.title for conversation in read_all()]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("conversation", ALL)
def test_whole(conversation: Conversation) -> None:
    Player().play(conversation)


@pytest.mark.parametrize("conversation", ALL)
def test_byte_by_byte(conversation: Conversation) -> None:
    Player(chunk_bytes=1).play(conversation)


@pytest.mark.parametrize("conversation", ALL)
def test_cut_off_everywhere(conversation: Conversation) -> None:
    """However little of the client's last bytes comes, the door waits for more."""
    last = max(index for index, (what, _) in enumerate(conversation.steps) if what == ">")
    data = bytes_of(conversation.steps[last][1])
    for size in range(len(data)):
        player = Player()
        for what, rest in conversation.steps[:last]:
            player.step(what, rest)
        player.feed(data[:size])
        player.hub.cut(player.client.session)
        player.hub.kernel.flush()


@pytest.mark.parametrize("conversation", ENDED)
def test_nothing_behind_the_end_counts(conversation: Conversation) -> None:
    steps = list(conversation.steps)
    last = max(index for index, (what, _) in enumerate(steps) if what == ">")
    steps[last] = (">", steps[last][1] + " [01 0001 003c 0046 0000 01'q' 01] [03 0001 'x']")
    Player().play(Conversation(conversation.title, tuple(steps)))
