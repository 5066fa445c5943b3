"""Who published a message of which nothing was recorded."""
from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.journeys.looking import Journey
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.message import (
    AUTHOR_BITS,
    COLUMN_HEAD_BYTES,
    MANY,
    MAX_AUTHORS,
    MAX_TEXT_BYTES,
    NOBODY,
    U32,
    CorruptAuthors,
    Origin,
    column_length,
    decode_authors,
    encode_authors,
    note_names,
)
from gatehouse.kernel.records.batch import sound_records
from gatehouse.kernel.settings import JourneySettings
from gatehouse.kernel.state.topics import Topic
from gatehouse.kernel.write.pending_frame import authors_of
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig

NONE = JourneySettings(rate=0.0)
EDGE = Origin("mqtt", "edge", "meter7", "192.0.2.7:5000")
DESK = Origin("http", "desk")


@pytest.fixture(autouse=True)
def unnamed():
    """No log of before has named them."""
    EDGE.named_at = DESK.named_at = 0


def rig(**more) -> Rig:
    return Rig(routes=Routes((), ROUTES), journeys=NONE, **more)


def shown(hub: Rig, message_id: int) -> tuple[str, str, str, str] | None:
    answers: list[Journey] = []
    hub.kernel.looking.journey(message_id, "/", lambda journey, error: answers.append(journey))
    hub.run()
    publisher = answers[0].publisher
    return None if publisher is None else (publisher.door, publisher.user, publisher.client, publisher.peer)


def topic(hub: Rig, partitions: int) -> Topic:
    made = hub.kernel.create_topic("plant", partitions=partitions)
    hub.run()
    return made


def column_bytes(hub: Rig, offset: int) -> int:
    """Of the frame with which the message there was stored."""
    made = hub.kernel.topic("plant")
    assert made is not None
    position = hub.kernel._reader.position_of(made.partition_id(0), offset)
    return column_length(hub.log.read([(position, 0, COLUMN_HEAD_BYTES)])[0])


def of(origin: Origin) -> tuple[str, str, str, str]:
    return origin.door, origin.user, origin.client, origin.peer


def publish(hub: Rig, origin: Origin, *addresses: str) -> list[int]:
    hub.kernel.speaker.speaks(origin)
    placed = [(hub.kernel.place(address), b"x", b"\x00", 0, 0) for address in addresses]
    hub.kernel.append(placed, hub.witness, "m", positions=True)
    hub.kernel.speaker.speaks(NOBODY)
    hub.run()
    return [position[2] for position in hub.witness.stored[-1].positions]


def test_a_message_that_nobody_followed_shows_who_published_it():
    hub = rig()
    first, second = publish(hub, EDGE, "plant/1", "plant/2")
    third, = publish(hub, DESK, "orders/1")
    again, = publish(hub, EDGE, "plant/3")
    assert [shown(hub, each) for each in (first, second, third, again)] == [of(EDGE), of(EDGE), of(DESK), of(EDGE)]


def test_many_in_one_frame_over_many_partitions_are_told_apart():
    hub = rig()
    topic(hub, 4)
    origins = [Origin("mqtt", f"user{number % 7}", f"client{number}", "192.0.2.7") for number in range(50)]
    placed = [(hub.kernel.place(f"plant/{at * 7 % 13}"), b"x", b"\x00", 0, 0) for at in range(150)]
    hub.kernel.speaker.speak_in_turn([3 * number + 3 for number in range(50)], origins, False)
    hub.kernel.append(placed, hub.witness, "m", positions=True)
    hub.kernel.speaker.speaks(NOBODY)
    hub.run()
    ids = [position[2] for position in hub.witness.stored[-1].positions]
    assert sorted(ids) != ids, "messages of one burst enter several partitions, and have ids in their order"
    assert [shown(hub, each) for each in ids] == [of(origins[at // 3]) for at in range(150)]


def test_a_name_is_said_once_in_a_segment_and_again_in_the_next():
    hub = rig(log=MemoryLog(frames_per_segment=5))
    topic(hub, 1)
    ids = [publish(hub, EDGE, "plant/1")[0] for _ in range(12)]
    lengths = [column_bytes(hub, at) for at in range(12)]
    assert 0 < min(lengths) < max(lengths)
    assert 1 < lengths.count(max(lengths)) < 6, "in the first frame of each segment, and in no other"
    assert [shown(hub, each) for each in ids] == [of(EDGE)] * 12


def test_who_published_before_a_start_is_known_after_it():
    hub = rig()
    first, = publish(hub, EDGE, "plant/1")
    hub.restart()
    second, = publish(hub, EDGE, "plant/1")
    assert [shown(hub, each) for each in (first, second)] == [of(EDGE)] * 2


def test_what_the_hub_writes_itself_has_no_publisher_and_costs_nothing():
    hub = rig()
    message, = publish(hub, NOBODY, "plant/1")
    assert shown(hub, message) is None
    assert column_bytes(hub, 0) == 0


def test_where_the_frame_that_says_a_name_is_gone_nobody_is_named():
    whose = [EDGE], array(U32, [0]).tobytes(), array("H", [0]).tobytes()
    column, saying = encode_authors(7, *whose, 0)
    note_names(saying, 4_000)
    assert decode_authors(column).author_of(7) == 0
    later, saying = encode_authors(9, *whose, 3_000)
    assert not saying and decode_authors(later).author_of(9) == 4_000 << AUTHOR_BITS
    assert encode_authors(9, *whose, 5_000)[1] == [EDGE], "it was said in another segment"


def test_a_producers_batch_has_one_publisher():
    hub = rig()
    partition_id = topic(hub, 1).partition_id(0)
    hub.kernel.speaker.speaks(EDGE)
    hub.kernel.append_batch(partition_id, batch_of([(b"k", b"1", ()), (b"k", b"2", ())]), hub.witness, "b")
    hub.kernel.speaker.speaks(DESK)
    hub.run()
    first = hub.kernel.looking.id_at(partition_id, 0)
    assert [shown(hub, first), shown(hub, first + 1)] == [of(EDGE)] * 2


def test_a_message_that_fails_shows_who_published_it():
    hub = rig()
    message, = publish(hub, EDGE, "orders/1")
    hub.kernel.groups.define("work", GroupSettings())
    group = hub.kernel.groups.over("work", hub.kernel.topic("orders"), "earliest")
    taken: list = []
    group.pop(1, 1_000, taken.extend, DESK)
    hub.run()
    group.release([taken[0][:3]])
    hub.world.advance(1_000)
    assert shown(hub, message) == of(EDGE)


def test_who_published_what_was_fetched_in_bulk():
    hub = rig(log=MemoryLog(frames_per_segment=5))
    made = topic(hub, 2)
    origins = [Origin("mqtt", f"user{number % 3}", f"client{number}", "") for number in range(40)]
    publish(hub, NOBODY, "plant/0")
    for number in range(0, 40, 4):
        placed = [(hub.kernel.place(f"plant/{at}"), b"%d" % at, b"\x00", 0, 0)
                  for at in range(number * 3, number * 3 + 12)]
        hub.kernel.speaker.speak_in_turn([3, 6, 9, 12], origins[number:number + 4], False)
        hub.kernel.append(placed, hub.witness, "m")
        hub.kernel.speaker.speaks(NOBODY)
        hub.run()
    hub.kernel.speaker.speaks(EDGE)
    hub.kernel.append_batch(made.partition_id(1), batch_of([(b"k", b"1", ()), (b"k", b"2", ())]), hub.witness, "b")
    hub.run()
    fetched: list = []
    hub.kernel.fetch([(partition_id, 0, 1 << 20) for partition_id in made.partition_ids()], 2 << 20, fetched.extend,
                     stored=True)
    hub.run()
    pieces = [piece for answer in fetched for piece in answer.pieces]
    told: list = []
    hub.kernel.looking.publishers(pieces, told.extend)
    hub.run()
    seen = 0
    for piece, stretches in zip(pieces, told, strict=True):
        for record in sound_records(piece):
            seen += 1
            author = [origin for first, origin in stretches if first <= record[0]][-1:] or [None]
            if piece.whole:
                assert of(author[0]) == of(EDGE)
            elif record[3] == b"x":
                assert author == [None], "the hub itself wrote it"
            else:
                assert of(author[0]) == of(origins[int(record[3]) // 3])
    assert seen == 123


NAMES = st.text(max_size=400)
ORIGINS = st.builds(Origin, st.sampled_from(["mqtt", "kafka"]), NAMES, NAMES, NAMES)


@given(st.lists(st.tuples(st.integers(1, 100), st.none() | ORIGINS), max_size=20), st.integers(0, 1 << 62))
def test_what_a_column_says_is_what_it_was_told(parts, first_id):
    turns, at = [], 0
    laid = [0, b""]
    for count, origin in parts:
        turns.append((at, None, origin))
        laid += [(0, b"", b"", 0, 0)] * count
        at += count
    column, saying = encode_authors(first_id, *authors_of(laid, turns, array("q", [0]), MAX_AUTHORS), 0)
    assert column_length(column) == len(column)
    authors = decode_authors(column)
    begin = 0
    for count, origin in parts:
        for number in (begin, begin + count - 1):
            where = authors.author_of(first_id + number)
            assert authors.within(first_id + number, 1) == [(first_id + number, where)]
            if origin is None:
                assert where == -1
            else:
                name = authors.names[where]
                assert name.door == origin.door
                cut = origin.user.encode()[:MAX_TEXT_BYTES].decode(errors="replace")
                assert name.user == cut
        begin += count
    for at in range(0, len(column), 7):
        with pytest.raises(CorruptAuthors):
            decode_authors(column[:at])
        with pytest.raises(CorruptAuthors):
            decode_authors(column[:at] + bytes((column[at] ^ 1,)) + column[at + 1:])


def test_beyond_the_authors_of_one_frame_nobody_is_named():
    origins = [Origin("mqtt", client=str(number)) for number in range(MAX_AUTHORS + 5)]
    laid = [0, b"", *[(0, b"", b"", 0, 0)] * len(origins)]
    turns = [(0, list(range(1, len(origins) + 1)), origins)]
    column, saying = encode_authors(0, *authors_of(laid, turns, array("q", [0]), MAX_AUTHORS), 0)
    authors = decode_authors(column)
    assert len(saying) == MAX_AUTHORS and authors.author_of(MAX_AUTHORS - 1) >= 0
    assert authors.author_of(MAX_AUTHORS + 2) == -1


def test_several_who_speak_are_nobody_until_it_is_said_who():
    hub = rig()
    message, = publish(hub, MANY, "plant/1")
    assert shown(hub, message) is None
