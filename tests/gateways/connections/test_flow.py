"""What sessions share: bytes that are no whole packet yet, timers, pauses, silence. And one budget for what slow peers
do not take: the largest get nothing more first, and all of it is given back.
"""
from __future__ import annotations

import asyncio

import pytest

from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.door_side import (
    FLOOR_BYTES,
    MUCH_BYTES,
    PART,
    SMALL_PART_BYTES,
    Pacer,
    ReceiveBuffer,
    Silence,
    Timers,
    UnsentBudget,
)
from gatehouse.gateways.kit import FakeLink
from tests.gateways.connections.test_connection import Stage, run, until

# --- what comes in, and time --------------------------------------------------------------------------------------

# ---- ReceiveBuffer --------------------------------------------------------------------------------------------------

def test_whole_packets_are_not_copied() -> None:
    received = ReceiveBuffer()
    data = bytes(100)
    assert received.take(data) is data
    received.keep(data, 100)
    assert received.held_bytes == 0 and received.take(data) is data


def test_a_rest_comes_again_once_its_packet_is_whole() -> None:
    received = ReceiveBuffer()
    received.keep(received.take(b"wholeHAL"), 5, 6)
    assert received.take(b"F") == b"" and received.held_bytes == 4, "known to be short: nothing is joined"
    assert received.take(b"") == b""
    assert received.take(b"-Pmore") == b"HALF-Pmore" and received.held_bytes == 0


def test_a_rest_of_unknown_size_comes_with_whatever_is_next() -> None:
    received = ReceiveBuffer()
    received.keep(b"\x30", 0)
    assert received.take(b"\x05") == b"\x30\x05"
    received.keep(b"ab", 1)
    assert received.take(b"") == b"b", "what a pause left is asked for without more"


def test_what_comes_during_a_pause_is_kept_in_order() -> None:
    received = ReceiveBuffer()
    received.add(b"")
    assert received.held_bytes == 0
    received.add(b"a")
    received.add(b"b" * SMALL_PART_BYTES)
    received.add(b"c")
    assert received.held_bytes == SMALL_PART_BYTES + 2
    assert received.take(b"d") == b"a" + b"b" * SMALL_PART_BYTES + b"cd"


def test_single_bytes_are_held_in_few_pieces() -> None:
    received = ReceiveBuffer()
    received.keep(b"x", 0, 1 << 20)
    for _ in range(100_000):
        assert received.take(b"x") == b""
    assert len(received._parts) <= 1 + 100_000 // SMALL_PART_BYTES + 1


def test_what_was_needed_once_is_not_asked_of_the_next_packet() -> None:
    received = ReceiveBuffer()
    received.keep(b"ab", 0, 3)
    assert received.take(b"c") == b"abc"
    received.add(b"d")
    assert received.take(b"") == b"d"
    received.keep(b"ab", 0, 3)
    received.clear()
    assert received.held_bytes == 0 and received.take(b"e") == b"e"


# ---- Timers ---------------------------------------------------------------------------------------------------------

def test_the_link_is_told_the_first_of_all_wishes() -> None:
    link = FakeLink()
    timers = Timers(link)
    due: list[str] = []
    first = timers.add(lambda now_ms: due.append(f"first {now_ms}"))
    second = timers.add(lambda now_ms: due.append(f"second {now_ms}"))
    second.at(50)
    first.at(70)
    assert link.wake_ms == 50
    timers.handle_timer(49)
    assert due == [] and link.wake_ms == 50
    timers.handle_timer(51)
    assert due == ["second 51"] and link.wake_ms == 70
    first.at(0)
    assert link.wake_ms == 0


def test_timers_that_are_due_together_run_in_their_order_and_may_wish_again() -> None:
    link = FakeLink()
    timers = Timers(link)
    due: list[str] = []
    again = timers.add(lambda now_ms: again.at(now_ms + 10))
    other = timers.add(lambda now_ms: due.append("other"))
    other.at(5)
    again.at(5)
    link.wake_ms = 0                       # as a link does before it calls
    timers.handle_timer(5)
    assert due == ["other"] and again.when_ms == 15 and link.wake_ms == 15


def test_a_session_that_ends_in_a_timer_is_not_called_again() -> None:
    link = FakeLink()
    timers = Timers(link)
    due: list[str] = []
    timers.add(lambda now_ms: timers.stop()).at(5)
    timers.add(lambda now_ms: due.append("late")).at(5)
    timers.handle_timer(5)
    assert due == []


# ---- Pacer ----------------------------------------------------------------------------------------------------------

class Paced:
    def __init__(self) -> None:
        self.link = FakeLink()
        self.timers = Timers(self.link)
        self.received = ReceiveBuffer()
        self.taken: list[bytes] = []
        self.pacer = Pacer(self.link, self.timers, self.received, self)

    def handle_data(self, data: bytes) -> None:
        self.taken.append(self.received.take(data))


def test_a_pause_ends_at_the_latest_time_that_was_asked_for() -> None:
    paced = Paced()
    paced.received.add(b"rest")
    paced.pacer.pause_until(100)
    paced.pacer.pause_until(50)
    assert paced.link.paused and paced.pacer.waits and not paced.pacer.is_held
    paced.timers.handle_timer(99)
    assert paced.link.paused and paced.taken == []
    paced.timers.handle_timer(100)
    assert not paced.link.paused and paced.taken == [b"rest"] and not paced.pacer.waits


def test_what_is_held_goes_on_when_the_last_hold_ends() -> None:
    paced = Paced()
    paced.pacer.hold()
    paced.pacer.hold()
    paced.received.add(b"rest")
    paced.pacer.go_on(10)
    assert paced.link.paused and paced.pacer.is_held
    paced.pacer.go_on(10)
    assert paced.link.paused and paced.taken == [], "whoever calls may be in the middle of a packet"
    paced.timers.handle_timer(10)
    assert not paced.link.paused and paced.taken == [b"rest"]


def test_where_nothing_was_kept_reading_goes_on_at_once() -> None:
    paced = Paced()
    paced.pacer.hold()
    paced.pacer.go_on(10)
    assert not paced.link.paused and paced.link.wake_ms == 0


def test_a_pause_that_ends_during_a_hold_takes_nothing() -> None:
    paced = Paced()
    paced.received.add(b"rest")
    paced.pacer.pause_until(20)
    paced.pacer.hold()
    paced.timers.handle_timer(20)
    assert paced.link.paused and paced.taken == []
    paced.pacer.release()
    assert not paced.link.paused and paced.taken == [], "who releases goes on by itself"


def test_a_hold_that_ends_during_a_pause_leaves_the_pause() -> None:
    paced = Paced()
    paced.received.add(b"rest")
    paced.pacer.hold()
    paced.pacer.pause_until(20)
    paced.pacer.release()
    assert paced.link.paused
    paced.timers.handle_timer(20)
    assert not paced.link.paused and paced.taken == [b"rest"]


# ---- Silence --------------------------------------------------------------------------------------------------------

class Expecting:
    def __init__(self) -> None:
        self.ends: list[str] = []
        self.excused = False

    def on_silence(self) -> None:
        self.ends.append("silent")

    def is_excused(self) -> bool:
        return self.excused


def test_silence_is_counted_from_what_was_heard_last() -> None:
    link, session = FakeLink(), Expecting()
    timers, ends = Timers(link), session.ends
    silence = Silence(timers, session)
    silence.expect(0, 100)
    silence.hear(60)
    assert link.wake_ms == 100, "to hear moves no timer"
    timers.handle_timer(100)
    assert ends == [] and link.wake_ms == 160
    link.wake_ms = 0                       # as a link does before it calls
    timers.handle_timer(160)
    assert ends == ["silent"] and link.wake_ms == 0


def test_a_peer_that_was_not_read_has_its_time_again() -> None:
    link, session = FakeLink(), Expecting()
    timers, session.excused = Timers(link), True
    silence = Silence(timers, session)
    silence.expect(0, 100)
    timers.handle_timer(100)
    assert session.ends == [] and link.wake_ms == 200
    session.excused = False
    timers.handle_timer(200)
    assert session.ends == ["silent"]


def test_a_session_that_has_ended_is_called_no_more() -> None:
    link, session = FakeLink(), Expecting()
    timers = Timers(link)
    silence = Silence(timers, session)
    silence.expect(0, 100)
    timers.end()
    timers.handle_timer(100)
    silence.run(1_000)
    assert session.ends == []


def test_a_peer_that_need_say_nothing_is_left_alone() -> None:
    link = FakeLink()
    timers = Timers(link)
    silence = Silence(timers, Expecting())
    silence.expect(0, 100)
    silence.expect(10, 0)
    assert link.wake_ms == 0 and silence.heard_ms == 10


# --- what waits to go out -----------------------------------------------------------------------------------------

MIB = 1 << 20
PATIENT = ConnectionSettings(write_timeout_ms=60_000)


def test_the_more_is_held_the_less_each_may_hold_and_the_sum_stays_within() -> None:
    budget = UnsentBudget(64 * MIB)
    held = []
    for _ in range(5_000):
        held.append(budget.part())
        budget.charge(held[-1])
    assert held == sorted(held, reverse=True) and held[0] == 64 * MIB // PART
    assert budget.used_bytes == sum(held) <= 64 * MIB


def test_who_keeps_up_may_be_written_to_however_much_others_hold() -> None:
    budget = UnsentBudget(MIB)
    budget.charge(10 * MIB)
    assert budget.part() == 0
    assert budget.allowed(256 << 10) > FLOOR_BYTES, "beyond it the connection is slow, and its end is waited for"
    assert budget.allowed(100) == 100


def test_what_is_released_at_once_is_told_once() -> None:
    told: list[int] = []
    budget = UnsentBudget(on_released=lambda: told.append(budget.used_bytes))
    for by in (MUCH_BYTES, -MUCH_BYTES // 2, MUCH_BYTES, -MUCH_BYTES, -MUCH_BYTES // 2, 1000, -1000):
        budget.charge(by)
    assert told == [0]


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_slow_connection_is_charged_until_its_peer_takes_what_waits(plain: bool) -> None:
    async def test() -> None:
        async with Stage(settings=PATIENT) as stage:
            budget = stage.services.unsent
            reader, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: budget.used_bytes)
            session, = stage.sessions
            assert budget.used_bytes >= session.link.unsent_bytes > FLOOR_BYTES
            session.link.write(bytes(1000))
            assert budget.used_bytes == session.link.unsent_bytes, "it is charged for what comes later, too"
            await reader.readexactly(64 * 65536 + 1000)
            await until(lambda: not budget.used_bytes)
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_slow_connection_that_goes_is_charged_no_more(plain: bool) -> None:
    async def test() -> None:
        async with Stage(settings=PATIENT) as stage:
            budget = stage.services.unsent
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: budget.used_bytes)
            writer.transport.abort()
            await until(lambda: stage.sessions[0].closed)
            assert budget.used_bytes == 0
    run(test, plain=plain)


def test_the_system_holds_little_for_a_peer_that_takes_nothing() -> None:
    async def test() -> None:
        async with Stage(settings=PATIENT) as stage:
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"hello")
            await until(lambda: stage.sessions)
            link, sent = stage.sessions[0].link, 0
            while link.unsent_bytes <= FLOOR_BYTES:
                link.write(bytes(65_536))
                sent += 65_536
                await asyncio.sleep(0)
            assert sent - link.unsent_bytes < MIB, "the system would take four"
    run(test)
