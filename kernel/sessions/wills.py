"""Wills: what is published when a client's connection breaks, or the hub ends under it.

    keep ──► break_off ──► [delay] ──► due ──► published, some in a turn, each with the end of its record in one frame
      └────► forget

After a start of the hub every will whose client was connected is broken off: the connection is no more.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.message import Owner, StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.sessions.session_records import decode_will, encode_will, named_key, will_is_due
from gatehouse.kernel.sessions.session_values import Will
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.write.committer import Committer, Slices
from gatehouse.kernel.write.pending_frame import PendingFrame

NOT_BROKEN: Final = 0          # of a due time: the client is connected
TRY_AGAIN_MS: Final = 1_000    # where the hub takes no messages just now
STALE_MAX: Final = 1_024       # entries of the heap that may be out of date, and as many as there are others
STEP_WILLS: Final = 16         # published, or read at a start, before the clock is read



class Wills:  # decision 167
    """What is published when a client's connection breaks, or the hub ends under it. A `Participant` of each frame that
    changes wills."""

    def __init__(self, loop: Loop, state: StateTable, committer: Committer, on_error: Callable[[Exception], None]
                 ) -> None:
        self._loop = loop
        self._state = state
        self._committer = committer
        self._slices = Slices(loop, on_error)
        self._wills: dict[bytes, bytes] = {}                       # as they lie in the state, whose objects these are
        self._waiting: list[tuple[int, bytes]] = []                # a heap; some are out of date
        self._alarm = Alarm(loop.call_at, self._look)              # for the first of them
        self._due: deque[tuple[bytes, bytes]] = deque()            # to be published now,
        self._owed: set[tuple[bytes, bytes]] = set()               # or a little later, whoever is back by then
        self._taken_back: set[bytes] = set()                       # by clients that said goodbye, and not durably yet
        self._publish: Callable[[Will], bool] | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._wills)

    def open(self) -> None:
        """After recovery."""
        self._wills.update(self._state.scan(Kind.WILL))

    def start(self) -> None:
        """Connections of before are no more."""
        names = list(self._wills)
        self._slices.run(self._break_off_all(names), self._go_on)

    def stop(self) -> None:
        """Publish nothing more."""
        self._stopped = True

    def publish_by(self, publish: Callable[[Will], bool]) -> None:
        """See `api.SessionsPort.publish_wills`."""
        self._publish = publish
        self._go_on()

    # ---- what doors tell

    def keep(self, will: Will, owner: Owner, token: object) -> None:
        """Raises Stopping."""
        name, value = named_key(will.tenant, will.client_id), encode_will(will, NOT_BROKEN)
        self._put(name, value).answer(owner, token)
        self._wills[name] = value
        self._taken_back.discard(name)

    def forget(self, tenant: str, client_id: str) -> None:
        """Raises Stopping."""
        name = named_key(tenant, client_id)
        value = self._wills.get(name)
        if value is not None:
            self._put(name, None)
            del self._wills[name]
            if will_is_due(value) == NOT_BROKEN and (name, value) not in self._owed:
                self._taken_back.add(name)

    def break_off(self, tenant: str, client_id: str) -> None:
        """Raises Stopping."""
        name = named_key(tenant, client_id)
        value = self._wills.get(name)
        if value is not None and will_is_due(value) == NOT_BROKEN:
            self._break_off(name, value)
            self._go_on()

    def end_session(self, tenant: str, client_id: str) -> None:
        """The session is no more: a will that waits for its delay is due [MQTT-3.1.3-9]."""
        name = named_key(tenant, client_id)
        value = self._wills.get(name)
        if value is not None and will_is_due(value) != NOT_BROKEN:
            self._be_due(name, value)
            self._go_on()

    def _due_ms(self, name: bytes) -> int:
        """When a will is due; `NOT_BROKEN`: not yet, or there is none."""
        value = self._wills.get(name)
        return NOT_BROKEN if value is None else will_is_due(value)

    # ---- time

    def _break_off_all(self, names: list[bytes]) -> Iterator[None]:
        for count, name in enumerate(names, 1):
            value = self._wills.get(name)
            due_ms = self._due_ms(name)
            if value is not None and due_ms == NOT_BROKEN:
                self._break_off(name, value)
            elif value is not None:
                self._wait(name, due_ms)
            if not count % STEP_WILLS:
                yield

    def _break_off(self, name: bytes, value: bytes) -> None:
        will, _ = decode_will(name, value)
        if not will.delay_ms:
            self._be_due(name, value)
            return
        due_ms = self._loop.now_ms() + will.delay_ms
        value = encode_will(will, due_ms)
        self._put(name, value)
        self._wills[name] = value
        self._wait(name, due_ms)

    def _be_due(self, name: bytes, value: bytes) -> None:
        due = name, value
        if due not in self._owed:
            self._owed.add(due)
            self._due.append(due)

    def _wait(self, name: bytes, due_ms: int) -> None:
        if len(self._waiting) > 2 * len(self._wills) + STALE_MAX:
            self._waiting = [(will_is_due(value), name) for name, value in self._wills.items() if will_is_due(value)]
            heapify(self._waiting)
        heappush(self._waiting, (due_ms, name))
        self._alarm.ring_by(due_ms)

    def _look(self) -> None:
        now_ms = self._loop.now_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            due_ms, name = heappop(self._waiting)
            value = self._wills.get(name)
            if value is not None and will_is_due(value) == due_ms:
                self._be_due(name, value)
        if self._waiting:
            self._alarm.ring_by(self._waiting[0][0])
        self._go_on()

    # ---- publishing

    def _go_on(self) -> None:
        if self._due and self._publish is not None and not self._slices.busy and not self._stopped:
            self._slices.run(self._publish_due(), self._go_on)

    def _publish_due(self) -> Iterator[None]:
        count = 0
        while self._due and not self._stopped:
            name, value = self._due.popleft()
            try:
                if self._publish is None or not self._publish(decode_will(name, value)[0]):
                    self._loop.call_at(self._loop.now_ms() + TRY_AGAIN_MS, partial(self._try_again, name, value))
                    continue
                self._owed.discard((name, value))
                if self._wills.get(name) is value:   # else its client has another, or none
                    self._put(name, None)
            except Stopping:                         # it is in the state still: the next start publishes it
                self._stopped = True
                return
            if self._wills.get(name) is value:
                del self._wills[name]
            count += 1
            if not count % STEP_WILLS:
                yield

    def _try_again(self, name: bytes, value: bytes) -> None:
        self._due.append((name, value))
        self._go_on()

    def _look_again(self, name: bytes, value: bytes) -> None:
        if self._wills.get(name) is value:
            self._be_due(name, value)
            self._go_on()

    # ---- frames

    def _put(self, name: bytes, value: bytes | None) -> PendingFrame:
        frame = self._committer.put_state([StateRecord(Kind.WILL, name, value)])
        frame.join(self)
        return frame

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """The records are in it already."""
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """Memory knows it already."""
        if self._taken_back:
            self._taken_back.difference_update([record.key for record in frame.state
                                                if record.kind == Kind.WILL and record.value is None])

    def failed(self, frames: list[PendingFrame]) -> None:
        """Wills are as the state says, but what clients did is not undone: what was due is due again, whose connection
        broke waits, and who has said goodbye has none."""
        records = [record for frame in frames for record in frame.state if record.kind == Kind.WILL]
        waiting = {record.key: record.value for record in records if record.value and will_is_due(record.value)}
        for name in dict.fromkeys([record.key for record in records]):
            value = self._state.get(Kind.WILL, name)
            was_known = name in self._wills
            if value is None or name in self._taken_back:
                self._wills.pop(name, None)
                if value is not None:
                    self._loop.call_at(self._loop.now_ms() + TRY_AGAIN_MS, partial(self._forget_again, name))
                continue
            if will_is_due(value) == NOT_BROKEN:
                value = waiting.get(name, value)
            self._wills[name] = value
            due_ms = will_is_due(value)
            if due_ms != NOT_BROKEN or not was_known:
                self._loop.call_at(max(due_ms, self._loop.now_ms() + TRY_AGAIN_MS),
                                   partial(self._look_again, name, value))

    def _forget_again(self, name: bytes) -> None:
        if name in self._taken_back and not self._stopped:
            try:
                self._put(name, None)
            except Stopping:                         # the next start takes the hub's end for that of the connection
                pass
