"""Fetch sessions (KIP-227): only what is new is told, all of what is new is told, and what all of them may hold."""
from __future__ import annotations

import random
import uuid
from typing import Any, Final

import numpy as np
import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.kafka.api.fetch import FETCH
from gatehouse.gateways.kafka.codec import FetchTopic
from gatehouse.gateways.kafka.fetch_columns import MOST_READ, Columns
from gatehouse.gateways.kafka.fetch_session import MAX_OF_CONNECTION, SAFE_MS, FetchSession, FetchSessions
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import EPOCH, Peer
from tests.gateways.kafka.judge import decoded, fetch, framed, id_of
from tests.gateways.kafka.steps import steps_of

VERSIONS: Final = range(7, FETCH.last_version + 1)
NONE, OUT_OF_RANGE, UNKNOWN, DENIED, NOT_FOUND, WRONG_EPOCH, FENCED, WRONG_NAMES = 0, 1, 3, 29, 70, 71, 74, 106


class Client:
    """What a client with a session does: it sends what has changed, and keeps what it was told."""

    def __init__(self, peer: Peer, version: int = 11, **fields: Any) -> None:
        self.peer = peer
        self.version = version
        self.fields = fields
        self.id = self.epoch = 0
        self.error = NONE
        self.high: dict[tuple[Any, int], int] = {}
        self.log_start: dict[tuple[Any, int], int] = {}

    def ask(self, wants: dict[tuple[str, int], int], forgotten: dict[str, list[int]] | None = None, **fields: Any
            ) -> dict[tuple[str, int], Any]:
        """One fetch; the partitions of its answer."""
        return self.take(self.peer.send(self.request(wants, forgotten, **fields)))

    def request(self, wants: dict[tuple[str, int], int], forgotten: dict[str, list[int]] | None = None, **fields: Any
                ) -> bytes:
        ids = self.version >= 13
        kind = FetchRequest.ForgottenTopic
        message = fetch(self.version, {(id_of(name) if ids else name, index): offset
                                       for (name, index), offset in wants.items()},
                        session_id=self.id, session_epoch=self.epoch, **{**self.fields, **fields},
                        forgotten_topics_data=[
                            kind(version=self.version, partitions=indexes,
                                 **({"topic_id": id_of(name)} if ids else {"topic": name}))
                            for name, indexes in (forgotten or {}).items()])
        return framed(message, 5)

    def take(self, frames: list[bytes]) -> dict[tuple[str, int], Any]:
        answer = decoded(FetchResponse, self.version, *frames, 5)
        self.error, self.id = answer.error_code, answer.session_id
        self.epoch += 1
        names = {id_of(name): name for name in self.peer.kernel.by_name}
        assert all(topic.partitions for topic in answer.responses), "no topic without partitions"
        told = {(names[topic.topic_id] if self.version >= 13 else topic.topic, part.partition_index): part
                for topic in answer.responses for part in topic.partitions}
        assert len(told) == sum(len(topic.partitions) for topic in answer.responses), "nothing is told twice"
        for key, part in told.items():
            self.high[key], self.log_start[key] = part.high_watermark, part.log_start_offset
        return told


def peer_with_topic(partitions: int = 3, name: str = "plant", **settings: Any) -> Peer:
    peer = Peer(**settings)
    peer.kernel.create_topic(name, partitions=partitions)
    peer.kernel.flush()
    return peer


def append(peer: Peer, partition: int, *values: bytes, topic: str = "plant") -> None:
    peer.kernel.append_batch(peer.kernel.by_name[topic].partition_id(partition), batch(*values), None)
    peer.kernel.flush()


def all_of(partitions: int, topic: str = "plant") -> dict[tuple[str, int], int]:
    return {(topic, index): 0 for index in range(partitions)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [3, 100])
def test_only_what_is_new_is_told(version: int, partitions: int) -> None:
    peer = peer_with_topic(partitions)
    client = Client(peer, version)
    assert len(client.ask(all_of(partitions))) == partitions and client.id > 0
    assert client.ask({}) == {}
    append(peer, 1, b"a")
    told = client.ask({})
    assert list(told) == [("plant", 1)] and len(told["plant", 1].records) > 0
    assert list(client.ask({})) == [("plant", 1)], "it has not said that it has them"
    assert client.ask({("plant", 1): 1}) == {}
    assert (client.error, client.epoch) == (NONE, 5)


def test_an_answer_waits_for_a_partition_that_is_not_listed() -> None:
    peer = peer_with_topic()
    client = Client(peer, max_wait_ms=500)
    append(peer, 0, b"a")
    client.ask(all_of(3))
    assert peer.send(client.request({("plant", 0): 1})) == []
    append(peer, 2, b"b")
    assert list(client.take(peer.link.frames())) == [("plant", 2)]
    assert peer.kernel.watches == []


@pytest.mark.parametrize("partitions", [3, 100])
def test_other_ends_are_told_without_records(partitions: int) -> None:
    peer = peer_with_topic(partitions)
    client = Client(peer)
    for _ in range(4):
        append(peer, 0, b"a")
    client.ask(all_of(partitions))
    client.ask({("plant", 0): 4})
    peer.kernel.starts[peer.kernel.by_name["plant"].partition_id(0)] = 2
    told = client.ask({})
    assert [(part.log_start_offset, len(part.records)) for part in told.values()] == [(2, 0)]
    assert client.ask({}) == {}


@pytest.mark.parametrize("partitions", [3, 100])
def test_an_error_is_told_until_it_is_over(partitions: int) -> None:
    peer = peer_with_topic(partitions)
    client = Client(peer)
    client.ask({**all_of(partitions), ("plant", 1): 7, ("plant", partitions): 0, ("plant", -1): 0})
    for _ in range(2):
        told = client.ask({})
        assert {index: part.error_code for (_, index), part in told.items()} == {
            1: OUT_OF_RANGE, partitions: UNKNOWN, -1: UNKNOWN}
    told = client.ask({("plant", 1): 0}, {"plant": [partitions, -1]})
    assert {index: part.error_code for (_, index), part in told.items()} == {1: NONE}, "that it is over is new"
    assert client.ask({}) == {}


@pytest.mark.parametrize("partitions", [3, 100])
def test_an_epoch_that_is_over_is_told(partitions: int) -> None:
    client = Client(peer_with_topic(partitions), epoch=EPOCH)
    client.ask(all_of(partitions))
    assert client.ask({("plant", 1): 0}, epoch=EPOCH - 1)["plant", 1].error_code == FENCED
    assert client.ask({("plant", 1): 0})["plant", 1].error_code == NONE


def test_a_topic_that_comes_later_is_found() -> None:
    peer = peer_with_topic()
    client = Client(peer)
    told = client.ask({**all_of(3), ("later", 0): 0})
    assert told["later", 0].error_code == UNKNOWN
    assert [part.error_code for part in client.ask({}).values()] == [UNKNOWN]
    peer.kernel.create_topic("later", partitions=1)
    peer.kernel.flush()
    assert [part.error_code for part in client.ask({}).values()] == [NONE]
    assert client.ask({}) == {}


def test_rights_are_asked_for_each_time() -> None:
    allowed = [True]
    peer = peer_with_topic(decision=lambda principal, operation, _: operation is not Operation.CONSUME or allowed[0])
    client = Client(peer)
    client.ask(all_of(3))
    append(peer, 0, b"a")
    allowed[0] = False
    peer.services.admission.version = object()
    assert {part.error_code for part in client.ask({}).values()} == {DENIED}


@pytest.mark.parametrize("partitions", [5, 100])
def test_whoever_was_served_longest_ago_is_read_first(partitions: int) -> None:
    """The bytes of an answer do for one batch: each partition has its turn."""
    peer = peer_with_topic(partitions)
    for index in range(5):
        for _ in range(3):
            append(peer, index, b"a" * 500)
    client = Client(peer, max_bytes=300)
    offsets = dict.fromkeys(range(5), 0)
    served = []
    told = client.ask(all_of(partitions))
    for _ in range(15):
        index, = [index for (_, index), part in told.items() if part.records]
        served.append(index)
        offsets[index] += 1
        told = client.ask({("plant", index): offsets[index]})
    assert [sorted(served[at:at + 5]) for at in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3
    assert not any(part.records for part in told.values())


def test_partitions_beyond_what_one_answer_reads_come_with_the_next() -> None:
    """Before those that were read, though these have more. The client hears of them all at once, and the answer waits
    for nothing: `min_bytes` may be in them."""
    count = MOST_READ + 100
    peer = peer_with_topic(count)
    for index in range(count):
        for _ in range(2):
            peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(index), batch(b"a"), None)
    peer.kernel.flush()
    client = Client(peer, min_bytes=1 << 20, max_wait_ms=500)
    told = client.ask(all_of(count))
    assert len(told) == count and {part.high_watermark for part in told.values()} == {2}
    read = {key for key, part in told.items() if part.records}
    assert len(read) == MOST_READ
    told = client.ask(dict.fromkeys(read, 1), max_wait_ms=0)
    then = {key for key, part in told.items() if part.records}
    assert len(then) == MOST_READ and all_of(count).keys() - read <= then


def test_partitions_beyond_what_one_answer_reads_wait_for_a_limit_like_all() -> None:
    count = MOST_READ + 100
    peer = peer_with_topic(count)
    for index in range(count):
        peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(index), batch(b"a"), None)
    peer.kernel.flush()
    peer.services.admission.limits.put(read_limit(
        {"of": "hub", "direction": "out", "messages_per_s": 10}, "1"), peer.now_ms)
    Client(peer).ask({("plant", 0): 1})
    peer.session.guard.hand_out(100, 0)
    client = Client(peer, max_wait_ms=500)
    assert peer.send(client.request(all_of(count))) == [], "who is told nothing would ask again at once"
    told = client.take(peer.wait(500))
    assert len(told) == count and not any(part.records for part in told.values())


def test_who_believes_in_this_very_epoch_is_passed_over_like_all_without_news() -> None:
    columns, count = Columns(), 1_000
    columns.follow([(index, EPOCH, 0, 100) for index in range(count)])
    bounds = np.zeros((count, 2), np.int64)
    columns.tell(columns.look(11, bounds, EPOCH, False, True).told_ends)
    passed_over = steps_of(lambda: columns.look(11, bounds, EPOCH, False, False))
    bounds[7, 1] = 1
    assert [want[1] for want in columns.look(11, bounds, EPOCH, False, False).wants] == [7]
    looked_at = steps_of(lambda: columns.look(11, bounds, EPOCH, False, False))
    assert passed_over < looked_at / 2 or looked_at == 0
    assert columns.look(11, bounds, EPOCH + 1, False, False).errors == count


@pytest.mark.parametrize("partitions", [6, 90])
@pytest.mark.parametrize("seed", range(3))
def test_a_client_knows_the_ends_of_all_that_it_follows(partitions: int, seed: int) -> None:
    chance = random.Random(seed)
    peer = peer_with_topic(partitions)
    topic = peer.kernel.by_name["plant"]
    client = Client(peer)
    wants = {("plant", index): 0 for index in chance.sample(range(partitions), partitions // 2)}
    client.ask(wants)
    followed = dict(wants)
    for _ in range(60):
        for index in chance.sample(range(partitions), chance.randrange(3)):
            append(peer, index, *[b"x"] * chance.randrange(1, 4))
        if chance.random() < 0.3:
            partition_id = topic.partition_id(chance.randrange(partitions))
            peer.kernel.starts[partition_id] = chance.randrange(peer.kernel.bounds(partition_id)[1] + 1)
        changed = {("plant", index): chance.randrange(peer.kernel.bounds(topic.partition_id(index))[1] + 1)
                   for index in chance.sample(range(partitions), chance.randrange(4))}
        gone = [index for _, index in chance.sample(list(followed), min(len(followed) - 1, chance.randrange(3)))
                if ("plant", index) not in changed]
        followed |= changed
        for index in gone:
            del followed["plant", index]
        told = client.ask(changed, {"plant": gone} if gone else None)
        assert client.error == NONE and set(told) <= set(followed)
        for key, offset in followed.items():
            start, high = peer.kernel.bounds(topic.partition_id(key[1]))
            if offset < start:
                assert told[key].error_code == OUT_OF_RANGE
            else:
                assert (client.high[key], client.log_start[key]) == (high, start)
                assert (key in told and bool(told[key].records)) == (offset < high)


# ---- which session

@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_is_not_there(version: int) -> None:
    client = Client(peer_with_topic(), version)
    client.id, client.epoch = 55, 1
    assert client.ask({}) == {} and (client.error, client.id) == (NOT_FOUND, 0)


def test_epochs_count_from_one_fetch_to_the_next() -> None:
    client = Client(peer_with_topic())
    client.ask(all_of(3))
    number, client.epoch = client.id, 2
    assert client.ask({}) == {} and (client.error, client.id) == (WRONG_EPOCH, 0)
    client.id, client.epoch = number, 1
    assert client.ask({}) == {} and client.error == NONE


def test_the_session_of_another_connection_is_not_there() -> None:
    """Whoever knows a number goes on with nobody's session."""
    peer = peer_with_topic()
    first, other = Client(peer), Client(Peer(peer.kernel))
    other.peer.session.fetch_sessions = peer.session.fetch_sessions
    first.ask(all_of(3))
    other.id, other.epoch = first.id, 1
    assert other.ask({}) == {} and other.error == NOT_FOUND
    other.id, other.epoch = first.id, -1
    assert len(other.ask(all_of(3))) == 3 and other.id == 0
    assert first.ask({}) == {} and first.error == NONE, "and nobody's is ended"


def test_names_and_ids_do_not_mix() -> None:
    client = Client(peer_with_topic(), 12)
    client.ask(all_of(3))
    client.version = 13
    assert client.ask({}) == {} and client.error == WRONG_NAMES


@pytest.mark.parametrize(("epoch", "there"), [(-1, 0), (0, 1)])
def test_a_whole_fetch_ends_the_session_before(epoch: int, there: int) -> None:
    peer = peer_with_topic()
    client = Client(peer)
    client.ask(all_of(3))
    number, client.epoch = client.id, epoch
    assert len(client.ask(all_of(3))) == 3
    assert (client.id > 0, client.id == number) == (epoch == 0, False)
    assert len(peer.session.fetch_sessions) == there


def test_a_session_with_nothing_left_ends() -> None:
    peer = peer_with_topic()
    client = Client(peer)
    client.ask(all_of(3))
    assert client.ask({}, {"plant": [0, 1, 2]}) == {}
    assert (client.error, client.id, len(peer.session.fetch_sessions), peer.session.fetch_sessions.followed) == (0,) * 4


def test_a_client_that_wants_none_has_none() -> None:
    peer = peer_with_topic()
    client = Client(peer)
    client.epoch = -1
    assert len(client.ask(all_of(3))) == 3 and client.id == 0
    assert len(peer.session.fetch_sessions) == 0


# ---- bounds

def test_a_connection_that_ends_takes_its_sessions_with_it() -> None:
    peer = peer_with_topic()
    for _ in range(MAX_OF_CONNECTION + 2):
        Client(peer).ask(all_of(3))
    sessions = peer.session.fetch_sessions
    assert (len(sessions), sessions.followed) == (MAX_OF_CONNECTION, MAX_OF_CONNECTION * 4)
    peer.session.handle_closed()
    assert (len(sessions), sessions.followed) == (0, 0)


def test_a_name_that_is_no_topics_is_not_kept() -> None:
    client = Client(peer_with_topic())
    assert len(client.ask({("p" * 250, 0): 0})) == 1 and client.id == 0
    client.epoch = 0
    client.ask(all_of(3))
    assert client.ask({("p" * 250, 0): 0}) == {} and client.error == NOT_FOUND


def test_a_session_does_not_grow_beyond_what_one_fetch_may_list() -> None:
    peer = peer_with_topic(30, fetch_max_partitions=10)
    client = Client(peer)
    client.ask(all_of(10))
    assert len(client.ask({("plant", index): 0 for index in range(10, 18)})) == 8
    assert client.ask({("plant", index): 0 for index in range(20, 28)}) == {}
    assert (client.error, len(peer.session.fetch_sessions)) == (NOT_FOUND, 0)


def topics_of(partitions: int) -> list[FetchTopic]:
    return [(b"plant", [(index, -1, 0, 1) for index in range(partitions)], None)]


def opened(sessions: FetchSessions, partitions: int, now_ms: int) -> FetchSession | None:
    return sessions.open(uuid.uuid4(), False, topics_of(partitions), now_ms)


def test_a_full_house_takes_nobody_but_for_the_idle_and_the_smaller() -> None:
    sessions = FetchSessions(max_sessions=2)
    first, second = opened(sessions, 5, 0), opened(sessions, 3, 0)
    assert first is not None and second is not None
    assert opened(sessions, 9, SAFE_MS) is None, "they are young"
    sessions.follow(first, [], [], 100, SAFE_MS + 1)
    sessions.follow(second, [], [], 100, SAFE_MS + 1)
    assert opened(sessions, 3, SAFE_MS + 1) is None, "it is not larger than any"
    assert opened(sessions, 4, SAFE_MS + 1) is not None and sessions.find(second.id, second.owner) is None
    later = 2 * SAFE_MS + 2
    assert opened(sessions, 1, later) is not None and sessions.find(first.id, first.owner) is None, "it is idle"
    assert len(sessions) == 2


def test_what_all_follow_together_is_bounded() -> None:
    sessions = FetchSessions(max_followed=12)
    first = opened(sessions, 5, 0)
    assert first is not None and opened(sessions, 6, 0) is None and opened(sessions, 5, 0) is not None
    assert sessions.followed == 12
    assert not sessions.follow(first, topics_of(6), [], 100, 1)
    assert (len(sessions), sessions.followed) == (1, 6)
    assert opened(sessions, 11, SAFE_MS + 1) is not None, "the idle one goes"


@pytest.mark.parametrize("first", [10_000, 4_000])
def test_ten_thousand_partitions_with_nothing_new_cost_little(first: int) -> None:
    """Also where the topic has grown; and no more when the fetch waits."""
    peer = peer_with_topic(first)
    peer.kernel.change_topic("plant", partitions=10_000)
    peer.kernel.flush()
    topic = peer.kernel.by_name["plant"]
    idle = peer.kernel.bounds_of(topic)
    peer.kernel.bounds_of = lambda topic: idle  # type: ignore[method-assign]
    client = Client(peer)
    client.ask(all_of(10_000))
    request = client.request({})
    assert steps_of(lambda: peer.session.handle_data(request)) < 1_000
    assert len(peer.link.frames()[0]) < 30
    client.epoch += 1
    request = client.request({}, max_wait_ms=500)
    assert steps_of(lambda: peer.session.handle_data(request)) < 1_000
    assert not peer.link.frames() and len(peer.kernel.watches) == 1
