"""Shared subscriptions, `$share/GROUP/FILTER`: the client is a member of a leased group and gets what is leased to it.

A message that is sent with QoS 1 stays leased until its PUBACK; when the connection ends without one, or it does not
come in time, which ends the connection, the message goes to another member. With QoS 0 it counts as done when it is
sent. The group is the same that HTTP pops from and AMQP consumes.
"""
from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.mqtt.codec import PUBACK_SIZE, encode_qos0, encode_qos1
from gatehouse.kernel.groups.group import HoldLimit
from gatehouse.kernel.message import TRANSIENT, Handle, Leased

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.api import HubPort, Message, SharedPort

CREDIT: Final = 100                    # messages of one shared filter that are sent and not acknowledged, at most


class Share:
    """One shared filter of one client: the kernel's `Member`."""

    def __init__(self, shares: Shares, kernel: HubPort, outbox: Outbox, topic_filter: str, tenant: str, qos: int
                 ) -> None:
        self._shares = shares
        self._kernel = kernel
        self._outbox = outbox
        self._filter = topic_filter
        self._waiting: list[Leased] = []
        self._qos = qos
        timeout_ms = outbox.config.ack_timeout_ms
        hold = HoldLimit(timeout_ms, self._on_overdue) if timeout_ms else None
        self.place: SharedPort = kernel.groups.share(topic_filter, self, CREDIT, keeps=qos > 0, tenant=tenant,
                                                     hold=hold, taker=outbox.guard.origin)

    def on_leased(self, messages: list[Leased]) -> None:
        """Sent as far as window and socket allow; the rest waits for `pump`."""
        self._waiting += messages
        self.pump()

    def _on_overdue(self) -> None:
        """MQTT 3.1.1 has no other way to say it."""
        self._outbox.give_up(f"ack_timeout: a message of {self._filter} was not acknowledged in time")

    def on_gone(self) -> None:
        """The topic was deleted: the subscription is there still, and gets nothing."""
        self._waiting = []

    def pump(self) -> None:
        """Send what waits."""
        outbox = self._outbox
        while self._waiting and outbox.may_send(self._qos > 0):
            count = min(len(self._waiting), outbox.window.room()) if self._qos else len(self._waiting)
            messages, self._waiting = self._waiting[:count], self._waiting[count:]
            for address, run in groupby(messages, key=self._kernel.groups.address_of_leased):
                self._send(address, list(run))

    def _send(self, address: str, messages: list[Leased]) -> None:
        name = address.encode()
        topic = len(name).to_bytes(2, "big") + name
        for transient, run in groupby(messages, key=lambda message: bool(message[8] & TRANSIENT)):
            together = list(run)
            sent: list[Message] = [_as_message(message) for message in together]
            if self._qos and not transient:
                first = self._outbox.window.take(len(sent))
                self._shares.note(self, first, [message[:3] for message in together])
                self._write(len(sent), encode_qos1(topic, sent, 0, len(sent), first))
                continue
            self._write(len(sent), encode_qos0(topic, sent, 0, len(sent)))
            if self._qos:
                self.settle([message[:3] for message in together])
            else:
                self.place.add_credit(len(together))

    def _write(self, count: int, packets: bytes) -> None:
        self._outbox.link.write(packets)
        self._outbox.flow.messages_out += count
        self._outbox.flow.bytes_out += len(packets)

    def settle(self, handles: list[Handle]) -> None:
        """Acknowledge these leases: their messages are done, and the client may be given as many more."""
        if self.place.group is not None:
            self.place.group.ack(handles)
        self.place.add_credit(len(handles))


class Shares:
    """The shared filters of one client, and which packet id stands for which lease."""

    def __init__(self, kernel: HubPort, outbox: Outbox, tenant: str) -> None:
        self._kernel = kernel
        self._outbox = outbox
        self._tenant = tenant
        self._by_filter: dict[str, Share] = {}
        self._leased: dict[int, tuple[Share, Handle]] = {}          # by packet id

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Raises InvalidFilter, InvalidGroup, AssignedGroup, Stopping."""
        self.unsubscribe(topic_filter)
        self._by_filter[topic_filter] = Share(self, self._kernel, self._outbox, topic_filter, self._tenant, qos)

    def unsubscribe(self, topic_filter: str) -> None:
        """What was sent and not acknowledged goes to another member, when the group's retry says."""
        share = self._by_filter.pop(topic_filter, None)
        if share is not None:
            self._leased = {packet_id: lease for packet_id, lease in self._leased.items() if lease[0] is not share}
            share.place.leave(None)

    def note(self, share: Share, first_id: int, handles: list[Handle]) -> None:
        """Remember which leases (`handles`) were sent with packet ids from `first_id` on, 1 following 65535."""
        for n, handle in enumerate(handles):
            self._leased[(first_id - 1 + n) % 65_535 + 1] = (share, handle)

    def on_acknowledged(self, data: bytes, start: int, stop: int) -> None:
        """The client has sent these PUBACKs."""
        done: dict[Share, list[Handle]] = {}
        for at in range(start, stop, PUBACK_SIZE):
            lease = self._leased.pop(data[at + 2] << 8 | data[at + 3], None)
            if lease is not None:
                done.setdefault(lease[0], []).append(lease[1])
        for share, handles in done.items():
            share.settle(handles)

    def pump(self) -> None:
        for share in self._by_filter.values():
            share.pump()

    def end(self) -> None:
        """The connection is over."""
        for topic_filter in list(self._by_filter):
            self.unsubscribe(topic_filter)


def _as_message(leased: Leased) -> Message:
    """For encoding: the codec looks at values alone."""
    return 0, leased[6], leased[7], leased[8], leased[4]
