"""Shared subscriptions, `$share/GROUP/FILTER`: the client is a member of a leased group and gets what is leased to it.

A message that is sent with QoS 1 stays leased until its PUBACK; when the connection ends without one, or it does not
come within the group's invisible time, the message goes to another member. Its packet id stays in use until the PUBACK
comes, which settles nothing then. One that is sent with QoS 2 is done when its PUBREC comes, and until that it stays
with the client's session, which may outlive connection and hub (`durable`); where the session ends without one, it
becomes a dead letter, for the client may have it (4.8.2). With QoS 0 it counts as done when it is sent. The group is
the same that HTTP pops from and AMQP consumes. A client that refuses a message (MQTT 5, reason codes from 0x80 on)
makes it a dead letter. After UNSUBSCRIBE it is given nothing more, and acknowledges what it was sent as before.
"""
from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.mqtt.codec import PUBACK_SIZE, encode_qos0, encode_qos1, first_too_large
from gatehouse.gateways.mqtt.mapping import qos_of, topic_field
from gatehouse.gateways.mqtt.properties import is_timed
from gatehouse.kernel.groups.handing_out import HoldLimit
from gatehouse.kernel.groups.sharing import parse_share
from gatehouse.kernel.message import Handle, Leased
from gatehouse.kernel.sessions.session_values import Entrusted

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.api import HubPort, Message, SharedPort

CREDIT: Final = 100                    # messages of one shared filter that are sent and not acknowledged, at most


class Share:
    """One shared filter of one client: the kernel's `Member`."""

    def __init__(self, shares: Shares, kernel: HubPort, outbox: Outbox, topic_filter: str, tenant: str, qos: int,
                 identifier: int, credit: int) -> None:
        self._shares = shares
        self._kernel = kernel
        self._outbox = outbox
        self.filter = topic_filter
        self.is_gone = False
        """Whether its queue was deleted: no more comes of it."""

        self._is_retired = False
        self._group, _ = parse_share(topic_filter)
        self._judged_under: object = outbox.guard.version      # the rights of which `_may_have` speaks
        self._may_have = True
        self._waiting: list[Leased] = []
        self._qos = qos
        self._identifier = identifier
        hold = HoldLimit(outbox.config.ack_timeout_ms, self._on_overdue, self._take_back)
        self.place: SharedPort = kernel.groups.share(topic_filter, self, credit, keeps=qos > 0, tenant=tenant,
                                                     hold=hold, taker=outbox.guard.origin)

    def on_leased(self, messages: list[Leased]) -> None:
        """Sent as far as window and socket allow; the rest waits for `pump`."""
        self._waiting += messages
        if not self._is_retired:
            self.pump()

    def changes_to(self, qos: int, identifier: int) -> bool:
        """The same filter is subscribed to again: the place stays. False where it cannot."""
        if self.is_gone or (qos > 0) != (self._qos > 0):
            return False
        self._qos, self._identifier = qos, identifier
        return True

    def retire(self) -> None:  # decision 347
        """Be given nothing more. What was sent stays, what was not goes to another member at once."""
        self._is_retired = True
        self.place.retire()
        if self._waiting and self.place.group is not None:
            self.place.group.release([message[:3] for message in self._waiting], 0)
        self._waiting = []

    def _take_back(self, handles: list[Handle]) -> list[Handle]:
        """The group's invisible time is over: another may have what was sent with QoS 1, or not sent at all."""
        wanted = {handle[:2] for handle in handles}
        sent_once = self._shares.sent_exactly(self)
        kept = [message for message in self._waiting if message[:2] not in wanted]
        if len(kept) < len(self._waiting):
            self.place.add_credit(len(self._waiting) - len(kept))
            self._waiting = kept
        return [handle for handle in handles if handle[:2] not in sent_once]

    def _on_overdue(self) -> None:
        """What was sent with QoS 2 stays with its client, so the client goes: 3.1.1 has no other way to say it."""
        self._outbox.session.give_up(f"ack_timeout: a message of {self.filter} was not acknowledged in time")

    def on_gone(self) -> None:
        """The topic was deleted: the subscription is there still, and hears of the next of that name."""
        self._waiting = []
        self.is_gone = not self.place.wait(self._shares.credit_of(self.filter))

    def pump(self) -> None:
        """Send what waits."""
        outbox = self._outbox
        while self._waiting and self._is_allowed() and outbox.may_send(self._qos > 0):
            count = min(len(self._waiting), outbox.window.room()) if self._qos else len(self._waiting)
            count = min(count, outbox.left, _fitting(self._waiting, outbox.room_now()))
            messages, self._waiting = self._waiting[:count], self._waiting[count:]
            for address, run in groupby(messages, key=self._kernel.groups.address_of_leased):
                self._send(address, list(run))

    def _is_allowed(self) -> bool:  # decision 336
        """Whether the client may have the filter; else it is about to end, and what waits goes to another."""
        guard = self._outbox.guard
        if self._judged_under is not guard.version:
            self._judged_under = guard.version
            self._may_have = guard.groups.may_share(self.filter)
        return self._may_have

    def _send(self, address: str, messages: list[Leased]) -> None:
        topic = topic_field(address)
        outgoing = self._outbox.outgoing
        if outgoing is None:
            for qos, run in groupby(self._living(messages), key=self._qos_of):
                together = list(run)
                self._send_run(topic, b"", [_as_message(message) for message in together], together, qos)
            return
        for leased in messages:
            message = _as_message(leased)
            tail = outgoing.shared_tail(message, address, self._identifier)
            if tail is None:
                self._outbox.trace.on_event("mqtt", "expired")
                self.settle([leased[:3]])
                continue
            qos = self._qos_of(leased)
            fixed = len(topic) + len(tail) + (2 if qos else 0)
            if not first_too_large([message], 0, 1, fixed, outgoing.packet_bytes_max):
                self._outbox.trace.on_event("mqtt", "dropped_large")
                self.reject([leased[:3]])
            else:
                self._send_run(topic, tail, [message], [leased], qos)

    def _living(self, messages: list[Leased]) -> list[Leased]:
        """Without those that have expired as they waited, which are settled."""
        if not any(is_timed(message[7]) for message in messages):
            return messages
        clients = self._outbox.clients
        now_ms = clients.wall_ms()
        living: list[Leased] = []
        expired: list[Handle] = []
        for message in messages:
            if clients.has_expired(_as_message(message), now_ms):
                expired.append(message[:3])
            else:
                living.append(message)
        if expired:
            self._outbox.trace.on_event("mqtt", "expired", len(expired))
            self.settle(expired)
        return living

    def _qos_of(self, message: Leased) -> int:
        return qos_of(message[8], self._qos)

    def _send_run(self, topic: bytes, tail: bytes, sent: list[Message], leased: list[Leased], qos: int) -> None:
        handles = [message[:3] for message in leased]
        durable = self._outbox.durable
        if qos == 2 and durable is not None:
            address = self._kernel.groups.address_of_leased(leased[0])
            durable.entrust([Entrusted(qos, address, self._identifier, message[7], message[6] or b"", message[8],
                                       message[4], message[:3]) for message in leased],
                            topic, tail, 0x30 | qos << 1, self._group)
            self.place.add_credit(len(leased))
            return
        if qos:
            first = self._outbox.take(len(sent), qos == 2)
            self._shares.note(self, first, handles, qos)
            self._write(len(sent), encode_qos1(topic, sent, 0, len(sent), first, tail, 0x30 | qos << 1))
            return
        self._write(len(sent), encode_qos0(topic + tail, sent, 0, len(sent)))
        if self._qos:
            self.settle(handles)
        else:
            self.place.add_credit(len(handles))

    def _write(self, count: int, packets: bytes) -> None:
        self._outbox.link.write(packets)
        self._outbox.handed_out(count, len(packets), group=self._group)

    def settle(self, handles: list[Handle]) -> None:
        """Acknowledge these leases: their messages are done, and the client may be given as many more."""
        if self.place.group is not None:
            self.place.group.ack(handles)
        self._shares.add_credit(self, len(handles))

    def reject(self, handles: list[Handle]) -> None:
        """The client does not want these messages, or may have had them: dead letters."""
        if self.place.group is not None:
            self.place.group.reject(handles)
        self._shares.add_credit(self, len(handles))


class Shares:
    """The shared filters of one client, and which packet id stands for which lease."""

    def __init__(self, kernel: HubPort, outbox: Outbox, tenant: str) -> None:
        self._kernel = kernel
        self._outbox = outbox
        self._tenant = tenant
        self._by_filter: dict[str, Share] = {}
        self._retired: list[Share] = []                        # of which something is sent and not acknowledged
        self._leased: dict[int, tuple[Share, Handle, int]] = {}     # by packet id, with the QoS

    def subscribe(self, topic_filter: str, qos: int, identifier: int = 0) -> None:
        """Raises InvalidFilter, InvalidGroup, AssignedGroup, Stopping."""
        share = self._by_filter.get(topic_filter)
        if share is not None and share.changes_to(qos, identifier):
            return
        self.unsubscribe(topic_filter)
        self._by_filter[topic_filter] = Share(self, self._kernel, self._outbox, topic_filter, self._tenant, qos,
                                              identifier, self.credit_of(topic_filter))

    def credit_of(self, topic_filter: str) -> int:
        """How many messages of a filter may be sent beside those that are not acknowledged."""
        return CREDIT - sum([lease[0].filter == topic_filter for lease in self._leased.values()])

    def unsubscribe(self, topic_filter: str) -> None:
        """What was sent is completed [MQTT-3.10.4-3]; what stays without an answer is treated as a member's."""
        share = self._by_filter.pop(topic_filter, None)
        if share is not None:
            share.retire()
            holders = {lease[0] for lease in self._leased.values()}
            self._retired = [each for each in (*self._retired, share) if each in holders]

    def add_credit(self, share: Share, count: int) -> None:
        """So many messages of a share are done with: its filter may be sent as many more."""
        self._by_filter.get(share.filter, share).place.add_credit(count)

    def _end(self, share: Share) -> None:
        """What was sent and not acknowledged goes to another member, when the group's retry says."""
        unsure = [lease[1] for lease in self._leased.values() if lease[0] is share and lease[2] == 2]
        self._leased = {packet_id: lease for packet_id, lease in self._leased.items() if lease[0] is not share}
        if unsure:
            share.reject(unsure)
        share.place.leave(None)

    def sent_exactly(self, share: Share) -> set[tuple[Any, int]]:
        """Cursor and offset of what was sent with QoS 2 for this filter and waits for its PUBREC."""
        return {lease[1][:2] for lease in self._leased.values() if lease[0] is share and lease[2] == 2}

    def note(self, share: Share, first_id: int, handles: list[Handle], qos: int) -> None:
        """Remember which leases (`handles`) were sent with packet ids from `first_id` on, 1 following 65535."""
        for n, handle in enumerate(handles):
            self._leased[(first_id - 1 + n) % 65_535 + 1] = (share, handle, qos)

    def on_acknowledged(self, data: bytes, start: int, stop: int) -> None:
        """The client has sent these PUBACKs."""
        done: dict[Share, list[Handle]] = {}
        for at in range(start, stop, PUBACK_SIZE):
            lease = self._leased.pop(data[at + 2] << 8 | data[at + 3], None)
            if lease is not None:
                done.setdefault(lease[0], []).append(lease[1])
        for share, handles in done.items():
            share.settle(handles)

    def on_answered(self, packet_id: int, taken: bool) -> None:
        """The client has this message, or says that it does not want it."""
        lease = self._leased.pop(packet_id, None)
        if lease is not None and taken:
            lease[0].settle([lease[1]])
        elif lease is not None:
            lease[0].reject([lease[1]])

    def pump(self) -> None:
        for share in self._by_filter.values():
            share.pump()

    def end(self) -> None:
        """The connection is over."""
        shares = [*self._by_filter.values(), *self._retired]
        self._by_filter, self._retired = {}, []
        for share in shares:
            self._end(share)


def _fitting(messages: list[Leased], room_bytes: int) -> int:
    """How many go out together: what fits, with the one that goes beyond it."""
    count = 0
    while count < len(messages) and room_bytes > 0:
        room_bytes -= len(messages[count][6] or b"")
        count += 1
    return count


def _as_message(leased: Leased) -> Message:
    """For encoding: the codec looks at values alone."""
    return 0, leased[6], leased[7], leased[8], leased[4]
