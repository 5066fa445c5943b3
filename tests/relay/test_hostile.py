"""Hubs and meeting points that lie: nothing wrong is accepted, and all of it is said."""
from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import encode_headers, encode_record
from gatehouse.kernel.state.state import Kind
from gatehouse.relay import frames
from gatehouse.relay.errors import BadInvitation, UnknownLink
from gatehouse.relay.frames import LEAST_FRAME_BYTES, Bounced, Carry, Hello, Presence, Proof, Refused, Welcome
from gatehouse.relay.hub_links import MAX_INVITATIONS
from gatehouse.relay.invitations import decode_invitation, encode_invitation
from gatehouse.relay.letters import Batches, Positions, Section, StoredUntil
from gatehouse.relay.origins import ORIGIN_HEADER
from gatehouse.relay.positions import Arrived, HubPartition, arrived_record
from gatehouse.relay.sealing import Identity
from gatehouse.relay.settings import LinkSettings
from tests.relay.network import NAME, Network, TestHub, carried
from tests.relay.test_messages import RECEIVE, SEND, pair

UUID = b"u" * 16


def piece(offset: int, value: bytes) -> Piece:
    return Piece(offset, 1, False, encode_record(0, 0, b"\x02a", value, b"\0"), 1_700_000_000_000, 1_700_000_000_000, 1)


def said_by(hub: TestHub, *sections: Section, number: int = 0, topic: str = "plant", uuid: bytes = UUID) -> None:
    """A letter that the hub's own machine would not have sent."""
    link = hub.links.links["link"]
    link._say(topic, Batches(number, hub.rig.world.loop.wall_ms(), uuid, topic, list(sections)))


BEGINNING = Section(0, True, 0, 2, 0, [piece(0, b"0"), piece(1, b"1")])


def received(sections: list[Section]) -> tuple[Network, TestHub, TestHub]:
    network, left, right = pair(SEND, RECEIVE)
    for number, section in enumerate(sections):
        said_by(left, section, number=number)
    network.settle(4)
    return network, left, right


def test_a_repetition_is_known_in_whole_and_in_part() -> None:
    again = Section(0, False, 0, 3, 0, [piece(0, b"0"), piece(1, b"1"), piece(2, b"2")])
    _, _, right = received([BEGINNING, BEGINNING, again])
    assert right.values("plant") == [b"0", b"1", b"2"]
    assert right.links.describe_link("link")["received"]["repeated"] == 4


@pytest.mark.parametrize("liar", [
    [BEGINNING, Section(0, False, 3, 4, 0, [piece(3, b"3")])], [BEGINNING, Section(0, True, 3, 4, 0, [piece(3, b"3")])],
    [Section(0, False, 0, 1, 0, [piece(0, b"0")])], [Section(0, False, 7, 8, 0, [piece(7, b"7")])]])
def test_a_gap_stops_the_link_on_both_sides(liar: list[Section]) -> None:
    _, left, right = received(liar)
    assert right.state("link") == left.state("link") == "stopped"
    assert "position_gap" in right.links.describe_link("link")["fault"]
    assert ("link", "stopped") in [event[:2] for event in right.events]
    assert right.rig.kernel.topic("plant") is None or right.values("plant") == [b"0", b"1"]


@pytest.mark.parametrize("section", [
    Section(0, False, 2, 3, 0, [piece(1, b"old")]), Section(0, False, 2, 3, 0, [piece(2, b"2"), piece(2, b"again")]),
    Section(0, False, 2, 3, 0, [piece(2, b"2"), piece(1, b"back")])])
def test_offsets_that_do_not_rise_are_not_stored(section: Section) -> None:
    _, _, right = received([BEGINNING, section])
    assert [value for value in right.values("plant") if value not in (b"0", b"1", b"2")] == []


FAR = (1 << 63) - 1
RECORD = encode_record(0, 0, b"\x02a", b"1", b"\0")
FROM_AFAR = encode_headers([(ORIGIN_HEADER, bytes(36) + b"\xff" * 8 + bytes(16))])


@pytest.mark.parametrize("liar", [
    [Section(0, True, 0, 2, 0, [Piece(0, 2, False, RECORD * 2, 1, 1, FAR)])],
    [Section(0, True, 0, 1, 2 * FAR, []), Section(0, False, 1, 2, 2 * FAR, [])],
    [Section(0, True, 0, FAR, FAR, [], True)] * 3,
    [Section(0, True, 0, 1, 0, [Piece(0, 1, False, encode_record(0, 0, b"\x02a", b"1", FROM_AFAR), 1, 1, 1)])],
], ids=["ids", "lost", "lost in sum", "origin"])
def test_numbers_that_no_hub_has_harm_no_other_link(liar: list[Section]) -> None:
    """What a hub cannot write down is a fault of who said it: the connection to the meeting point stays."""
    network, left, right = pair(SEND, RECEIVE)
    for number, section in enumerate(liar):
        said_by(left, section, number=number)
    network.settle(4)
    assert right.links.connections == 1


def test_what_the_other_hub_may_not_send_is_not_stored() -> None:
    _, _, right = received([Section(0, True, 0, 1, 0, [piece(0, b"0")])])
    network, left, right = pair({"send": ("#",)}, RECEIVE)
    said_by(left, Section(0, True, 0, 1, 0, [piece(0, b"0")]), topic="secret")
    said_by(left, Section(0, True, 0, 1, 0, [piece(0, b"0")]), topic="audit", number=1, uuid=b"w" * 16)
    network.settle(4)
    assert right.rig.kernel.topic("secret") is None and right.rig.kernel.topic("audit") is None
    assert right.links.describe_link("link")["received"]["not_allowed"] == 2


@pytest.mark.parametrize("lie", [StoredUntil(99), Positions([])], ids=["stored", "positions"])
def test_a_reader_that_lies_about_what_it_has_is_not_believed(lie: StoredUntil | Positions) -> None:
    network, left, right = pair(SEND, RECEIVE)
    left.rig.publish("plant/a", b"1")
    topic = left.rig.kernel.topic("plant")
    if isinstance(lie, StoredUntil):
        right.links.links["link"]._say("", lie)
    else:
        far = Arrived(1 << 40, at_ms=1, topic="plant", link="link")
        right.rig.kernel.append_with([], [arrived_record(HubPartition(left.rig.kernel.hub, topic.uuid, partition), far)
                                          for partition in range(topic.partitions)], None)
        right.rig.run()
        network.cut(right)
    network.settle(6)
    shown = left.links.describe_link("link")
    assert "position_ahead" in shown["fault"] if isinstance(lie, Positions) else shown["lag"]["messages"] >= 0
    if isinstance(lie, Positions):
        assert shown["state"] == "stopped"
    else:
        assert ("link", "faulted") in [event[:2] for event in left.events]


def tampering(change: Callable[[bytes], list[bytes]]) -> tuple[Network, TestHub, TestHub]:
    """A meeting point that does this to one sealed letter with a batch."""
    network, left, right = pair(SEND, RECEIVE)
    done: list[bool] = []

    def once(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if done or up or hub is not right or not carried(frame) or len(frame) < 200:
            return [frame]
        done.append(True)
        return change(frame)

    network.change = once
    for number in range(5):
        left.rig.publish("plant/a", b"%d" % number)
        network.turn()
    network.settle(160)
    assert done
    return network, left, right


@pytest.mark.parametrize("change", [
    lambda frame: [frame, frame], lambda frame: [], lambda frame: [frame[:-1]], lambda frame: [frame[:-1] + b"\0"],
    lambda frame: [frame[:60] + bytes((frame[60] ^ 1,)) + frame[61:]],
    lambda frame: [frame.replace(b"\0\x05plant", b"\0\x05plan2", 1)]],
    ids=["doubled", "dropped", "cut", "changed", "flipped", "moved"])
def test_a_meeting_point_that_changes_letters_is_seen(change: Callable[[bytes], list[bytes]]) -> None:
    _, left, right = tampering(change)
    assert right.values("plant") == [b"%d" % number for number in range(5)]
    assert [event for hub in (left, right) for event in hub.events if event[1] == "faulted"]


@pytest.mark.parametrize("back", [1, 3], ids=["swapped", "replayed"])
def test_a_meeting_point_that_gives_letters_in_another_order_is_seen(back: int) -> None:
    """Two that follow each other change places, or an old one comes once more behind the newest."""
    network, left, right = pair(SEND, RECEIVE)
    came: list[bytes] = []

    def reorder(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if up or hub is not right or not carried(frame) or len(frame) < 200 or len(came) > back:
            return [frame]
        came.append(frame)
        if back == 1:
            return [] if len(came) == 1 else [came[1], came[0]]
        return [frame, came[0]] if len(came) > back else [frame]

    network.change = reorder
    values = [b"%d" % number + bytes(200) for number in range(6)]
    for value in values:
        left.rig.publish("plant/a", value)
        network.tick_of(left)
        network.turn()
    network.settle(160)
    assert len(came) > back
    assert right.values("plant") == values
    assert right.links.links["link"].counts.tampered > 0
    assert [event for event in right.events if event[1] == "faulted"]


def test_a_meeting_point_with_other_keys_learns_and_changes_nothing() -> None:
    """It greets in the name of the other hub: the signature is not of the key that is pinned."""
    network, left, right = pair(SEND, RECEIVE)
    stranger = Identity(b"somebody else" * 3)

    def swap(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if carried(frame) and frame[19] in (0x10, 0x11, 0x12):
            return [frame[:-64] + stranger.sign(frame)]
        return [frame]

    network.change = swap
    network.cut(left)
    left.rig.publish("plant/a", b"1")
    network.settle(20)
    assert "open" not in (left.state("link"), right.state("link"))
    assert right.rig.kernel.topic("plant") is None
    assert left.links.links["link"].counts.tampered + right.links.links["link"].counts.tampered > 0


# ---- who is let in


def test_a_hub_that_the_file_does_not_name_is_refused() -> None:
    rng = random.Random(3)
    hub, other = TestHub("left", [], rng), TestHub("right", [], rng)
    network = Network(other, rng=rng)
    network.hubs.append(hub)
    network.settle(2)
    assert "does not know this hub" in hub.links.fault
    assert network.meeting.names() == ["right"]
    assert network.meeting.counts.refused["wrong_key"] >= 1


def test_a_proof_for_another_meeting_point_or_of_another_key_is_worth_nothing() -> None:
    network, left, _ = pair(SEND, RECEIVE)

    class Member:
        def __init__(self) -> None:
            self.frames: list[frames.Frame] = []
            self.waiting_bytes = 0

        def send(self, frame: bytes) -> None:
            self.frames.append(frames.decode(frame))

        def close(self, reason: str) -> None: ...

    for relay, identity in (("another.relay", left.links.identity), (NAME, Identity(b"x" * 32))):
        member = Member()
        visit = network.meeting.visit(member, 0)
        visit.handle_frame(frames.encode(Hello(1, 0, left.links.identity.public, b"n" * 32, "left")))
        nonce = member.frames[0].nonce
        visit.handle_frame(frames.encode(Proof(identity.sign(
            frames.what_is_proved(b"n" * 32, nonce, relay, left.links.identity.public)))))
        assert isinstance(member.frames[-1], Refused) and member.frames[-1].code == "wrong_key"


def test_a_hub_that_dialled_another_name_does_not_prove_itself() -> None:
    network, left, _ = pair(SEND, RECEIVE)
    left.links.connected(type("Wire", (), {"send": lambda *_: None, "close": lambda *_: None})(), "evil.example")
    left.links.handle_frame(frames.encode(frames.Challenge(1, 0, b"r" * 32, NAME)))
    assert "was dialled" in left.links.fault


@pytest.mark.parametrize("garbage", [b"", b"\0", b"\xff" * 50, b"\x06" + bytes(10), b"\x01GHRL\x02\0" + bytes(80),
                                     frames.encode(Presence(bytes(16), True))])
def test_garbage_ends_in_one_refusal(garbage: bytes) -> None:
    network, left, _ = pair(SEND, RECEIVE)
    left.cable.up.append(garbage)
    network.turn_of(left)
    assert any(frame[:1] == bytes((frames.REFUSED,)) for frame in left.cable.down) or left.links.fault
    network.cut(left)
    network.settle(4)
    assert left.state("link") == "open"


@pytest.mark.parametrize("size", [0, 1_024, LEAST_FRAME_BYTES - 1])
def test_a_meeting_point_that_says_it_carries_nothing_has_nothing_left_out(size: int) -> None:
    """Nor does it keep the hub busy for ever with letters that nothing goes into."""
    network, left, right = pair({**SEND, "on_lost": "go_on"}, RECEIVE)

    def lie(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        return [frames.encode(Welcome(size))] if isinstance(frames.decode(frame), Welcome) else [frame]

    network.change = lie
    network.cut(left)
    network.settle(4)
    left.rig.publish("plant/a", b"1")
    network.settle(4)
    network.change = lambda hub, frame, up: [frame]
    network.cut(left)
    network.settle()
    assert right.values("plant") == [b"1"] and not left.links.describe_link("link")["sent"]["lost"]


def test_who_is_withdrawn_is_let_go_at_once() -> None:
    network, left, right = pair(SEND, RECEIVE)
    network.meeting.configure(network.met[:1], ())
    network.settle(3)
    assert network.meeting.names() == ["left"]
    assert right.links.state != "online"
    assert left.state("link") == "absent"


def test_a_slow_hub_is_bounced_and_catches_up() -> None:
    network, left, right = pair(SEND, RECEIVE, waiting_bytes=1 << 20)
    for number in range(3):
        left.rig.publish("plant/a", *[bytes(1_000) + b"%d" % number] * 500)
    stuck = right.cable
    held, stuck.down = stuck.down, _Stuck()
    network.tick_of(left)
    network.turn_of(left)
    assert network.meeting.counts.bounced.get("too_slow", 0) > 0
    stuck.down = held
    network.cut(right)
    network.settle(60)
    assert len(right.values("plant")) == 1_500


class _Stuck(list):
    """A connection that nothing is taken from."""

    def __iter__(self):
        return iter([bytes(2 << 20)])

    def popleft(self) -> bytes:
        raise AssertionError("nothing is taken")

    def __len__(self) -> int:
        return 0


# ---- invitations


def test_an_invitation_works_once_and_ends() -> None:
    rng = random.Random(3)
    left = TestHub("left", [LinkSettings("link", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    thief = TestHub("thief", [LinkSettings("link", **RECEIVE)], rng)
    network = Network(left, right, thief, rng=rng)
    text = left.links.invite("link", 60_000)
    late = left.links.invite("link", 1_000)
    left.rig.run()
    right.links.join(text)
    network.settle(30)
    assert left.state("link") == right.state("link") == "open"
    thief.links.join(text)
    network.settle(30)
    assert thief.state("link") == "joining" and left.links.links["link"].pin.name == "right"
    assert [event for event in left.events if event[1] == "join refused"]
    network.tick(2_000)
    thief.links.join(late)
    network.settle(30)
    assert "over" in thief.links.describe_link("link")["fault"] and thief.state("link") == "joining"
    assert left.links.links["link"].pin.name == "right"
    network.tick(24 * 3_600_000)
    with pytest.raises(BadInvitation, match="over"):
        thief.links.join(late)


def test_invitations_that_are_over_are_in_nobodys_way() -> None:
    network, left, _ = pair(SEND, RECEIVE)
    for _ in range(MAX_INVITATIONS):
        left.links.invite("link", 1_000)
    left.rig.run()
    with pytest.raises(BadInvitation, match="nobody has used"):
        left.links.invite("link", 1_000)
    network.tick(2_000)
    left.links.invite("link", 1_000)
    left.rig.run()
    assert len(left.rig.kernel.link_states(Kind.INVITATION)) == 1


@pytest.mark.parametrize("apart_ms", [-3_600_000, 3_600_000])
def test_an_invitation_is_good_whatever_the_other_clock_says(apart_ms: int) -> None:
    rng = random.Random(3)
    left = TestHub("left", [LinkSettings("link", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    right.clock_apart_ms = apart_ms
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle(30)
    assert left.state("link") == right.state("link") == "open"


@pytest.mark.parametrize("change", [
    lambda text: text[:-8], lambda text: "x" + text, lambda text: "ghl1.e30", lambda text: "",
    lambda text: encode_invitation(type(decode_invitation(text))(
        **{**{name: getattr(decode_invitation(text), name) for name in decode_invitation(text).__slots__},
           "url": "wss://evil.example/v1/relay"}))])
def test_a_changed_invitation_is_refused(change: Callable[[str], str]) -> None:
    rng = random.Random(3)
    left = TestHub("left", [LinkSettings("link", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    text = left.links.invite("link", 60_000)
    with pytest.raises(BadInvitation):
        right.links.join(change(text))
    with pytest.raises(BadInvitation, match="of this hub"):
        left.links.join(text)
    with pytest.raises(UnknownLink):
        left.links.invite("another", 1)


def test_a_word_about_joining_that_makes_no_sense_cuts_nobody_off() -> None:
    """Any hub that the meeting point lets talk to this one can say it."""
    network, left, right = pair(SEND, RECEIVE)
    connections = right.links.connections
    for word in (b"\x15junk", b"\x16junk"):
        left.links._carry(right.links.identity.address, "", word)
        network.settle()
    assert right.links.connections == connections and right.state("link") == "open"
    assert "bad_frame" in str([event for event in right.events if event[1] == "join refused"])


def test_a_wrong_secret_pins_nobody() -> None:
    rng = random.Random(3)
    left = TestHub("left", [LinkSettings("link", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    network = Network(left, right, rng=rng)
    invitation = decode_invitation(left.links.invite("link", 60_000))
    left.rig.run()
    forged = type(invitation)(**{**{name: getattr(invitation, name) for name in invitation.__slots__},
                                 "secret": "00" * 32})
    right.links.join(encode_invitation(forged))
    network.settle(10)
    assert left.state("link") == "not joined"
    assert any("was not given the invitation" in event[2] for event in left.events)


def test_who_is_unlinked_is_heard_no_more() -> None:
    network, left, right = pair(SEND, RECEIVE)
    right.links.unlink("link")
    left.rig.publish("plant/a", b"1")
    network.settle(20)
    assert right.rig.kernel.topic("plant") is None
    assert right.state("link") == "not joined"


def test_a_bounce_says_why() -> None:
    assert frames.decode(frames.encode(Bounced(b"a" * 16, "not_here", "why"))) == Bounced(b"a" * 16, "not_here", "why")
    assert frames.decode(frames.encode(Carry(b"a" * 16, "t", b"x"))) == Carry(b"a" * 16, "t", b"x")
