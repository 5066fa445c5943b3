"""The hub on asyncio: its loop, its threads, and its peers' sockets. What the kernel and the sessions know of them is
`kernel.ports` and `contract.Link`. Hot.

    Completions    the way back from all worker threads: one wake-up of the loop per batch, not per job
    ThreadWorker   one thread with a queue of jobs, run in order
    Longest        the longest of some times, lately and since the start, for the metrics
    Stall          how long the loop was kept from running
    broken_promise what the kernel says must hold, and does not
    HubLoop        `kernel.ports.Loop` over an asyncio or uvloop event loop: the hub's two clocks, timers on each
    Connection     one peer's socket: everything a byte-stream door would otherwise write again
    Wakeups        when sessions wish to be woken

Hub time is the system's monotonic clock, from a beginning that the kernel sets. Wall time is the system's date. Once a
second the two are compared: where the date has moved by `STEP_MS` more or less than time has passed, it was stepped;
timers on wall time are set anew and who wants to know is told. Slower corrections are no steps: they are followed as
they come. While a machine sleeps hub time stands still.

Nothing here swallows an error. A job's error goes to its `done`; an error raised by a callback is our own fault and
goes to the loop's exception handler, and the callbacks after it still run.

A connection feeds a `contract.Session` and is its `contract.Link`. The rules it keeps:

- Writes of one turn leave in one system call. `write` is the transport's own method, swapped while the peer is slow and
  after the end: it collects a turn's buffers and sends them together, whether it is native or the event loop's
  (`accepting`). (To do the same in Python, with `os.write` or `socket.send`, costs a third more user time than the
  event loop's transport.)
- A peer that does not take its answers is not asked for more questions: above `high_water_bytes` it is not read (its
  door may say that it is, up to `read_on_bytes`), what it has not taken is charged to the budget of all connections,
  and when it takes nothing for `write_timeout_ms` the connection is aborted.
- While the kernel is congested, whoever sends is not read until `kernel.on_relief`.
- A session has one wish to be woken (`Wakeups`), whatever it waits for.
- A peer that resets is ordinary. An exception out of a session is our own fault: one traceback in the log, this one
  connection aborted, the others untouched.
"""
from __future__ import annotations

import asyncio
import contextlib
import fcntl
import heapq
import logging
import select
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from gatehouse.gateways.connections.open_connections import held_by
from gatehouse.gateways.tls.certificates import ends_ms_of, name_in

if TYPE_CHECKING:
    from gatehouse.gateways.connections.listener import Listener
    from gatehouse.gateways.connections.native_sockets import Reader
    from gatehouse.gateways.connections.settings import Framing
    from gatehouse.gateways.contract import Listen, Session

log = logging.getLogger("gatehouse.gateways")

# --- threads, and their way back to the loop --------------------------------------------------------------------------

T = TypeVar("T")

STORING: Final = ("gatehouse.kernel.", "gatehouse.transactions.")
"""Who promises something about what is stored."""

LONG_S: Final = 0.01             # a turn of the loop that others notice
STALL_TICK_S: Final = 0.05       # a stall longer than this is always seen, a shorter one when a tick falls into it
WINDOW_S: Final = 60.0           # what is called recent covers between one and two of these


class Longest:
    """The longest of the times that were noted, in seconds."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        """Since the start."""

        self.long = 0
        """How many were longer than `LONG_S`."""

        self._window_end_s = 0.0
        self._this_window_s = 0.0
        self._last_window_s = 0.0

    def note(self, took_s: float, now_s: float) -> None:
        """So long was taken until now."""
        if now_s >= self._window_end_s:
            self._turn_window(now_s)
        if took_s > self._this_window_s:
            self._this_window_s = took_s
            self.worst_s = max(self.worst_s, took_s)
        self.long += took_s > LONG_S

    @property
    def recent_s(self) -> float:
        """The longest time, in seconds, of the last one to two minutes."""
        now_s = time.monotonic()
        if now_s >= self._window_end_s:
            self._turn_window(now_s)
        return max(self._this_window_s, self._last_window_s)

    def _turn_window(self, now_s: float) -> None:
        over = now_s >= self._window_end_s + WINDOW_S        # nothing was noted for a whole window
        self._last_window_s, self._this_window_s = 0.0 if over else self._this_window_s, 0.0
        self._window_end_s = now_s + WINDOW_S


Done = Callable[[Any, "BaseException | None"], None]


class Completions:
    """Finished jobs of every worker on their way to the loop's thread.

    A thread adds to the queue first and looks at `_signalled` second; the loop clears `_signalled` first and empties
    the queue second. So a finished job is never left behind, and a burst of them wakes the loop once.
    """

    def __init__(self, aio: asyncio.AbstractEventLoop, turns: Longest | None = None) -> None:
        self._aio = aio
        self._turns = turns or Longest()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._signalled = False
        self.wakeups = 0

    def post(self, done: Done, result: Any, error: BaseException | None) -> None:
        """Called from a worker thread."""
        self._finished.append((done, result, error))
        if self._signalled:
            return
        self._signalled = True
        try:
            self._aio.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop has been closed: whoever waited for this result is gone with it.
            if not self._aio.is_closed():
                raise

    def _deliver(self) -> None:
        self.wakeups += 1
        self._signalled = False
        finished = self._finished
        began_s = time.monotonic()
        while finished:
            done, result, error = finished.popleft()
            try:
                done(result, error)
            except Exception as fault:
                self._aio.call_exception_handler({"message": "a completion failed", "exception": fault})
        now_s = time.monotonic()
        self._turns.note(now_s - began_s, now_s)


class ThreadWorker:
    """`kernel.ports.Worker`: one thread that runs its jobs in order. With several `threads` jobs begin in order, and
    end as they may."""

    def __init__(self, name: str, completions: Completions, threads: int = 1) -> None:
        self.name = name
        self._completions = completions
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        # A daemon: a job stuck on a dead disk cannot keep a failing hub alive. `close` waits for the normal end.
        self._threads = [threading.Thread(target=self._run, name=f"gatehouse-{name}", daemon=True)
                         for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._jobs.put((job, done))

    def close(self, abandon: bool = False) -> None:
        """Run what has been submitted, unless it is abandoned, then end the threads; returns when they have ended."""
        while abandon and not self._jobs.empty():
            with contextlib.suppress(Empty):
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        jobs, post = self._jobs, self._completions.post
        while True:
            item = jobs.get()
            if item is None:
                return
            job, done = item
            try:
                result = job()
            except BaseException as error:    # even SystemExit belongs to whoever submitted the job
                post(done, None, error)
            else:
                post(done, result, None)
            del item, job, done    # an idle worker keeps nothing alive


def broken_promise(fault: BaseException | None) -> str | None:
    """What must hold by an assertion of the kernel's, or of transactions, that failed with `fault`; None for any other
    fault, such as an assertion of a library's that a peer may have brought about."""
    traceback = fault.__traceback__ if isinstance(fault, AssertionError) else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
    return str(fault) if module.startswith(STORING) else None


class Stall:
    """How late the loop runs its timers, which is how long something kept it from running."""

    def __init__(self, aio: asyncio.AbstractEventLoop) -> None:
        self._aio = aio
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._longest = Longest()

    @property
    def recent_ms(self) -> float:
        """The longest stall of the last one to two minutes."""
        return self._longest.recent_s * 1000

    @property
    def worst_ms(self) -> float:
        """The longest stall since the start."""
        return self._longest.worst_s * 1000

    @property
    def long(self) -> int:
        """How many stalls were longer than `LONG_S`, of those that a tick fell into."""
        return self._longest.long

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self._due_s = self._aio.time() + STALL_TICK_S
        self._handle = self._aio.call_later(STALL_TICK_S, self._tick)

    def _tick(self) -> None:
        self._longest.note(max(self._aio.time() - self._due_s, 0.0), time.monotonic())
        self._arm()


# --- the loop ---------------------------------------------------------------------------------------------------------

MAX_TIMER_SLEEP_S: Final = 60.0
"""A timer is looked at again at least this often: over a long wait a clock that is being corrected drifts away."""

LOOK_S: Final = 1.0            # between two comparisons of the clocks,
STEP_MS: Final = 500           # and from where on a difference is a step: a clock that is slewed gains 0.5 ms a second


class ClockTimer:
    """One call at a time of one of the clocks."""

    __slots__ = ("_loop", "_clock", "_when_ms", "_callback", "_handle")

    def __init__(self, loop: HubLoop, clock: Callable[[], int], when_ms: int, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._when_ms = when_ms
        self._callback: Callable[[], None] | None = callback
        self._handle: asyncio.TimerHandle | None = None
        self._arm(when_ms - clock())

    def cancel(self) -> None:
        self._callback = None
        self._loop.wall_timers.discard(self)
        self._disarm()

    def look_again(self) -> None:
        """Set the timer anew: its clock was stepped."""
        self._disarm()
        self._arm(self._when_ms - self._clock())

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, wait_ms: int) -> None:
        wait_s = min(max(wait_ms, 0) / 1000, MAX_TIMER_SLEEP_S)
        self._handle = self._loop.aio.call_later(wait_s, self._check)

    def _check(self) -> None:
        """Call back, if the time has come. The event loop counts from when its turn began, so it may be early."""
        wait_ms = self._when_ms - self._clock()
        if wait_ms > 0:
            self._arm(wait_ms)
            return
        self._loop.wall_timers.discard(self)
        callback, self._callback, self._handle = self._callback, None, None
        if callback is not None:
            self._loop.timed(callback)


class HubLoop:
    """The kernel's loop over an event loop. `wall_ns` is another clock in tests only."""

    def __init__(self, aio: asyncio.AbstractEventLoop, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.aio = aio
        self.turns = Longest()
        """What the kernel did at one go: a flush with its answers, a slice of deliveries, a timer."""

        self.wall_timers: set[ClockTimer] = set()
        self._wall_ns = wall_ns
        self._zero_ns = 0                                    # what is added to the monotonic clock
        self._apart_ms = 0                                   # wall time - hub time, when last looked at
        self._listeners: list[Callable[[int], None]] = []
        self.begin_at(self.wall_ms())

    # ---- clocks

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._zero_ns) // 1_000_000

    def wall_ms(self) -> int:
        return self._wall_ns() // 1_000_000

    def begin_at(self, now_ms: int) -> None:
        self._zero_ns = now_ms * 1_000_000 - time.monotonic_ns()
        self._apart_ms = self.wall_ms() - now_ms

    # ---- steps

    def on_step(self, callback: Callable[[int], None]) -> None:
        self._listeners.append(callback)
        if len(self._listeners) == 1:
            self.aio.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self.aio.call_later(LOOK_S, self._look)
        apart_ms = self.wall_ms() - self.now_ms()
        by_ms, self._apart_ms = apart_ms - self._apart_ms, apart_ms
        if abs(by_ms) >= STEP_MS:
            for timer in list(self.wall_timers):
                timer.look_again()
            for callback in self._listeners:
                callback(by_ms)

    # ---- timers

    def timed(self, callback: Callable[[], None]) -> None:
        """Call it and note how long it took."""
        began_s = time.monotonic()
        try:
            callback()
        finally:
            now_s = time.monotonic()
            self.turns.note(now_s - began_s, now_s)

    def call_soon(self, callback: Callable[[], None]) -> None:
        # Both loops run what is added while callbacks run in their next turn, after this turn's I/O has been handled.
        self.aio.call_soon(self.timed, callback)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        return ClockTimer(self, self.now_ms, when_ms, callback)

    def call_at_wall(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        timer = ClockTimer(self, self.wall_ms, when_ms, callback)
        self.wall_timers.add(timer)
        return timer


# --- connections ------------------------------------------------------------------------------------------------------

# Why a connection is not read; any bit set means that it is not.
WRITER_SLOW: Final = 1
CONGESTED: Final = 2
SESSION_PAUSED: Final = 4
ENDING: Final = 8
STILL_SENDING: Final = 16         # beside ENDING: the peer has sent something since it was last looked at

LINGER_TIMES: Final = 6
"""A peer that goes on sending is read on for so many times `linger_ms` at most."""

# Linux tells of a peer that sends no more, even where it has sent something before that was not read yet; elsewhere
# only a reset is seen.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

TICK_MS: Final = 10      # how much later than asked a wake-up may come
TURN_MS: Final = 50      # for so long sleepers are woken in one turn of the loop; the rest waits for the next


def peer_name(address: object) -> str:
    """`host:port` of a socket address, with brackets round an IPv6 host."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address) if address else "unknown"


def _system_buffered(transport: asyncio.Transport) -> int:
    """Bytes that the system holds and the peer has not acknowledged; 0 where it does not say."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0
    try:
        answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


def _discard(data: bytes, /) -> None:
    """What `write` does once the connection has ended: answers that come late are nobody's."""


def _discard_many(parts: Iterable[bytes], /) -> None:
    """`write_many` once the connection has ended."""


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer of a transport has hung up, asked of the system: the event loop does not hear it of a peer that
    is not read. False where the system cannot tell."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return transport.is_closing()
    poll = select.poll()
    poll.register(sock.fileno(), _HUNG_UP)
    return bool(poll.poll(0))


class Connection(asyncio.Protocol):
    """One peer's socket. Made by a `Listener`, which owns it."""

    __slots__ = ("certificate", "certificate_ends_ms", "id", "listen", "peer", "since_ms", "write", "write_many",
                 "_lingers", "_listener", "_transport", "_framing", "_session", "_idle", "_taken_mark", "_written",
                 "_charged", "_session_due_ms", "_write_due_ms", "_armed_ms", "_armed_tick")

    write: Callable[[bytes], None]
    write_many: Callable[[list[bytes]], None]

    def __init__(self, listener: Listener, listen: Listen, framing: Framing | None = None) -> None:
        self.id = ""
        self.peer = "unknown"
        self.listen = listen
        self.certificate: str | None = None
        self.certificate_ends_ms = 0
        self.since_ms = 0
        self.write = _discard
        self.write_many = _discard_many
        self._listener = listener
        self._framing = framing          # what stands between the door's session and the bytes of this connection
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._lingers = 0                # closed, and read on for so many times `linger_ms` at most
        self._idle = 0                   # bits: why the peer is not read
        self._written = 0                # bytes written since the peer became slow
        self._charged = 0                # of what is unsent, to the budget of all connections; 0 while it keeps up
        self._taken_mark = 0             # how many of them it had taken at the last look
        self._session_due_ms = 0
        self._write_due_ms = 0
        self._armed_ms = 0               # when the wake-ups will call `wake`; 0: they will not
        self._armed_tick = 0

    # --- what the session sees ---------------------------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        transport = self._transport
        return transport is None or bool(self._idle & ENDING) or has_hung_up(transport)

    @property
    def unsent_bytes(self) -> int:
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size()

    @property
    def is_read(self) -> bool:
        return not self._idle

    def close(self, reason: str = "") -> None:
        transport = self._transport
        if transport is None or self._idle & ENDING:
            return
        paused = self._idle
        self._end(reason)
        listener = self._listener
        if reason and listener.settings.linger_ms and not listener.stopping and transport.can_write_eof():
            self._linger(transport, paused)
            return
        transport.close()
        if transport.get_write_buffer_size():
            self._watch_writes()         # a peer that does not even take the goodbye is not waited for

    def _linger(self, transport: asyncio.Transport, paused: int) -> None:  # decision 173
        """Say that nothing more comes, and read on for a while: a system that closes with something unread resets the
        connection, and the peer never sees what it was told last (RFC 1122, 4.2.2.13)."""
        self._lingers = LINGER_TIMES
        transport.write_eof()
        if paused:
            transport.resume_reading()
        self._watch_writes()
        self._write_due_ms = self._listener.now_ms() + self._listener.settings.linger_ms
        self._arm()

    def abort(self, reason: str) -> None:
        """Close without sending what is queued."""
        transport = self._transport
        if transport is None:
            return
        if not self._idle & ENDING:
            self._end(reason)
        transport.abort()

    def pause(self) -> None:
        self.hold(SESSION_PAUSED)

    def resume(self) -> None:
        self.release(SESSION_PAUSED)

    def wake_at(self, when_ms: int) -> None:
        self._session_due_ms = when_ms
        self._arm()

    def read_through(self, reader: Reader | None) -> bool:  # decision 258
        """See `contract.Link`."""
        transport = self._transport
        offer_to: Callable[[Reader | None], None] | None = getattr(transport, "set_reader", None)
        if offer_to is None or self._idle & ENDING:
            return False
        offer_to(reader)
        return True

    def hand_over(self, door: str, framing: Framing, greeting: bytes, rest: bytes) -> bool:  # decision 98
        """See `contract.Link`."""
        transport, before = self._transport, self._listener
        listener = before.open_door(door)
        if transport is None or self._idle & ENDING or listener is None:
            return False
        if listener is not before:
            if not listener.take_over(self, before):
                return False
            self._listener = listener
            if self._armed_ms:
                before.wakeups.discard(self._armed_tick, self)
                self._armed_ms = 0
            transport.set_write_buffer_limits(listener.settings.high_water_bytes, listener.settings.low_water_bytes)
        self.read_through(None)
        self._session_due_ms = 0
        self._session = None
        self.write(greeting)
        try:
            session = self._session = framing(self, listener.new_session)
        except Exception:
            self._fault("opening a session")
            return True
        self._arm()
        self.resume()
        if rest and session is not None:
            self.data_received(rest)
        return True

    # --- what the event loop calls -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        listener = self._listener
        settings = listener.settings
        self._transport = stream
        self.peer = peer_name(stream.get_extra_info("peername"))
        self.since_ms = listener.wall_ms()
        if self.listen.tls is not None:
            certificate = stream.get_extra_info("peercert")
            self.certificate = name_in(certificate, listener.certificate_user)
            self.certificate_ends_ms = ends_ms_of(certificate)
        refused = listener.admit(self)
        if refused:
            self._refuse(stream, refused)
            return
        stream.set_write_buffer_limits(settings.high_water_bytes, settings.low_water_bytes)
        self.write = stream.write
        self.write_many = stream.writelines
        try:
            framing = self._framing
            self._session = listener.new_session(self) if framing is None else framing(self, listener.new_session)
        except Exception:
            self._fault("opening a session")

    def data_received(self, data: bytes) -> None:
        session = self._session
        if session is None or self._idle & ENDING:
            self._idle |= STILL_SENDING
            return
        try:
            session.handle_data(data)
        except Exception:
            self._fault("handling its data")
        self.data_taken()

    def data_taken(self) -> None:
        """A read was taken, by the session or by its reader."""
        listener = self._listener
        if not listener.reads_when_congested and listener.kernel.congested:
            listener.hold_until_relief(self)

    def eof_received(self) -> bool:
        """A peer that stops sending is gone: none of the protocols half-closes."""
        self.close()
        return False

    def pause_writing(self) -> None:
        if not self._idle & ENDING:
            self.write = self._write_counted
            self.write_many = self._write_many_counted
        self._note_untaken(self.unsent_bytes)
        self._watch_writes()

    def resume_writing(self) -> None:
        self._charge(0)
        transport = self._transport
        if transport is None or self._idle & ENDING:
            return
        self.write = transport.write
        self.write_many = transport.writelines
        self._write_due_ms = 0
        self.release(WRITER_SLOW)
        session = self._session
        if session is not None:
            try:
                session.handle_drained()
            except Exception:
                self._fault("going on after a pause")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._charge(0)
        self._idle |= ENDING
        self.write = _discard
        self.write_many = _discard_many
        listener = self._listener
        if self._armed_ms:
            listener.wakeups.discard(self._armed_tick, self)
            self._armed_ms = 0
        self._session_due_ms = self._write_due_ms = 0
        listener.forget(self)
        session, self._session = self._session, None
        if session is not None:
            try:
                session.handle_closed()
            except Exception:
                listener.fault(self, "closing")

    # --- what the listener and the wake-ups call ---------------------------------------------------------------------

    def hold(self, why: int) -> None:
        """Stop reading for one of the reasons above."""
        if not self._idle and self._transport is not None:
            self._transport.pause_reading()
        self._idle |= why

    def release(self, why: int) -> None:
        if self._idle & why:
            self._idle &= ~why
            if not self._idle and self._transport is not None:
                self._transport.resume_reading()

    def stop(self) -> None:
        """The hub is shutting down."""
        session = self._session
        if session is not None and not self._idle & ENDING:
            try:
                session.handle_stopping()
            except Exception:
                self._fault("stopping")

    def end(self, reason: str) -> None:
        """Somebody in charge wants this connection closed: in the protocol's words, as far as the peer takes them."""
        session = self._session
        if session is not None and not self._idle & ENDING:
            try:
                session.on_principal_ended(reason)
            except Exception:
                self._fault("ending it")

    @property
    def certificate_der(self) -> bytes | None:
        """See `OpenConnection`."""
        certificate: bytes | None = None if self._transport is None else self._transport.get_extra_info("peercert_der")
        return certificate

    def held_bytes(self) -> int:
        """See `OpenConnection`."""
        return held_by(self._session)

    def describe(self) -> dict[str, Any]:
        session = self._session
        described = {} if session is None else session.describe()
        transport = self._transport
        return {"id": self.id, "door": self._listener.spec.name, "peer": self.peer, "listener": str(self.listen),
                "since": self.since_ms, "tls": transport and transport.get_extra_info("tls_version"),
                "certificate": self.certificate, "unsent_bytes": self.unsent_bytes, **described}

    def wake(self, now_ms: int) -> None:
        self._armed_ms = 0
        if self._write_due_ms and self._write_due_ms <= now_ms:
            self._check_writes(now_ms)
        session = self._session
        if self._session_due_ms and self._session_due_ms <= now_ms and session is not None:
            self._session_due_ms = 0
            try:
                session.handle_timer(now_ms)
            except Exception:
                self._fault("handling a timer")
        self._arm()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _refuse(self, stream: asyncio.Transport, reason: str) -> None:
        refusal = self._listener.spec.refusal
        if refusal is None:
            stream.abort()
        else:
            stream.write(refusal(reason))
            stream.close()

    def _write_counted(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None:
            before = self.unsent_bytes
            transport.write(data)
            unsent = self.unsent_bytes
            self._written += unsent - before             # which are more than `data` has, under TLS
            self._note_untaken(unsent)

    def _write_many_counted(self, parts: list[bytes]) -> None:
        transport = self._transport
        if transport is not None:
            before = self.unsent_bytes
            transport.writelines(parts)
            unsent = self.unsent_bytes
            self._written += unsent - before
            self._note_untaken(unsent)

    def _note_untaken(self, unsent: int) -> None:  # decision 363
        """So much waits for a slow peer."""
        self._charge(unsent)
        listener = self._listener
        if unsent > listener.unsent.allowed(listener.settings.read_on_bytes):
            self.hold(WRITER_SLOW)

    def _charge(self, unsent: int) -> None:
        self._listener.unsent.charge(unsent - self._charged)
        self._charged = unsent

    def _watch_writes(self) -> None:
        self._written = self.unsent_bytes
        self._taken_mark = self._taken()
        self._write_due_ms = self._listener.now_ms() + self._listener.settings.write_timeout_ms
        self._arm()

    def _check_writes(self, now_ms: int) -> None:
        """Abort a peer that has taken nothing since the last look."""
        self._write_due_ms = 0
        if not self.unsent_bytes:
            if self._lingers:
                self._linger_on(now_ms)
            return
        taken = self._taken()
        if taken <= self._taken_mark:
            self.abort("write_timeout")
            return
        self._taken_mark = taken
        self._charge(self.unsent_bytes)
        self._write_due_ms = now_ms + self._listener.settings.write_timeout_ms

    def _linger_on(self, now_ms: int) -> None:  # decision 329
        """Let go of a peer that has sent nothing since the last look. One that sends may have far to read yet to what
        it was told last, and would be reset on the way."""
        self._lingers -= 1
        if self._lingers and self._idle & STILL_SENDING:
            self._idle &= ~STILL_SENDING
            self._write_due_ms = now_ms + self._listener.settings.linger_ms
        elif self._transport is not None:
            self._transport.close()

    def _taken(self) -> int:
        """A count that grows by every byte that the peer itself has taken since `_watch_writes`.

        What lies in the system's buffer is not taken: that buffer frees room in large steps only, so that a slow but
        living peer would seem dead for as long as one step lasts.
        """
        transport = self._transport
        if transport is None:
            return 0
        return self._written - transport.get_write_buffer_size() - _system_buffered(transport)

    def _arm(self) -> None:
        """Keep one entry in the wake-ups: the earlier of what the session and the write watch want."""
        due_ms, write_due_ms = self._session_due_ms, self._write_due_ms
        if write_due_ms and (not due_ms or write_due_ms < due_ms):
            due_ms = write_due_ms
        if not due_ms or self._transport is None:
            return                       # an entry that is no longer wanted fires once and finds nothing to do
        if self._armed_ms:
            if self._armed_ms <= due_ms:
                return
            self._listener.wakeups.discard(self._armed_tick, self)
        self._armed_ms = due_ms
        self._armed_tick = self._listener.wakeups.add(due_ms, self)

    def _end(self, reason: str) -> None:
        self.read_through(None)
        self.write = _discard
        self.write_many = _discard_many
        self._idle |= ENDING
        self._session_due_ms = 0
        self._listener.note_end(self.peer, reason)

    def _fault(self, doing: str) -> None:
        self._listener.fault(self, doing)
        self.abort("internal_error")


class Sleeper(Protocol):
    def wake(self, now_ms: int) -> None:
        """The time asked for has come. Must not raise."""


class Wakeups:
    """One loop timer for all connections: buckets of sleepers by due time, of `TICK_MS`. `now_ms` is hub time; `loop`
    only serves the nearest bucket.

    A connection has at most one entry, and a packet never re-arms anything: a session that is woken before its time is
    up (a keep-alive whose peer has spoken since) asks again from `handle_timer`. Ten thousand idle connections with a
    keep-alive of a minute cost about a hundred dictionary operations a second and one timer of the event loop.
    """

    __slots__ = ("_loop", "_now_ms", "_buckets", "_ticks", "_timer", "_timer_tick")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._buckets: dict[int, set[Sleeper]] = {}
        self._ticks: list[int] = []                  # heap of the keys of `_buckets`
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def add(self, when_ms: int, sleeper: Sleeper) -> int:
        """Wake `sleeper` at `when_ms` or up to `TICK_MS` later; returns the tick, for `discard`."""
        tick = -(-when_ms // TICK_MS)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = {sleeper}
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer_tick:
                self._arm()
        else:
            bucket.add(sleeper)
        return tick

    def discard(self, tick: int, sleeper: Sleeper) -> None:
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.discard(sleeper)      # an emptied bucket stays until its tick: cheaper than mending the heap

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            self._timer_tick = self._ticks[0]
            delay_ms = max(0, self._timer_tick * TICK_MS - self._now_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        due: list[tuple[int, set[Sleeper]]] = []
        while self._ticks and self._ticks[0] * TICK_MS <= now_ms:
            tick = heapq.heappop(self._ticks)
            due.append((tick, self._buckets.pop(tick)))
        is_over = False                  # who asks again for now comes in the next turn: sockets are looked at between
        for tick, bucket in due:
            while bucket and not is_over:
                bucket.pop().wake(now_ms)
                is_over = self._now_ms() - now_ms >= TURN_MS
            for sleeper in bucket:       # decision 343: at its own tick, so whoever asks again is behind it
                self.add(tick * TICK_MS, sleeper)
        if not self._is_armed():         # else a sleeper that asked again has armed it
            self._arm()

    def _is_armed(self) -> bool:
        return self._timer is not None
