"""What of a peer goes on while its messages wait: units of one letter, taken in pieces of what is left."""
from __future__ import annotations

from typing import Any, cast

import pytest

from gatehouse.gateways.door_side import Pacer, ReceiveBuffer, Timers
from gatehouse.gateways.kit import FakeLink
from gatehouse.gateways.slowing import BEHIND, COUNTS, GOES, LAST, WAITING_BYTES, Slowing

KINDS = {b"M": COUNTS, b"N": COUNTS + 1, b"a": GOES, b"b": BEHIND, b"z": LAST}


def sort(data: bytes, pos: int) -> tuple[int, int, int]:
    """A letter, and a digit that says of which stream it is."""
    return 2, KINDS[data[pos:pos + 1]], data[pos + 1] if pos + 1 < len(data) else 0


class FakeGuard:
    """Three messages at once."""

    def __init__(self) -> None:
        self.limited = True
        self.limits_version = 1
        self.left = (3, 1 << 30)
        self.is_new_to_limits = False

    def waits(self, refuses: bool) -> bool:
        return False

    def room(self) -> tuple[int, int]:
        return self.left


class Peer:
    """A session whose messages wait for ten seconds once three of them were taken together."""

    def __init__(self, wait_ms: int = 10_000) -> None:
        self.now_ms = 1000
        self.link, self.guard, self.taken = FakeLink(), FakeGuard(), [""]
        self.wait_ms = wait_ms
        self.timers = Timers(cast(Any, self.link))
        self.pacer = Pacer(cast(Any, self.link), self.timers, ReceiveBuffer(), self)
        self.slowing = Slowing(cast(Any, self.link), cast(Any, self.guard), self.timers, self.pacer,
                               lambda: self.now_ms, sort, self.take)
        self.left = b""
        self.pauses = False

    def handle_data(self, data: bytes) -> None:
        """The pacer's turn has come: nothing was kept here."""

    def take(self, data: bytes) -> bytes:
        """Letters alone."""
        left, self.left = self.left, b""
        data = data[:len(data) - len(left)]
        self.taken.append(data[::2].decode())
        if self.pauses:
            self.pacer.pause_until(self.now_ms)
        if self.wait_ms and data.count(b"M") + data.count(b"N") >= 3:
            self.slowing.wait(self.wait_ms)
        return left

    def feed(self, letters: str) -> str:
        self.taken.clear()
        self.slowing.feed("".join(letter + "1" for letter in letters).encode())
        return "|".join(self.taken)

    def turn(self) -> str:
        """What the next timer takes."""
        self.taken.clear()
        self.now_ms, self.link.wake_ms = max(self.now_ms, self.link.wake_ms), 0
        self.timers.handle_timer(self.now_ms)
        return "|".join(self.taken)

    def advance(self, ms: int) -> str:
        """What was taken within that time."""
        self.taken.clear()
        end_ms = self.now_ms + ms
        while 0 < self.link.wake_ms <= end_ms:
            self.now_ms, self.link.wake_ms = max(self.now_ms, self.link.wake_ms), 0
            self.timers.handle_timer(self.now_ms)
        self.now_ms = end_ms
        return "|".join(self.taken)


def test_messages_wait_and_the_rest_goes_on() -> None:
    peer = Peer()
    assert not peer.slowing.is_needed(b"M" * 15) and peer.slowing.is_needed(b"M" * 16)
    assert peer.feed("aMbMaMMbMa") == "aMbMaMa"
    assert peer.slowing.is_needed(b"M") and not peer.link.paused
    assert peer.feed("aMba") == "aa"
    assert peer.advance(9_999) == ""
    assert peer.advance(1) == "MbMMb"
    assert peer.advance(10_000) == "" and not peer.slowing.is_needed(b"M" * 15)


def test_of_who_has_published_nothing_acknowledgements_are_not_looked_at_one_by_one() -> None:
    peer = Peer()
    peer.guard.is_new_to_limits = True
    assert not peer.slowing.is_needed(b"a1" * 1000) and not peer.slowing.is_needed(b"")
    assert peer.slowing.is_needed(b"M1")


def test_what_is_of_another_stream_waits_as_messages_do_and_its_other_units_go_on() -> None:
    peer = Peer()
    peer.feed("MMM")
    peer.taken.clear()
    assert peer.slowing.feed(b"M1b1b2a1M2b2") == (b"", 0)
    assert peer.taken == ["ba"]
    assert peer.advance(10_000) == "MbMb"


def test_a_unit_that_is_not_all_there_is_handed_back_with_its_size() -> None:
    peer = Peer()
    assert peer.slowing.feed(b"a1M") == (b"M", 2)
    assert peer.slowing.feed(b"") == (b"", 0)


def test_messages_of_another_kind_are_not_taken_together() -> None:
    peer = Peer(wait_ms=0)
    assert peer.feed("MNNM") == "M"
    assert peer.advance(10) == "NN|M"


def test_the_goodbye_waits_for_everything_and_nothing_is_read_meanwhile() -> None:
    peer = Peer()
    peer.feed("MMMM")
    assert not peer.link.paused
    assert peer.feed("z") == "" and peer.link.paused and peer.slowing.is_full
    assert peer.advance(10_000) == "Mz" and not peer.link.paused
    assert Peer().feed("az") == "az"


def test_who_sends_too_far_ahead_is_not_read() -> None:
    peer = Peer()
    peer.feed("MMM")
    peer.feed("M" * (WAITING_BYTES // 2 + 1))
    assert peer.link.paused and peer.slowing.is_full
    peer.guard.left = (1 << 30, 1 << 30)
    assert len(peer.advance(10_000)) == WAITING_BYTES // 2 + 1
    assert not peer.link.paused and not peer.slowing.is_full


def test_a_limit_that_has_changed_is_asked_anew_within_a_second() -> None:
    peer = Peer()
    peer.feed("MMMMM")
    assert peer.advance(5_000) == ""
    peer.guard.limits_version += 1
    assert peer.advance(1_000) == "MM"


@pytest.mark.parametrize("version", [1, 2])
def test_what_waits_for_something_else_is_taken_first_once_that_is_there(version: int) -> None:
    """As in a session that is held in the middle of what it was to take."""
    peer = Peer(wait_ms=0)
    peer.left = b"M1"
    assert peer.feed("MMM") == "MM"
    peer.pacer.hold()
    peer.guard.limits_version = version
    assert peer.advance(100) == "" and peer.feed("aM") == "a"
    peer.pacer.release()
    assert peer.advance(100) == "MM"


def test_who_has_worked_for_long_enough_goes_on_in_the_next_turn() -> None:
    peer = Peer(wait_ms=0)
    peer.guard.left = (1, 1 << 30)
    peer.feed("MMMM")
    assert peer.turn() == "M|M|M"
    peer.pauses = True
    assert peer.feed("MMM") == "M"
    assert [peer.turn() for _ in range(4)] == ["", "M", "", "M"]


def test_nothing_is_taken_once_the_peer_is_gone() -> None:
    peer = Peer()
    peer.feed("MMMMM")
    peer.slowing.on_closed()
    assert peer.advance(20_000) == "" and not peer.slowing.waits
