"""Answers to requests that calls wait for: `POST /v1/request/{address}`.

A request is a message with the properties `reply-to` and `correlation-id`, which every door shows in its own words:
MQTT 5's response topic and correlation data, AMQP's reply_to and correlation_id, Kafka's and HTTP's headers. Whoever
answers publishes to the one, with the other. Without a wish of the caller's, answers come to a queue of this door,
`$queue/replies.http`, which AMQP reaches by its default exchange and every other door by that address; with one, they
come to an address, which links carry between hubs as any other.

The first answer counts. One that nobody waits for is gone from the queue, as nobody will ask for it.
"""
# decision 211: answers come to one queue of the door, or to an address of the caller's
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Reply
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.message import NOBODY, Headers, Record
from gatehouse.kernel.records.record import public_headers

if TYPE_CHECKING:
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.switchboard import Delivery
    from gatehouse.kernel.api import Taken

QUEUE: Final = "replies.http"
REPLY_TO: Final = b"reply-to"
CORRELATION: Final = b"correlation-id"
ANSWER_MS: Final = 60_000              # an answer that nobody has taken by then is of no use to anybody
CREDIT: Final = 1_000
MAX_WAITING: Final = 10_000            # requests of all users at once


class Came:
    """An answer: the record, and where it is stored. One that was heard live has no id (0), and a partition to look it
    up in."""

    __slots__ = ("record", "topic", "partition", "address", "partition_id")

    def __init__(self, record: Record, topic: str, partition: int, address: str, partition_id: int) -> None:
        self.record = record
        self.topic = topic
        self.partition = partition
        self.address = address
        self.partition_id = partition_id


class Answers:
    """One tenant's. A member of the queue's group, and a `LiveListener` for addresses."""

    def __init__(self, door: Door, tenant: str) -> None:
        self._door = door
        self._tenant = tenant
        self._joined = False
        self._member = 0
        self._waiting: dict[tuple[str, bytes], Reply[Came | None]] = {}
        self._addresses: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, address: str, correlation: bytes) -> Reply[Came | None]:
        """The answer that comes to this address, or to the door's queue where it is "". Raises what the kernel
        refuses. Refuses what another request waits for: nobody could tell which of them is answered."""
        if (address, correlation) in self._waiting:
            raise Refusal("invalid_header", "another request with this X-Correlation-Id waits for its answer; left "
                                            "out, one is made")
        if address:
            count = self._addresses.get(address, 0)
            if not count:
                self._door.switchboard.subscribe(address, self, 0, self._tenant)
            self._addresses[address] = count + 1
        elif not self._joined:
            self._join()
        reply: Reply[Came | None] = Reply()
        self._waiting[address, correlation] = reply
        return reply

    def forget(self, address: str, correlation: bytes) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop((address, correlation), None)
        if address:
            count = self._addresses.pop(address) - 1
            if count:
                self._addresses[address] = count
            else:
                self._door.switchboard.unsubscribe(address, self, self._tenant)

    def _join(self) -> None:
        groups = self._door.port.groups
        groups.declare_queue(QUEUE, QueueSettings(ttl_ms=ANSWER_MS, max_length=MAX_WAITING), self._tenant, 0)
        self._member = groups.join((QUEUE, ""), self._tenant, CREDIT, False, NOBODY, self.on_leased, self.on_gone)
        self._joined = True

    # ---- what comes

    def on_leased(self, messages: list[Taken]) -> None:
        """Answers that came to the door's queue."""
        for message in messages:
            _, offset, _, message_id, timestamp_ms, key, value, headers, attributes = message.leased
            record = (offset, timestamp_ms, key, value, _headers_of(headers), attributes, message_id)
            self._give("", Came(record, f"$queue/{QUEUE}", 0, f"$queue/{QUEUE}", 0))
        self._door.port.groups.add_credit(self._member, len(messages))

    def on_gone(self) -> None:
        """Somebody has deleted the queue: the next request makes it anew."""
        self._joined, self._member = False, 0

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """See `switchboard.LiveListener`."""
        for heard, messages, first_offset, _ in deliveries:
            for at, (_, value, headers, attributes, timestamp_ms) in enumerate(messages):
                record = (first_offset + at, timestamp_ms, heard.key, value, _headers_of(headers), attributes, 0)
                self._give(heard.address, Came(record, heard.topic, heard.partition, heard.address, heard.partition_id))

    def _give(self, expected: str, came: Came) -> None:
        correlation = next((value for name, value in came.record[4] if name == CORRELATION), None)
        reply = self._waiting.get((expected, correlation or b""))
        if reply is not None:
            reply.set_result(came)


def _headers_of(encoded: bytes) -> Headers:
    try:
        return public_headers(encoded)
    except KernelError:
        return ()
