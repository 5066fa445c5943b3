"""Messages that one slow client is still to be sent: in memory up to a bound, then as ranges of the log.

A range names consecutive offsets of one partition; when its turn comes it is read back by the guard and what it holds
waits in memory like the rest. Order is that of `keep`: memory first, since a message goes to memory only while
no range is owed. When more ranges are owed than may be remembered, QoS 0 messages are dropped and counted; for QoS 1
the client is given up: a silent gap would be a lie.

What the client may not have any more when rights have changed is dropped, from memory and from the ranges.

All of it is charged to the budget of all connections, and bounded by a part of what is left of that, too: the less
there is, the sooner a client has ranges only, and the fewer of them.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.gateways.mqtt import mapping
from gatehouse.gateways.mqtt.codec import size_of
from gatehouse.gateways.mqtt.properties import is_timed
from gatehouse.kernel.errors import OffsetOutOfRange, StorageFailed, UnknownPartition

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import ReadBack
    from gatehouse.gateways.door_side import HeardAddress
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Record
    from gatehouse.kernel.write.committer import Slices

FETCH_RANGES: Final = 64               # ranges read back in one go
FETCH_BYTES: Final = 256 * 1024        # and bytes
LEAST_FETCH_BYTES: Final = 32 * 1024   # the same where nothing is left of the budget
MESSAGE_BYTES: Final = 128             # of memory for each message that waits, beside its value
RANGE_BYTES: Final = 128               # and for each range
LEAST_RANGES: Final = 250              # that a client may be owed where nothing is left of the budget

Waiting = tuple["HeardAddress", "list[Message]", int, int, bool]
"""(address, messages, index of the first that has not been sent, the highest QoS that they are sent with, whether they
are the client's own: see `Outbox.send`)"""


# decision 56: a slow one has references into the log
class Range:
    """Consecutive offsets of one partition, all of one address, that the client is owed.

    The partition is noted, since an address moves when its topic gets more partitions.
    """

    __slots__ = ("address", "partition_id", "first_offset", "count", "qos", "is_own")

    def __init__(self, address: HeardAddress, first_offset: int, count: int, qos: int, is_own: bool) -> None:
        self.address = address
        self.partition_id = address.partition_id
        self.first_offset = first_offset
        self.count = count
        self.qos = qos                             # the highest that they are sent with
        self.is_own = is_own                       # the client's

    def goes_on(self, address: HeardAddress, offset: int, qos: int, is_own: bool) -> bool:
        """Whether a message of this address at this offset is the next."""
        return (self.address is address and self.partition_id == address.partition_id
                and self.first_offset + self.count == offset and self.qos == qos and self.is_own is is_own)


class Backlog:
    """Made by an `Outbox` when it first has to hold something back."""

    def __init__(self, outbox: Outbox) -> None:
        self.waiting_bytes = 0
        self.unacknowledged = 0                    # messages of QoS 0 in here
        self._outbox = outbox
        self._unsent = outbox.clients.unsent
        self._charged = 0                          # to the budget of all connections
        self._waiting: deque[Waiting] = deque()
        self._ranges: deque[Range] = deque()
        self._fetching = False
        self._judged_under: object = outbox.guard.version      # the rights that what waits was judged by
        self._asked_under: object = None           # the same of what is read from the log; None: it is not wanted

    @property
    def empty(self) -> bool:
        return not self._waiting and not self._ranges

    @property
    def ranges(self) -> int:
        return len(self._ranges)

    def holds(self, acknowledged: bool) -> bool:
        """Whether something is in here that must be sent before a newer message of this QoS."""
        return not self.empty if acknowledged else self.unacknowledged > 0

    def clear(self) -> None:
        self.unacknowledged = 0
        self._waiting.clear()
        self._ranges.clear()
        self._charge(-self._charged)
        self._outbox.clients.catching_up.remove(self)

    def _charge(self, by: int) -> None:
        self._charged += by
        self._unsent.charge(by)

    def keep(self, address: HeardAddress, messages: list[Message], start: int, stop: int, offset: int, qos: int,
             is_own: bool) -> None:
        """Hold back `messages[start:stop]`, whose first is at `offset`; `qos` is the highest they are sent with."""
        ranges = self._ranges
        count = stop - start
        if not self._keep_in_memory(address, messages, start, stop, qos, is_own):
            if ranges and ranges[-1].goes_on(address, offset, qos, is_own):
                ranges[-1].count += count
            elif self._may_owe_another():
                ranges.append(Range(address, offset, count, qos, is_own))
                self._charge(RANGE_BYTES)
            elif qos:
                self._outbox.session.give_up(f"slow_consumer: it is owed more than {len(ranges)} stretches of the log")
                return
            else:
                self._outbox.trace.on_event("mqtt", "dropped_slow", count)
                return
        if not qos:
            self.unacknowledged += count

    def _may_owe_another(self) -> bool:
        most = self._outbox.config.max_waiting_ranges
        return len(self._ranges) < (most if self._unsent.part() else min(most, LEAST_RANGES))

    def _keep_in_memory(self, address: HeardAddress, messages: list[Message], start: int, stop: int,
                        qos: int, is_own: bool) -> bool:
        if self._ranges:
            return False
        size = size_of(messages, start, stop)
        if self.waiting_bytes + size > self._outbox.config.max_waiting_bytes:
            return False
        if self._charged + size + MESSAGE_BYTES * (stop - start) > self._unsent.part():
            return False
        whole = stop - start == len(messages)      # then the list is shared with the others that it waits for
        self._wait(address, messages if whole else messages[start:stop], size, qos, is_own)
        return True

    def _wait(self, address: HeardAddress, messages: list[Message], size: int, qos: int, is_own: bool) -> None:
        self._waiting.append((address, messages, 0, qos, is_own))
        self.waiting_bytes += size
        self._charge(size + MESSAGE_BYTES * len(messages))

    def pump(self) -> None:
        """Send what waits, as far as window and socket allow, when its turn comes: at once where nobody else waits."""
        if self._may_send() or self._may_read():
            self._outbox.clients.catching_up.add(self)

    def go_on(self) -> None:
        """The backlog's turn has come: send one piece of what waits, then read the next from the log."""
        if self._judged_under is not self._outbox.guard.version:
            self.look_again()
        self._send_waiting()
        if self._may_read():
            self._fetch()                # answered before it returns where all is in memory
        self.pump()

    def look_again(self) -> None:  # decision 336
        """Rights have changed: what the client may not have any more is dropped and counted."""
        self._judged_under = self._outbox.guard.version
        self._drop(self._denied({waiting[0] for waiting in self._waiting} | {owed.address for owed in self._ranges}))

    def _denied(self, addresses: set[HeardAddress]) -> set[HeardAddress]:
        may_consume = self._outbox.guard.may_consume
        return {address for address in addresses if not may_consume(address.address)}

    def _drop(self, denied: set[HeardAddress]) -> None:
        if not denied:
            return
        dropped = 0
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            address, messages, start, qos, _ = each
            if address not in denied:
                self._waiting.append(each)
                continue
            count, size = len(messages) - start, size_of(messages, start, len(messages))
            self.waiting_bytes -= size
            self._charge(-size - MESSAGE_BYTES * count)
            dropped += self._let_go(count, qos)
        ranges, self._ranges = self._ranges, deque()
        for owed in ranges:
            if owed.address not in denied:
                self._ranges.append(owed)
                continue
            self._charge(-RANGE_BYTES)
            dropped += self._let_go(owed.count, owed.qos)
        self._asked_under = None                   # it was asked for what is owed no more
        self._outbox.trace.on_event("mqtt", "dropped_denied", dropped)

    def _let_go(self, count: int, qos: int) -> int:
        if not qos:
            self.unacknowledged -= count
        return count

    def _may_send(self) -> bool:
        return len(self._waiting) > 0 and self._outbox.may_send(self._waiting[0][3] > 0)

    def _may_read(self) -> bool:
        return (len(self._ranges) > 0 and not self._waiting and not self._fetching
                and self._outbox.may_send(self._ranges[0].qos > 0))

    def _send_waiting(self) -> None:
        outbox, waiting = self._outbox, self._waiting
        outbox.begin()
        while waiting:
            if outbox.outgoing is None:            # for MQTT 5 it is seen when properties are written
                self._leave_out_expired()
            address, messages, start, qos, is_own = waiting[0]
            stop = outbox.send(address, messages, start, len(messages), qos, is_own)
            size = size_of(messages, start, stop)
            self.waiting_bytes -= size
            self._charge(-size - MESSAGE_BYTES * (stop - start))
            if not qos:
                self.unacknowledged -= stop - start
            if stop < len(messages):
                waiting[0] = (address, messages, stop, qos, is_own)
                break
            waiting.popleft()
        outbox.flush()

    def _leave_out_expired(self) -> None:
        """What comes next goes without what has expired as it waited."""
        address, messages, start, qos, is_own = self._waiting[0]
        if not any(is_timed(message[2]) for message in islice(messages, start, None)):
            return
        clients = self._outbox.clients
        now_ms = clients.wall_ms()
        living = [message for message in islice(messages, start, None)
                  if not clients.has_expired(message, now_ms)]
        count = len(messages) - start - len(living)
        if count:
            size = size_of(messages, start, len(messages)) - size_of(living, 0, len(living))
            self.waiting_bytes -= size
            self._charge(-size - MESSAGE_BYTES * count)
            self._let_go(count, qos)
            self._waiting[0] = address, living, 0, qos, is_own
            self._outbox.trace.on_event("mqtt", "expired", count)

    # --- reading back ------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        firsts: dict[int, int] = {}
        addresses: set[HeardAddress] = set()
        for owed in islice(self._ranges, FETCH_RANGES):
            firsts.setdefault(owed.partition_id, owed.first_offset)
            addresses.add(owed.address)
        denied = self._denied(addresses)
        if denied:                       # heard before the connection was told that rights have changed
            self._drop(denied)
            return
        size = max(LEAST_FETCH_BYTES, min(FETCH_BYTES, self._unsent.part()))
        self._fetching = True
        self._asked_under = self._judged_under
        self._outbox.guard.read_back([(partition_id, offset, size // len(firsts))
                                      for partition_id, offset in firsts.items()], addresses, size, self._on_fetched)

    def _on_fetched(self, answers: list[ReadBack]) -> None:
        self._fetching = False
        if not self._ranges:             # the client has gone meanwhile
            return
        if self._asked_under is not self._outbox.guard.version:
            self.pump()                  # asked for again, with the rights of now
            return
        try:
            self._take_fetched({read.answer.partition_id: Found(read) for read in answers})
        except StorageFailed as error:
            self._outbox.session.give_up(f"{error.code}: what the client is owed cannot be read")
            return
        self.pump()

    def _take_fetched(self, sources: dict[int, Found]) -> None:
        """Move what was read to the waiting messages, in the order it is owed, up to the first gap."""
        ranges = self._ranges
        first = True
        while ranges:
            owed = ranges[0]
            source = sources.get(owed.partition_id)
            if source is None:
                return
            lost = source.lost_of(owed)
            if lost:
                self._outbox.trace.on_event("mqtt", "lost_retention", lost)
                owed.first_offset += lost
                owed.count -= lost
                if not owed.qos:
                    self.unacknowledged -= lost
            records = source.take(owed) if owed.count else []
            if records:
                self._keep_read(owed, records)
                owed.first_offset += len(records)
                owed.count -= len(records)
            elif owed.count and lost:        # the answer was for what is gone: ask again from where it begins now
                return
            elif owed.count and first:       # promised, not lost, and not there: never wait for it for ever
                raise StorageFailed(f"partition {owed.partition_id} has nothing at offset {owed.first_offset}")
            first = False
            if owed.count:
                return
            ranges.popleft()
            self._charge(-RANGE_BYTES)

    def _keep_read(self, owed: Range, records: list[Record]) -> None:
        """Let records that were read wait to be sent; those that have expired are left out."""
        address = owed.address
        expired = self._outbox.guard.has_expired
        messages = [mapping.stored_message(record) for record in records if not expired(record, address.topic)]
        if messages:
            self._wait(address, messages, size_of(messages, 0, len(messages)), owed.qos, owed.is_own)
        if len(messages) < len(records):
            self._outbox.trace.on_event("mqtt", "expired", len(records) - len(messages))
            if not owed.qos:
                self.unacknowledged -= len(records) - len(messages)


class Found:
    """The answer for one partition, taken from front to back. Raises StorageFailed."""

    def __init__(self, read: ReadBack) -> None:
        answer = self._answer = read.answer
        if answer.error is not None and not isinstance(answer.error, (OffsetOutOfRange, UnknownPartition)):
            raise StorageFailed(str(answer.error))
        self._records = read.records
        self._at = 0

    def lost_of(self, owed: Range) -> int:
        """How many of the range retention, the deletion of its topic, or damage of the disk has taken."""
        if isinstance(self._answer.error, UnknownPartition):
            return owed.count
        begins = self._answer.log_start_offset
        if not self._records:                    # what was there cannot be read, else there were some
            begins = max(begins, self._answer.next_offset)
        return max(0, min(owed.count, begins - owed.first_offset))

    def take(self, owed: Range) -> list[Record]:
        """The records of the range from its first offset on, as far as they were read."""
        records = self._records
        at = self._at
        while at < len(records) and records[at][0] < owed.first_offset:
            at += 1
        start = at
        stop_offset = owed.first_offset + owed.count
        while at < len(records) and records[at][0] < stop_offset:
            at += 1
        self._at = at
        return records[start:at]


class Continuing(Protocol):
    """Whoever has something to send or to read."""

    def go_on(self) -> None:
        """Send or read a piece."""


class CatchingUp:
    """Clients that are behind and can be sent more; one per hub, in `Clients`.

    Each is sent a piece in its turn, some milliseconds a turn of the loop for all of them. So a thousand that begin to
    read again at once hold up nobody, and none of them the others.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._waiting: deque[Continuing] = deque()
        self._known: set[Continuing] = set()          # the same, but for those whose client has gone

    def add(self, backlog: Continuing) -> None:
        """Let a backlog wait for its turn: it has something to send or to read, and room for it."""
        if backlog not in self._known:
            self._known.add(backlog)
            self._waiting.append(backlog)
            self._go_on()

    def remove(self, backlog: Continuing) -> None:
        """Take a backlog out of the turns: its client has gone."""
        self._known.discard(backlog)

    def _take_turns(self) -> Iterator[None]:
        while self._waiting:
            backlog = self._waiting.popleft()
            if backlog in self._known:
                self._known.discard(backlog)
                backlog.go_on()
                yield

    def _go_on(self) -> None:
        if self._waiting and not self._slices.busy:
            self._slices.run(self._take_turns(), self._go_on)
