"""What a session is owed while its client is away, and what its client is told when it comes back."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.errors import SessionRefused, StorageFull, TooManySessions
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.message import RETAIN
from gatehouse.kernel.records.batch import add_header, encode_headers
from gatehouse.kernel.sessions.session_records import decode_flight, encode_flight
from gatehouse.kernel.sessions.session_values import NEVER, Outgoing, Released, Subscribed
from gatehouse.kernel.sessions.sessions import STALE_MAX
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig
from tests.kernel.sessions.client import Client, publish


def test_a_client_that_slept_gets_what_it_missed_in_order() -> None:
    rig = Rig()
    client = Client(rig)
    assert not client.connect()
    client.subscribe("plant/#")
    client.sleep()
    for value in (b"a", b"b", b"c"):
        publish(rig, "plant/1", value)
    publish(rig, "fleet/1", b"not asked for")
    assert client.connect()
    messages = client.take()
    assert [(message.packet_id, message.value, message.address, message.qos, message.dup)
            for message in messages if isinstance(message, Outgoing)] == [
        (1, b"a", "plant/1", 1, False), (2, b"b", "plant/1", 1, False), (3, b"c", "plant/1", 1, False)]


def test_what_is_stored_survives_a_kill(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", 2)
    client.sleep()
    publish(rig, "plant/1", b"a", qos=2)
    publish(rig, "plant/1", b"b", qos=1)
    rig.restart()
    assert client.connect()
    first, second = client.take()
    assert isinstance(first, Outgoing) and isinstance(second, Outgoing)
    assert (first.value, first.qos, second.value, second.qos) == (b"a", 2, b"b", 1)
    rig.restart()                                    # neither was acknowledged
    assert client.connect()
    assert [(message.packet_id, message.dup) for message in client.take() if isinstance(message, Outgoing)] == [
        (first.packet_id, True), (second.packet_id, True)]


def test_a_message_is_handed_out_once_its_packet_id_is_durable() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    rig.kernel.append([(rig.kernel.place("plant/1"), b"a", b"\0", 2, 0)], None)
    loop = rig.world.loop
    handed_at_flush = None
    for _ in range(100):
        if client.inbox:
            handed_at_flush = rig.kernel.statistics()["flushes_total"]
            break
        loop.step() or rig.world._step_workers()
    rig.restart()
    assert handed_at_flush is not None
    client.connect()
    message, = client.take()
    assert isinstance(message, Outgoing) and message.dup and message.packet_id == 1


def test_qos_0_does_not_wait() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", 1)
    client.subscribe("fleet/#", 0)
    client.sleep()
    placement = rig.kernel.place("plant/1")
    rig.kernel.append([(placement, value, b"\0", attributes, 0) for value, attributes in (
        (b"0", 0x12), (b"1", 2), (b"0", 0x12), (b"0", 0x12), (b"2", 0x42), (b"3", 2), (b"0", 0x12))], None)
    rig.run()
    publish(rig, "fleet/1", b"x", qos=1)
    description = rig.kernel.sessions.describe("/", "c1")
    assert description is not None and description.waiting == 3
    client.connect()
    assert client.values() == [b"1", b"2", b"3"]


def test_filters_that_overlap_give_a_message_once() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", 1, identifier=7)
    client.subscribe("plant/+", 2, identifier=9, retain_as_published=True)
    publish(rig, "plant/1", b"a", qos=2, attributes=RETAIN)
    message, = client.take()
    assert isinstance(message, Outgoing)
    assert (message.qos, message.identifiers, message.retain) == (2, (7, 9), True)


def test_a_filter_hears_from_its_subscribe_to_its_unsubscribe() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect(window=1)
    client.subscribe("plant/#", 1, identifier=1)
    publish(rig, "plant/1", b"held back")
    publish(rig, "plant/1", b"first")
    client.subscribe("plant/1", 1, identifier=2)
    publish(rig, "plant/1", b"both")
    assert client.held.unsubscribe("plant/#")
    assert not client.held.unsubscribe("plant/#")
    publish(rig, "plant/1", b"second")
    publish(rig, "plant/2", b"nobody")
    client.sleep()
    rig.restart()
    client.connect(window=1)
    told = []
    while messages := client.take():
        told += [(message.value, message.identifiers) for message in messages if isinstance(message, Outgoing)]
        client.acknowledge(messages)
    assert told == [(b"held back", (1,)), (b"first", (1,)), (b"both", (1, 2)), (b"second", (2,))]
    assert [subscribed.filter for subscribed in client.held.subscriptions()] == ["plant/1"]


def test_no_local_leaves_out_what_the_client_sent_itself() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    assert client.held.publisher == b""
    client.subscribe("plant/#", 1, no_local=1)
    headers = add_header(encode_headers([(b"mine", b"1")]), client.held.publisher)
    rig.kernel.append([(rig.kernel.place("plant/1"), b"own", headers, 2, 0)], None)
    publish(rig, "plant/1", b"other")
    message, = client.take()
    assert isinstance(message, Outgoing) and message.value == b"other"
    assert all(b"\xf4\x8f" not in name for record in rig.read("plant") for name, _ in record[4])


def test_what_the_hub_notes_with_a_message_is_not_shown() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    rig.publish("plant/1", b"a", headers=[(ADDRESS_HEADER, b"said"), (b"x", b"y")], attributes=2)
    message, = client.take()
    assert isinstance(message, Outgoing)
    assert (message.address, message.headers) == ("plant/1", ((ADDRESS_HEADER, b"said"), (b"x", b"y")))


def test_the_window_paces_what_comes() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect(window=2)
    client.subscribe("plant/#")
    publish(rig, "plant/1", b"a", b"b", b"c", b"d", b"e")
    first = client.take()
    assert len(first) == 2
    client.acknowledge(first[:1])
    assert client.values() == [b"c"]
    client.held.hold(True)
    client.acknowledge(first[1:])
    assert client.values() == []
    client.held.hold(False)
    assert client.values() == [b"d"]
    client.held.set_window(10)
    assert client.values() == [b"e"]


def test_redeliveries_come_first_and_keep_to_the_window() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect(window=4)
    client.subscribe("plant/#", 2)
    publish(rig, "plant/1", b"a", b"b", b"c", b"d", b"e", qos=2)
    messages = client.take()
    assert client.held.receive([messages[1].packet_id], client, "rec") == []
    rig.run()
    assert client.answers[-1] == "rec"
    client.sleep()
    client.connect(window=2)
    again = client.take()
    assert [type(message) for message in again] == [Outgoing, Released]
    client.acknowledge(again[:1])
    client.acknowledge(again[1:])
    assert [(message.value, message.dup) for message in client.take() if isinstance(message, Outgoing)] == [
        (b"c", True), (b"d", True)]
    client.acknowledge([messages[2]])
    assert [(message.value, message.dup) for message in client.take() if isinstance(message, Outgoing)] == [
        (b"e", False)]


def test_what_is_acknowledged_is_done_with(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    publish(rig, "plant/1", b"a", b"b")
    client.acknowledge(client.take()[:1])
    rig.world.advance(100)                           # nobody waits for it: it takes its time
    rig.restart()
    client.connect()
    assert client.values() == [b"b"]
    assert client.held.acknowledge([77]) == [77]


def test_packet_ids_that_came_in_are_kept_until_they_are_released(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect()
    assert client.held.take_in(5)
    assert not client.held.take_in(5)
    client.held.flush(client, "rec")
    rig.run()
    assert client.answers[-1] == "rec"
    rig.restart()
    client.connect()
    assert not client.held.take_in(5)
    assert client.held.release([5, 6], client, "comp") == [6]
    rig.run()
    assert client.answers[-1] == "comp"
    rig.restart()
    client.connect()
    assert client.held.take_in(5)


def test_whoever_comes_last_has_the_session() -> None:
    rig = Rig()
    first, second = Client(rig), Client(rig)
    first.connect()
    first.subscribe("plant/#")
    publish(rig, "plant/1", b"a")
    message, = first.take()
    assert second.connect()
    assert [reason.partition(":")[0] for reason in first.ended] == ["taken_over"]
    assert first.held.acknowledge([message.packet_id]) == [message.packet_id]    # nothing from there counts
    assert not first.held.take_in(1)
    first.held.sleep(0)
    rig.run()
    assert [(one.value, one.dup) for one in second.take() if isinstance(one, Outgoing)] == [(b"a", True)]
    assert rig.kernel.sessions.describe("/", "c1") is not None


def test_a_clean_start_forgets_what_was_there() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    client.sleep()
    publish(rig, "plant/1", b"a")
    assert not client.connect(clean=True)
    assert client.take() == []
    assert client.held.subscriptions() == []
    publish(rig, "plant/1", b"b")
    assert client.take() == []


def test_a_session_belongs_to_its_user_and_tenant() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.sleep()
    other = Client(rig, user="eve")
    for clean in (False, True):
        with pytest.raises(SessionRefused):
            other.connect(clean=clean)
    with pytest.raises(SessionRefused):
        rig.kernel.sessions.clear("/", "c1", "eve")
    assert not Client(rig, user="eve", tenant="elsewhere").connect()
    assert rig.kernel.sessions.clear("/", "c1", "ann")
    assert not rig.kernel.sessions.clear("/", "c1", "ann")


def test_rights_are_asked_for_when_a_message_is_handed_out() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    publish(rig, "plant/1", b"a")
    assert client.values() == [b"a"]
    client.sleep()
    publish(rig, "plant/1", b"b")
    publish(rig, "plant/2", b"c")
    client.forbidden.add("plant/1")
    client.connect()
    assert client.values() == [b"c"]                 # neither the new one nor the one in flight
    description = rig.kernel.sessions.describe("/", "c1")
    assert description is not None and (description.dropped["denied"], description.in_flight) == (2, 1)


def test_a_session_ends_when_it_has_waited_long_enough(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect(expiry_ms=60_000)
    client.subscribe("plant/#")
    client.sleep(60_000)
    rig.world.advance(30_000)
    rig.restart()                                    # a second passes
    rig.world.advance(28_000)
    assert rig.kernel.sessions.describe("/", "c1") is not None
    rig.world.advance(2_000)
    assert rig.kernel.sessions.describe("/", "c1") is None
    assert not client.connect(expiry_ms=60_000)
    rig.restart()                                    # while it is connected: it sleeps from the start on
    rig.world.advance(59_000)
    assert rig.kernel.sessions.describe("/", "c1") is not None
    rig.world.advance(2_000)
    assert rig.kernel.sessions.describe("/", "c1") is None
    client.connect()
    client.sleep(0)
    assert rig.kernel.sessions.describe("/", "c1") is None


def test_the_oldest_give_way_at_the_limit() -> None:
    rig = Rig(settings=KernelSettings(segment_bytes=1 << 20, max_session_messages=3))
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    client.sleep()
    for at in range(8):
        publish(rig, "plant/1", b"%d" % at)
    description = rig.kernel.sessions.describe("/", "c1")
    assert description is not None and (description.waiting, description.dropped["limit"]) == (3, 5)
    client.connect()
    assert client.values() == [b"5", b"6", b"7"]


def test_what_was_in_flight_is_read_as_it_was_written_before_there_was_a_limit_of_time() -> None:
    flight = {7: (100, 1), 8: (101, 1), 9: (200, 3)}
    now = encode_flight(300, [1, 2, 3, 4, 5], flight)
    assert decode_flight(now) == (300, [1, 2, 3, 4, 5], flight)
    assert decode_flight(now[:24] + now[28:]) == (300, [1, 2, 3, 4, 0], flight)
    assert decode_flight(now[:24]) == (300, [1, 2, 3, 4, 0], {})


def limited(tmp_path: Path | None = None, **settings: Any) -> tuple[Rig, Client]:
    """A hub with these limits of sessions, and a client that sleeps on `plant/#`."""
    rig = Rig(tmp_path, settings=KernelSettings(segment_bytes=1 << 20, **settings))
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    client.sleep()
    return rig, client


def dropped(rig: Rig, reason: str) -> int:
    description = rig.kernel.sessions.describe("/", "c1")
    assert description is not None
    return description.dropped[reason]


def test_the_oldest_give_way_at_the_limit_of_bytes() -> None:
    rig, client = limited(max_session_bytes=40_000)
    for at in range(60):
        publish(rig, "plant/1", b"%d" % at + bytes(998))
    gone = dropped(rig, "limit")
    assert 19 <= gone <= 26, "some forty of a thousand bytes have room"
    client.connect(window=100)
    assert [int((value or b"").rstrip(bytes(1))) for value in client.values()] == list(range(gone, 60))


def test_sixteen_messages_wait_whatever_they_weigh() -> None:
    rig, client = limited(max_session_bytes=1_000)
    for _ in range(40):
        publish(rig, "plant/1", bytes(500))
    assert dropped(rig, "limit") == 24
    client.connect(window=100)
    assert len(client.values()) == 16


def test_what_waited_before_a_start_of_the_hub_counts_in_bytes(tmp_path: Path) -> None:
    rig, client = limited(tmp_path, max_session_bytes=40_000)
    for _ in range(30):
        publish(rig, "plant/1", bytes(1_000))
    rig.world.advance(10_000)                        # a checkpoint: the index has it all
    rig.restart()
    assert dropped(rig, "limit") == 0
    for _ in range(30):
        publish(rig, "plant/1", bytes(1_000))
    rig.run()
    assert 19 <= dropped(rig, "limit") <= 26


def test_what_was_handed_out_weighs_no_more() -> None:
    rig, client = limited(max_session_bytes=40_000)
    for _ in range(30):
        publish(rig, "plant/1", bytes(1_000))
    client.connect(window=100)
    assert len(client.values()) == 30
    for _ in range(30):
        publish(rig, "plant/1", bytes(1_000))
    assert len(client.values()) == 30 and dropped(rig, "limit") == 0


def test_what_has_waited_too_long_gives_way_while_the_client_sleeps(tmp_path: Path) -> None:
    rig, client = limited(tmp_path, max_session_wait_ms=60_000)
    publish(rig, "plant/1", b"old")
    rig.world.advance(40_000)
    publish(rig, "plant/1", b"new")
    rig.restart()
    assert dropped(rig, "age") == 0
    rig.world.advance(40_000)
    assert dropped(rig, "age") == 1, "also where nothing else happens"
    client.connect()
    assert client.values() == [b"new"]


def test_a_message_that_waited_too_long_is_not_handed_out() -> None:
    rig, client = limited(max_session_wait_ms=60_000)
    publish(rig, "plant/1", b"old")
    rig.world.advance(33_000)
    published_ms = rig.world.loop.wall_ms()
    publish(rig, "plant/1", b"between two looks")    # which are 7.5 s apart
    while not rig.kernel.sessions.is_too_old(published_ms + 100):
        rig.world.advance(500)
    assert dropped(rig, "age") == 1, "nobody has looked at the second"
    client.connect()
    assert client.values() == [] and dropped(rig, "age") == 2


def test_qos_0_waits_where_the_hub_keeps_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings=KernelSettings(segment_bytes=1 << 20, session_keeps_transient=True))
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", 1)
    client.subscribe("fleet/#", 0)
    client.sleep()
    publish(rig, "plant/1", b"a", qos=0)
    publish(rig, "plant/1", b"b", qos=1)
    publish(rig, "fleet/1", b"c", qos=2)
    rig.restart()
    client.connect(window=1)
    taken = [(message.value, message.qos, message.packet_id) for message in client.take()
             if isinstance(message, Outgoing)]
    assert taken == [(b"a", 0, 0), (b"b", 1, 1)], "the window is full, and the order stays"
    client.held.acknowledge([1])
    assert [(message.value, message.qos) for message in client.take() if isinstance(message, Outgoing)] == [(b"c", 0)]
    rig.restart()
    client.connect()
    assert client.take() == [], "what was sent with QoS 0 is done with"


def test_expired_messages_are_dropped_and_counted() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    client.sleep()
    until_ms = rig.world.loop.wall_ms() + 5_000
    rig.publish("plant/1", b"a", headers=[(b"expires-at", b"%d" % until_ms)], attributes=2)
    rig.publish("plant/1", b"b", attributes=2)
    rig.world.advance(6_000)
    client.connect()
    assert client.values() == [b"b"]
    description = rig.kernel.sessions.describe("/", "c1")
    assert description is not None and description.dropped["expired"] == 1


def test_there_are_only_so_many_sessions() -> None:
    rig = Rig(settings=KernelSettings(segment_bytes=1 << 20, max_sessions=1))
    Client(rig).connect()
    with pytest.raises(TooManySessions):
        Client(rig, "c2").connect()
    assert Client(rig).connect()


def test_sessions_outlive_checkpoints_and_retention(tmp_path: Path) -> None:
    settings = KernelSettings(segment_bytes=64 << 10, retention_ms=1_000, checkpoint_ms=100)
    rig = Rig(tmp_path, settings)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    client.sleep()
    publish(rig, "plant/1", b"owed")
    for _ in range(40):
        publish(rig, "fleet/1", bytes(8 << 10))
        rig.world.advance(500)
    for _ in range(40):
        rig.world.advance(60_000)
    assert rig.kernel.statistics()["dropped_segments_total"] > 0
    rig.restart()
    client.connect()
    assert client.values() == [b"owed"]
    rig.restart(lose_index=True)
    client.connect()
    assert client.values() == [b"owed"]


def test_sessions_are_listed_page_by_page() -> None:
    rig = Rig()
    for client_id in ("b", "a", "c"):
        Client(rig, client_id).connect()
    first = rig.kernel.sessions.page("/", "", 2)
    assert [session.client_id for session in first] == ["a", "b"]
    assert [session.client_id for session in rig.kernel.sessions.page("/", "b", 2)] == ["c"]
    assert first[0].expiry_ms == NEVER and first[0].connected


def test_a_full_disk_takes_nothing_and_forgets_nothing() -> None:
    log = FullLog()
    rig = Rig(log=log)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", 2)
    publish(rig, "plant/1", b"a", qos=2)
    client.inbox.clear()
    log.full = True
    assert client.held.take_in(3)
    client.held.receive([1], client, "rec")
    client.held.subscribe(Subscribed("fleet/#", 1))
    newcomer = Client(rig, "c2")
    rig.kernel.sessions.attach("/", "c2", "ann", newcomer, clean=False, expiry_ms=NEVER, window=1, owner=newcomer,
                               token="open")
    rig.world.run()
    assert isinstance(client.answers[-1], StorageFull) and isinstance(newcomer.answers[-1], StorageFull)
    assert [reason.partition(":")[0] for reason in client.ended] == ["storage_full"]
    assert [reason.partition(":")[0] for reason in newcomer.ended] == ["storage_full"]
    assert rig.kernel.sessions.describe("/", "c2") is None
    log.full = False
    rig.world.advance(10_000)
    assert client.connect()
    message, = client.take()
    assert isinstance(message, Outgoing) and (message.value, message.qos, message.dup) == (b"a", 2, True)
    assert client.held.take_in(3)
    assert [subscribed.filter for subscribed in client.held.subscriptions()] == ["plant/#"]


def test_a_session_that_a_full_disk_did_not_delete_is_there_still() -> None:
    log = FullLog()
    rig = Rig(log=log)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#")
    client.sleep()
    log.full = True
    rig.kernel.sessions.clear("/", "c1", "ann")
    rig.world.run()
    log.full = False
    rig.world.advance(10_000)
    publish(rig, "plant/1", b"a")
    assert client.connect()
    assert client.values() == [b"a"]


def days_go_by(rig: Rig, count: int) -> None:
    for _ in range(count * 24):
        rig.world.advance(3_600_000)


def test_a_session_keeps_the_queue_of_its_shared_filter_over_starts(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client, shared = Client(rig), "$share/crew/jobs/+"
    client.connect()
    client.subscribe(shared)
    client.sleep()
    rig.kernel.groups.shared_group(shared)
    publish(rig, "jobs/a", b"1")
    days_go_by(rig, 2)
    rig.restart()
    days_go_by(rig, 2)
    queue = rig.kernel.groups.queue(shared)
    assert queue is not None and rig.kernel.groups.queue_group(queue).counts().ready == 1
    rig.kernel.sessions.clear("/", "c1", "ann")
    days_go_by(rig, 2)
    assert rig.kernel.groups.queue(shared) is None


def test_a_queue_is_not_kept_for_a_filter_that_the_disk_did_not_take() -> None:
    log = FullLog()
    rig = Rig(log=log)
    client, shared = Client(rig), "$share/crew/jobs/+"
    client.connect()
    rig.kernel.groups.shared_group(shared)
    rig.run()
    log.full = True
    client.held.subscribe(Subscribed(shared, 1))
    rig.world.run()
    log.full = False
    assert client.ended
    days_go_by(rig, 2)
    assert rig.kernel.groups.queue(shared) is None


def test_a_session_whose_time_ran_out_while_the_hub_was_down_is_nobodys(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig, user="eve")
    client.connect()
    client.subscribe("plant/#")
    client.sleep(500)
    rig.restart()                                    # a second passes, and nothing has looked at it yet
    assert rig.kernel.sessions.owner_of("/", "c1") is None
    client = Client(rig, user="ann")
    assert not client.connect() and client.held.subscriptions() == []
    rig.world.advance(10_000)
    assert rig.kernel.sessions.owner_of("/", "c1") == "ann"


class CountingLog(MemoryLog):
    """Counts what is read of it."""

    spans = 0

    def read(self, spans: list[tuple[int, int, int]]) -> list[bytes]:
        self.spans += len(spans)
        return super().read(spans)


def spans_read_to_wake(passing: int) -> int:
    """For ten messages on `+/x/cmd`, between so many that are not for the session."""
    log = CountingLog()
    rig = Rig(log=log)
    client = Client(rig)
    client.connect()
    client.subscribe("+/x/cmd")
    client.sleep()
    for at in range(10):
        for other in range(passing // 10):
            publish(rig, f"line{other % 20}/y/cmd", b"passes")
        publish(rig, f"line{at}/x/cmd", b"%d" % at)
    rig.world.advance(60_000)
    rig.restart()
    log.spans = 0
    assert client.connect()
    assert client.values() == [b"%d" % at for at in range(10)]
    return log.spans


def test_waking_reads_what_waits_and_nothing_of_what_has_passed() -> None:
    assert 0 < spans_read_to_wake(0) == spans_read_to_wake(1_000)


def test_a_session_that_comes_and_goes_is_looked_at_once_and_ends_at_its_time() -> None:
    rig = Rig()
    client = Client(rig)
    for number in range(5):
        client.connect()
        client.sleep(60_000 + number)
    assert len(rig.kernel.sessions._waiting) == 1
    rig.world.advance(60_000)
    assert rig.kernel.sessions.describe("/", "c1") is not None, "it is looked at, and waits on"
    client.connect()
    client.sleep(1_000)
    rig.world.advance(1_000)
    assert rig.kernel.sessions.describe("/", "c1") is None


def test_sessions_that_are_no_more_are_not_waited_for() -> None:
    rig = Rig()
    client = Client(rig)
    for _ in range(STALE_MAX * 2):
        client.connect(clean=True)
        client.sleep(60_000)
    assert len(rig.kernel.sessions._waiting) <= STALE_MAX + 3
