"""Messages that need no look cross as records: the same natively as in plain Python, and in the order of their keys."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.message import RETAIN, SHOWN_ORIGIN, Encoded, FirstLevel, Piece, Placement
from gatehouse.kernel.records.batch import OpenPiece, encode_headers, encode_key, encode_record, records_of
from gatehouse.kernel.records.headers import ADDRESS, RECEIPT_MARK
from gatehouse.kernel.settings import JourneySettings
from gatehouse.relay import marking
from gatehouse.relay.marking import FOR_KERNEL, FOR_LINK, FOR_LINK_APART, mark, mark_plain
from gatehouse.relay.origins import Marks, came_by
from gatehouse.relay.positions import HubPartition
from gatehouse.relay.settings import LinkSettings
from tests.relay.network import Network, TestHub

BASE_MS = 1_700_000_000_000
ORIGIN = HubPartition(b"h" * 16, b"t" * 16, 3)
ENDING = Marks(b"secret" * 6).of(ORIGIN)
KEYS = [b"a", b"b", b"c" * 70, None]


def placement_of(key: bytes | None) -> Placement:
    return Placement("/", "plant/a", "plant", 1, 0, 100, key, encode_key(key), b"", 1_000, FirstLevel())


PLACES = {key: placement_of(key) for key in KEYS}
keys = st.sampled_from([*KEYS, b"nobody"])
headers = st.sampled_from([(), ((b"n", b"v"),), ((b"n", None), (b"x" * 200, b"")), ((b"address", b"x"),),
                           ((ADDRESS, b"answers"),), ((b"traceparent", b"00"),), ((b"expires-at", b"1"),),
                           ((SHOWN_ORIGIN, b"me"),)])
records = st.tuples(st.integers(0, 255), st.sampled_from([0, 1, -7, 70_000, -2 * BASE_MS]), keys,
                    st.none() | st.binary(max_size=40) | st.just(bytes(2_000)), headers)


def piece_of(of: list[Any]) -> OpenPiece:
    encoded = [encode_record(attributes, delta_ms, encode_key(key), value, encode_headers(said))
               for attributes, delta_ms, key, value, said in of]
    return OpenPiece(b"".join([b"front", *encoded]), 5, BASE_MS, -1)


def called(function: Callable[..., Any], opened: OpenPiece, count: int, tracks: dict[bytes | None, int],
           for_link: tuple[bytes, ...] = FOR_LINK, limit: int = 900) -> tuple[Any, ...]:
    """What is returned, and what is changed."""
    of, messages, met = dict(tracks), [], []
    marked = function(opened, count, 40, -3, PLACES, of, [100, 101], limit, for_link, FOR_KERNEL, ENDING, messages, met)
    return marked, of, messages, met


tracks_of = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 1))


@given(st.lists(records, max_size=12), tracks_of, st.sampled_from([FOR_LINK, FOR_LINK_APART]), st.integers(-1, 14),
       st.sampled_from([-1, BASE_MS + 5]))
def test_both_ways_do_the_same(of: list[Any], tracks: dict[bytes | None, int], for_link: tuple[bytes, ...], count: int,
                               fixed_ms: int) -> None:
    opened = piece_of(of)._replace(fixed_ms=fixed_ms)
    assert called(mark, opened, count, tracks, for_link) == called(mark_plain, opened, count, tracks, for_link)


@given(st.lists(records, min_size=1, max_size=6), tracks_of, st.data())
def test_what_makes_no_sense_is_left_to_be_looked_at(of: list[Any], tracks: dict[bytes | None, int], data: Any) -> None:
    opened = piece_of(of)
    broken = bytearray(opened.data)
    broken[data.draw(st.integers(5, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[:data.draw(st.integers(5, len(broken)))])
    (taken, behind, gathered), _, messages, _ = called(mark, opened._replace(data=cut), len(of), tracks)
    assert taken <= called(mark_plain, opened._replace(data=cut), len(of), tracks)[0][0] and behind <= len(cut)
    assert taken == len(messages) + sum(count for _, count, _, _ in gathered)
    for partition_id, count, encoded, max_ms in gathered:
        assert partition_id in (100, 101)
        assert max(record[1] for record in records_of(Piece(0, count, False, encoded, BASE_MS, 0, 0))) == max_ms


def test_a_record_that_is_taken_says_where_it_comes_from() -> None:
    opened = piece_of([(7, 5, b"a", b"v", ((b"n", b"m"),)), (7, 6, b"b", None, ())])
    (taken, behind, gathered), _, messages, met = called(mark, opened, 2, {b"a": 1})
    assert (taken, behind, met) == (2, len(opened.data), [b"b"])
    (partition_id, count, encoded, max_ms), = gathered
    assert (partition_id, count, max_ms) == (101, 1, BASE_MS + 5)
    record, = records_of(Piece(9, 1, False, encoded, BASE_MS, 0, 0))
    assert record[1:4] == (BASE_MS + 5, b"a", b"v") and record[5] == 7
    assert record[4][:2] == ((b"n", b"m"), (SHOWN_ORIGIN, b"68" * 16 + b"/-3"))
    came = came_by(record[4])
    assert came is not None and came[:3] == (ORIGIN, 40, -3)
    (placement, value, _, attributes, time_ms), = messages
    assert (placement, value, attributes, time_ms) == (PLACES[b"b"], None, 7, BASE_MS + 6)


def test_a_call_takes_no_more_than_it_has_memory_for() -> None:
    opened = piece_of([(0, 1, b"a", b"", ())] * (marking.AT_ONCE + 5))
    (taken, behind, gathered), *_ = called(mark, opened, 1 << 40, {b"a": 0})
    assert taken == gathered[0][1] == marking.AT_ONCE
    assert called(mark, opened._replace(at=behind), 1 << 40, {b"a": 0})[0][0] == 5


@pytest.mark.parametrize("changed", [
    {0: (b"data", 6, BASE_MS, -1)}, {0: (b"data", -1, BASE_MS, -1)}, {0: ("data", 0, BASE_MS, -1)}, {0: (b"data", 0)},
    {0: piece_of([(0, 1, b"a", b"", ())]), 5: {b"a": 7}}, {5: [1]}, {7: -1}, {8: ("a",)}, {10: (b"", b"", b"")}])
def test_native_code_believes_nothing(changed: dict[int, Any]) -> None:
    if mark is mark_plain:
        return
    arguments: list[Any] = [(b"data", 0, BASE_MS, -1), 1, 0, 0, PLACES, {}, [], 900, FOR_LINK, FOR_KERNEL, ENDING, [],
                            []]
    for at, value in changed.items():
        arguments[at] = value
    with pytest.raises((TypeError, ValueError)):
        mark(*arguments)


# ---- two hubs

class Spied:
    """What a hub's links append."""

    def __init__(self, hub: TestHub) -> None:
        self.encoded: list[Encoded] = []
        self._append_with = hub.rig.kernel.append_with
        hub.rig.kernel.append_with = self._note                                     # type: ignore[method-assign]

    def _note(self, messages: Any, records: Any, owner: Any, token: Any = None, origin: Any = None,
              encoded: Any = ()) -> None:
        self.encoded += encoded
        self._append_with(messages, records, owner, token, origin, encoded)

    @property
    def count(self) -> int:
        return sum(encoded.record_count for encoded in self.encoded)


def pair(**rest: Any) -> tuple[Network, TestHub, TestHub, Spied]:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", send=("plant/#",))], rng)
    right = TestHub("right", [LinkSettings("link", receive=("plant/#",))], rng, **rest)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    return network, left, right, Spied(right)


def send(network: Network, left: TestHub, first: int, count: int, special: dict[int, tuple[bytes, int]] | None = None
         ) -> None:
    """Numbers `first` and so on in turn to five keys, in one frame; some with headers and attributes of their own."""
    kernel = left.rig.kernel
    messages = []
    for number in range(first, first + count):
        said, attributes = (special or {}).get(number, (b"\0", 0))
        messages.append((kernel.place(f"plant/k{number % 5}"), b"%d" % number, said, attributes, 0))
    kernel.append(messages, left.rig.witness)
    left.rig.run()
    network.settle()


def numbers_by_key(hub: TestHub) -> dict[bytes | None, list[int]]:
    found: dict[bytes | None, list[int]] = {}
    for record in hub.rig.read("plant"):
        found.setdefault(record[2], []).append(int(record[3] or b"-1"))
    return found


def in_order(total: int) -> dict[bytes | None, list[int]]:
    return {b"k%d" % key: list(range(key, total, 5)) for key in range(5)}


def test_what_needs_no_look_crosses_as_records() -> None:
    network, left, right, spied = pair()
    for first in range(0, 200, 50):
        send(network, left, first, 50)
    assert numbers_by_key(right) == in_order(200)
    assert spied.count > 100, "keys that are known go by tracks"
    sent = {record[3]: record for record in left.rig.read("plant")}
    for record in right.rig.read("plant"):
        there = sent[record[3]]
        assert (record[1], record[2]) == (there[1], there[2])
        assert dict(record[4])[SHOWN_ORIGIN] == f"{left.rig.kernel.hub.hex()}/{there[6]}".encode()
    right.crash()
    network.settle()
    send(network, left, 200, 50)
    assert numbers_by_key(right) == in_order(250)


def test_what_has_to_be_looked_at_is_not_overtaken() -> None:
    network, left, right, spied = pair()
    for first in (0, 50):
        send(network, left, first, 50)
    before = spied.count
    said = encode_headers([(b"traceparent", b"00-ab-cd-00")])
    send(network, left, 100, 50, {105: (b"\0", RETAIN), 111: (said, 0), 117: (encode_headers([(ADDRESS, b"?")]), 0),
                                  123: (encode_headers([(b"x", RECEIPT_MARK)]), 0)})
    assert numbers_by_key(right) == in_order(150)
    assert before < spied.count < before + 40, "those that follow on them in their letter are messages"
    send(network, left, 150, 50)
    assert spied.count > before + 40 and numbers_by_key(right) == in_order(200), "and go by tracks again later"


def test_who_begins_to_listen_hears() -> None:
    network, left, right, spied = pair()
    for first in (0, 50):
        send(network, left, first, 50)
    before = spied.count
    right.rig.kernel.subscribe("plant/k1", right.rig.witness)
    send(network, left, 100, 50)
    send(network, left, 150, 50)
    assert [int(value or b"") for _, value, _, _ in right.rig.witness.delivered] == list(range(101, 200, 5))
    assert spied.count > before and numbers_by_key(right) == in_order(200)


def test_a_topic_that_is_widened_has_other_tracks() -> None:
    network, left, right, spied = pair()
    for first in (0, 50):
        send(network, left, first, 50)
    before = spied.count
    right.rig.kernel.change_topic("plant", partitions=9)
    right.rig.run()
    for first in (100, 150):
        send(network, left, first, 50)
    assert spied.count > before
    topic = right.rig.kernel.topic("plant")
    for partition in range(9):
        for record in right.rig.read_partition(topic.partition_id(partition)):
            if int(record[3] or b"") >= 100:
                assert right.rig.kernel.place_in("plant", record[2]).partition == partition


def test_what_may_be_followed_is_a_message() -> None:
    network, left, right, spied = pair(journeys=JourneySettings(rate=1.0), routes=Routes((), ROUTES))
    for first in (0, 50):
        send(network, left, first, 50)
    assert spied.count == 0 and numbers_by_key(right) == in_order(100)
