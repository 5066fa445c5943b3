"""What clients publish a few at a time enters the kernel as one append, and nobody can tell but by what it costs."""
from __future__ import annotations

import random
from typing import Any

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.guard import Guard
from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.gateways.admission.rules import read_rule
from gatehouse.gateways.contract import Services
from gatehouse.gateways.door_side import GATHERED_MESSAGES, PART_BYTES, PART_MESSAGES
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.session import new_reader
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.api import Message
from gatehouse.kernel.errors import KernelError, MessageTooLarge, Stopping
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.message import Stored
from gatehouse.kernel.records.batch import NO_HEADERS
from gatehouse.kernel.settings import JourneySettings, KernelSettings
from tests.gateways.limiting import set_limit
from tests.gateways.mqtt.five import connect_packet, publish_packet
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_window import acks
from tests.kernel.journeys.test_journeys import events
from tests.kernel.rig import Rig

ALL = (RouteEntry("#", "all"),)
SMALL = KernelSettings(default_partitions=1, max_message_bytes=1000)


def connect(client_id: bytes) -> bytes:
    return b"\x10" + bytes([12 + len(client_id)]) + b"\0\4MQTT\4\2\0\0" + len(client_id).to_bytes(2, "big") + client_id


class Offering:
    """A session whose socket offers what comes to its native reader first."""

    natively = 0

    def __init__(self, session: Any, link: FakeLink) -> None:
        self.session, self.link = session, link
        link.offers = True

    def handle_data(self, data: bytes) -> None:
        reader: Any = self.link.reader
        if not self.link.closed and reader is not None and reader.offer(data):
            Offering.natively += 1
        else:
            self.session.handle_data(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


IS_NATIVE = new_reader is not None
"""Whether native readers were built; in a checkout the session takes everything."""


@pytest.fixture(autouse=True, params=["session", "reader"] if IS_NATIVE else ["session"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything here holds whether a native reader takes what is plain or the session does."""
    way: str = request.param
    if way == "reader":
        opened, cut = FakeHub.open, FakeHub.cut

        def opening(hub: FakeHub, *given: Any, **more: Any) -> Any:
            session, link = opened(hub, *given, **more)
            return Offering(session, link), link

        monkeypatch.setattr(FakeHub, "open", opening)
        monkeypatch.setattr(FakeHub, "cut", lambda hub, session: cut(hub, getattr(session, "session", session)))
        monkeypatch.setattr(Offering, "natively", 0)
    return way


class Fleet:
    """Clients of one hub, who know their topic already: what they publish next may be gathered."""

    def __init__(self, count: int, hub: FakeHub | None = None, config: MqttConfig | None = None,
                 packet: Any = connect) -> None:
        self.hub = hub or FakeHub(routes=ALL, settings=SMALL)
        self.clients = [self.join(b"c%d" % n, config or MqttConfig(), packet) for n in range(count)]
        self.appended: list[int] = []
        self._count_appends()

    def join(self, client_id: bytes, config: MqttConfig, packet: Any) -> tuple[Any, FakeLink]:
        session, link = self.hub.open(GATEWAY, config)
        session.handle_data(packet(client_id))
        session.handle_data(publish(b"t", b"first", 999) if packet is connect else publish_packet("t", b"first", 999))
        self.hub.kernel.flush()
        assert not link.closed
        link.take()
        return session, link

    def _count_appends(self) -> None:
        """Notes how many messages each append of a frame has, by what the log is given."""
        log, append = self.hub.log, self.hub.log.append

        def noting(head: bytes, body: bytes) -> int:
            self.appended.append(len(body))
            return append(head, body)

        log.append = noting  # type: ignore[method-assign]

    def values(self) -> list[bytes]:
        return [record[3] for record in self.hub.kernel.records("all") if record[3] != b"first"]


def test_each_is_answered_once_what_all_have_published_is_durable(way: str) -> None:
    fleet = Fleet(200)
    for n, (session, _) in enumerate(fleet.clients):
        session.handle_data(publish(b"t", b"%d" % n, n + 1))
    assert not any(link.take() for _, link in fleet.clients)
    assert way == "session" or Offering.natively == 200
    fleet.hub.kernel.flush()
    assert [link.take() for _, link in fleet.clients] == [acks(n + 1) for n in range(200)]
    assert fleet.values() == [b"%d" % n for n in range(200)]
    assert len(fleet.appended) == 1, "they are one frame"


def test_they_are_one_append() -> None:
    fleet = Fleet(50)
    board = fleet.hub.services.door("mqtt")
    before = board.submit(fleet.clients[0][0], None)           # numbers are given to appends, one after the other
    for session, _ in fleet.clients:
        session.handle_data(publish(b"t", b"x", 1))
    fleet.hub.kernel.flush()
    assert board.submit(fleet.clients[0][0], None) == before + 2


def test_those_of_several_users_are_one_append_and_each_has_its_own_places() -> None:
    """As many as there are: a fleet has a user for each device."""
    fleet = Fleet(1)
    fleet.hub.admission.on_rule_changed(None, read_rule(
        {"who": "everyone", "operations": ["publish", "create"], "pattern": "of/{client_id}"}, "1"))
    clients = [fleet.hub.open(GATEWAY, MqttConfig()) for _ in range(20)]
    for n, (session, _) in enumerate(clients):
        session.handle_data(connect(b"d%d" % n) + publish(b"of/d%d" % n, b"first", 9))
    fleet.hub.kernel.flush()
    board = fleet.hub.services.door("mqtt")
    before = board.submit(clients[0][0], None)
    for n, (session, link) in enumerate(clients):
        link.take()
        session.handle_data(publish(b"of/d%d" % n, b"%d" % n, 1))
    fleet.hub.kernel.flush()
    assert board.submit(clients[0][0], None) == before + 2
    assert [link.take() for _, link in clients] == [acks(1)] * 20
    assert fleet.values() == [b"%d" % n for n in range(20)]
    for n, (session, _) in enumerate(clients):
        session.handle_data(publish(b"of/d%d" % (n + 1), b"another's", 2))
    fleet.hub.kernel.flush()
    assert len(fleet.values()) == 20


@pytest.mark.parametrize("burst", [1, PART_MESSAGES, PART_MESSAGES + 1])
def test_the_order_of_each_client_holds_whether_it_is_gathered_or_not(burst: int) -> None:
    fleet = Fleet(3)
    for round_ in range(5):
        for n, (session, _) in enumerate(fleet.clients):
            session.handle_data(b"".join(publish(b"t", b"%d %d %d" % (n, round_, at), 1 + round_ * burst + at)
                                         for at in range(burst)))
    fleet.hub.kernel.flush()
    for n, (_, link) in enumerate(fleet.clients):
        assert link.take() == acks(*range(1, 5 * burst + 1))
        mine = [value for value in fleet.values() if value.startswith(b"%d " % n)]
        assert mine == [b"%d %d %d" % (n, round_, at) for round_ in range(5) for at in range(burst)]


def test_what_comes_beside_it_keeps_its_turn() -> None:
    """A publish to be delivered later is no part of it; its PUBACK leaves between those of its neighbours."""
    fleet = Fleet(2)
    (session, link), (other, other_link) = fleet.clients
    for n in range(0, 9, 3):
        session.handle_data(publish(b"t", b"before %d" % n, n + 1))
        other.handle_data(publish(b"t", b"other %d" % n, n + 1))
        session.handle_data(publish(b"$delayed/100/t", b"later", n + 2))
        session.handle_data(publish(b"t", b"behind %d" % n, n + 3))
    fleet.hub.kernel.flush()
    assert link.take() == acks(*range(1, 10))
    assert other_link.take() == acks(1, 4, 7)
    assert len(fleet.values()) == 9


def test_one_that_is_too_large_costs_the_others_nothing() -> None:
    fleet = Fleet(5)
    for n, (session, _) in enumerate(fleet.clients):
        session.handle_data(publish(b"t", b"x" * (2000 if n == 2 else n + 1), 1))
        session.handle_data(publish(b"t", b"y", 2))
    fleet.hub.kernel.flush()
    assert [link.closed for _, link in fleet.clients] == [False, False, True, False, False]
    assert fleet.clients[2][1].reason.startswith("message_too_large")
    assert [link.take() for _, link in fleet.clients] == [acks(1, 2), acks(1, 2), b"", acks(1, 2), acks(1, 2)]
    assert sorted(fleet.values()) == sorted([b"x", b"xx", b"xxxx", b"xxxxx"] + [b"y"] * 4)


def test_what_was_gathered_in_vain_is_charged_once() -> None:
    """The append of all is refused for one of them, and each is appended by itself."""
    fleet = Fleet(3)
    set_limit(fleet.hub, "user:*", messages_per_s=1000)
    fleet.clients[1][0].handle_data(publish(b"t", b"x" * 2000, 1))
    for n in (0, 2):
        fleet.clients[n][0].handle_data(publish(b"t", b"%d" % n, 1))
    fleet.hub.kernel.flush()
    assert fleet.values() == [b"0", b"2"]
    assert sum(meter.messages_taken for meter in fleet.hub.admission.limits.most_used("1", 9)) == 3


@pytest.mark.parametrize("packet", [connect, lambda client_id: connect_packet(client_id.decode())])
def test_what_the_disk_does_not_take_is_never_acknowledged(packet: Any) -> None:
    fleet = Fleet(20, packet=packet)
    for session, _ in fleet.clients:
        session.handle_data(publish(b"t", b"x", 1) if packet is connect else publish_packet("t", b"x", 1))
    fleet.hub.log.fault = LogFull("no space left on device")
    fleet.hub.log.append = type(fleet.hub.log).append.__get__(fleet.hub.log)  # type: ignore[method-assign]
    fleet.hub.kernel.flush()
    assert all(link.closed and link.reason.startswith("storage_full") for _, link in fleet.clients)
    assert not any(acks(1) in link.take() for _, link in fleet.clients)
    assert fleet.values() == []


def test_nothing_of_a_session_is_stored_behind_what_a_full_disk_refused() -> None:
    fleet = Fleet(2)
    (session, link), (other, other_link) = fleet.clients
    append = fleet.hub.log.append

    def full(head: bytes, body: bytes) -> int:
        fleet.hub.log.append = append  # type: ignore[method-assign]
        session.handle_data(publish(b"t", b"two", 2))
        other.handle_data(publish(b"t", b"beside", 1))
        raise LogFull("no space left on device")

    fleet.hub.log.append = full  # type: ignore[method-assign]
    session.handle_data(publish(b"t", b"one", 1))
    fleet.hub.kernel.flush()
    assert link.closed and other_link.closed and not link.take() + other_link.take()
    assert fleet.values() == []


@pytest.mark.parametrize("on_denied", ["acknowledge", "disconnect"])
def test_a_topic_that_is_gone_is_found_out_by_each_by_itself(on_denied: str) -> None:
    """Those who may not have it made anew are denied; what others have published elsewhere is stored."""
    may_create = [True]

    def decide(principal: object, operation: Operation, address: str) -> bool:
        return operation is not Operation.CREATE or may_create[0]

    hub = FakeHub(routes=(RouteEntry("t", "gone"), RouteEntry("#", "all")), settings=SMALL, decision=decide)
    fleet = Fleet(4, hub, MqttConfig(on_denied=on_denied))
    may_create[0] = False
    hub.kernel.create_topic("all")
    hub.admission.forget_places()
    for n, (session, _) in enumerate(fleet.clients):
        session.handle_data(publish(b"u", b"kept", 1))
        if n != 2:
            session.handle_data(publish(b"t", b"x", 2))
    hub.kernel.flush()
    assert [link.take() for _, link in fleet.clients] == [acks(1, 2), acks(1, 2), acks(1), acks(1, 2)]
    for n, (session, _) in enumerate(fleet.clients):
        session.handle_data(publish(b"u", b"kept", 3) if n == 2 else publish(b"t", b"x", 3))
    hub.kernel.delete_topic("gone")
    hub.kernel.flush()
    if on_denied == "acknowledge":
        assert [link.take() for _, link in fleet.clients] == [acks(3)] * 4
    else:
        assert [link.closed for _, link in fleet.clients] == [True, True, False, True]
        assert fleet.clients[2][1].take() == acks(3)
    assert fleet.values() == [b"kept"] * 5


def test_rights_that_are_taken_away_are_those_of_what_comes_next() -> None:
    """What was judged before the change is stored, as it was taken; what comes behind it is not."""
    fleet = Fleet(3)
    for session, _ in fleet.clients:
        session.handle_data(publish(b"t", b"before", 1))
    fleet.hub.admission.on_rule_changed(None, read_rule(
        {"effect": "deny", "who": "everyone", "operations": ["publish"], "pattern": "t"}, "1"))
    for session, _ in fleet.clients:
        session.handle_data(publish(b"t", b"after", 2))
    fleet.hub.kernel.flush()
    assert fleet.values() == [b"before"] * 3
    assert [link.take() for _, link in fleet.clients] == [acks(1, 2)] * 3


def test_a_client_that_leaves_has_published_all_the_same() -> None:
    fleet = Fleet(3)
    for session, _ in fleet.clients:
        session.handle_data(publish(b"t", b"x", 1) + b"\xe0\0")
    fleet.hub.cut(fleet.clients[1][0])
    fleet.hub.kernel.flush()
    assert fleet.values() == [b"x"] * 3


def test_who_subscribes_afterwards_is_sent_nothing_of_it() -> None:
    """By the same connection: the subscription comes behind the publish, and its messages begin behind it."""
    fleet = Fleet(1)
    (session, link), = fleet.clients
    session.handle_data(publish(b"t", b"before", 1))
    session.handle_data(b"\x82\x06\0\1\0\1t\0")
    session.handle_data(publish(b"t", b"behind", 2))
    fleet.hub.kernel.flush()
    sent = link.take()
    assert b"behind" in sent and b"before" not in sent


def test_nothing_is_gathered_without_bound() -> None:
    fleet = Fleet(1)
    (session, link), = fleet.clients
    gathering = fleet.hub.services.door("mqtt").gathering
    for n in range(GATHERED_MESSAGES - 1):
        session.handle_data(publish(b"t", b"", n + 1))
    assert gathering.waits
    session.handle_data(publish(b"t", b"", GATHERED_MESSAGES))
    assert not gathering.waits
    session.handle_data(publish(b"t", b"x" * 900, 1) * (PART_BYTES // 900 + 1))
    assert not gathering.waits
    fleet.hub.kernel.flush()
    assert link.take().startswith(acks(*range(1, GATHERED_MESSAGES + 1)))


def test_a_hub_that_stops_takes_nothing_more() -> None:
    fleet = Fleet(2)
    done: list[bool] = []
    fleet.clients[0][0].handle_data(publish(b"t", b"in time", 1))
    fleet.hub.kernel.close(lambda: done.append(True))
    fleet.clients[1][0].handle_data(publish(b"t", b"late", 1))
    fleet.hub.kernel.flush()
    assert done and fleet.clients[0][1].take() == acks(1)
    assert fleet.clients[1][1].closed and fleet.clients[1][1].take() == b""
    with pytest.raises(Stopping):
        fleet.hub.kernel.committer.gather(lambda: None, lambda: 0)


def test_journeys_name_who_published_each() -> None:
    rig = Rig(routes=Routes((), ROUTES), journeys=JourneySettings(rate=1.0), settings=KernelSettings())
    now_ms = rig.world.loop.now_ms
    services = Services("hub", rig.kernel, Admission(rig.kernel, now_ms), now_ms)
    assert GATEWAY.session is not None
    sessions = []
    for n in range(7):
        session = GATEWAY.session(FakeLink(peer=f"192.0.2.{n}:1"), services, MqttConfig())
        session.handle_data(connect(b"c%d" % n) + publish(b"t/x", b"first", 9))
        sessions.append(session)
    rig.run()
    for n in (3, 1, 4, 0, 5, 2, 6):
        sessions[n].handle_data(publish(b"t/x", b"%d" % n, 1))
    rig.run()
    told = [(event.client, event.peer) for event in events(rig)]
    assert told[-7:] == [(f"c{n}", f"192.0.2.{n}:1") for n in (3, 1, 4, 0, 5, 2, 6)]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_clients_do_in_whatever_order_each_is_answered_in_its_own(seed: int) -> None:
    chance = random.Random(seed)
    fleet = Fleet(6)
    asked: list[list[int]] = [[] for _ in fleet.clients]
    wanted: list[list[bytes]] = [[] for _ in fleet.clients]
    answered: list[bytes] = [b""] * 6
    for step in range(400):
        n = chance.randrange(6)
        session, link = fleet.clients[n]
        count = chance.choice((1, 1, 1, 2, 20))
        ids = [len(asked[n]) + 1 + at for at in range(count)]
        kind = chance.random()
        if kind < 0.75:
            session.handle_data(b"".join(publish(b"t", b"%d %d" % (n, i), i) for i in ids))
            wanted[n] += [b"%d %d" % (n, i) for i in ids]
        elif kind < 0.85:
            session.handle_data(b"".join(publish(b"$delayed/1000/t", b"later", i) for i in ids))
        elif kind < 0.9:
            session.handle_data(b"".join(publish(b"$SYS/no", b"dropped", i) for i in ids))
        else:
            session.handle_data(b"".join(publish(b"new/%d" % step, b"%d %d" % (n, i), i) for i in ids))
            wanted[n] += [b"%d %d" % (n, i) for i in ids]
        asked[n] += ids
        if chance.random() < 0.1:
            fleet.hub.kernel.flush()
        answered[n] += link.take()
    fleet.hub.kernel.flush()
    for n, (_, link) in enumerate(fleet.clients):
        assert not link.closed, link.reason
        assert answered[n] + link.take() == acks(*asked[n])
        assert [value for value in fleet.values() if value.startswith(b"%d " % n)] == wanted[n]


def test_a_call_over_http_and_what_others_call_meanwhile_are_one_append() -> None:
    """Each is answered with where its own messages went."""
    fleet = Fleet(1)
    guard = fleet.hub.services.guard("http", fleet.hub.admission.anonymous, None)
    place, told = guard.place("t"), Told()
    for n in range(30):
        assert guard.gather([(place, b"%d" % n, NO_HEADERS, 2, 0)] * (n % 3 + 1), told, n, 10, positions=True)
    assert guard.gather([(place, b"x" * 2000, NO_HEADERS, 2, 0)], told, "too large", 10, positions=True)
    fleet.hub.kernel.flush()
    positions = {stored.token: stored.positions for stored in told.stored if stored.error is None}
    assert list(positions) == list(range(30)) and [len(positions[n]) for n in range(3)] == [1, 2, 3]
    refused, = [stored for stored in told.stored if stored.error is not None]
    assert refused.token == "too large" and isinstance(refused.error, MessageTooLarge)
    at = {record[0]: record[3] for record in fleet.hub.kernel.records("all")}
    assert all(at[offset] == b"%d" % n for n in positions for _, offset, _ in positions[n])


class Told:
    """A door that wants to know where messages went."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []

    def on_stored(self, stored: list[Stored]) -> None:
        self.stored += stored

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        raise AssertionError("positions were wanted")

    def on_all_gathered(self) -> None:
        raise AssertionError("positions were wanted")

    def enter_alone(self, guard: Guard, messages: list[Message], token: object, size_bytes: int) -> bool:
        try:
            guard.append(messages, self, token, size_bytes, positions=True)
        except KernelError as error:
            self.on_stored([Stored(token, error, 0, [])])
        return False
