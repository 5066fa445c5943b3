"""One MQTT 3.1.1 client: CONNECT, subscriptions, keep alive, the end. Publishes are `inbox`, deliveries `outbox`.

Rules kept here: packets take effect in the order they came, with one append per read; a client's fault ends in
`Link.close` with a reason and never in an exception; whatever ends the connection but DISCONNECT publishes the will
[MQTT-3.1.2-8].
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.admission import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.connections.receiving import Pacer, ReceiveBuffer, Silence, Timers
from gatehouse.gateways.mqtt import mapping, packets
from gatehouse.gateways.mqtt.clients import ClientIdRefused, Clients
from gatehouse.gateways.mqtt.codec import NEED_MORE, PUBACK_SIZE, UNKNOWN_TOPIC, body_at, decode_publishes, packet_size
from gatehouse.gateways.mqtt.config import NOT_HONOURED
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError
from gatehouse.gateways.mqtt.inbox import DOOR_NAME, Inbox
from gatehouse.gateways.mqtt.outbox import Outbox
from gatehouse.gateways.mqtt.shares import Shares
from gatehouse.gateways.mqtt.transacting import Transacting
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.sharing import SHARE, parse_share

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Link, Services
    from gatehouse.gateways.mqtt.config import MqttConfig
    from gatehouse.gateways.mqtt.packets import Connect, Will
    from gatehouse.kernel.api import Message

KEPT: Final = "clean_session_0"
QOS_MAX: Final = 1                     # the highest that a subscription is granted
PUBLISH_OVERHEAD_BYTES: Final = 5 + 2 + 65535 + 2      # fixed header, topic, packet id: a packet beyond its message
DESCRIBED_FILTERS_MAX: Final = 100
SLOW_STEPS_PER_TURN: Final = 1000      # new topics and packets other than PUBLISH and PUBACK, about 10 us each: what
                                       # one client may do before the others have their turn


class MqttSession:
    """See `contract.Session`."""

    def __init__(self, link: Link, services: Services, config: MqttConfig) -> None:
        self._link = link
        self._services = services
        self._kernel = services.kernel
        self._now_ms = services.now_ms
        self._config = config
        self._packet_bytes_max = packets.CONNECT_BYTES_MAX
        self._inbox: Inbox | None = None                   # both None until CONNECT is accepted
        self._outbox: Outbox | None = None
        self._guard: Guard | None = None
        self._tenant = ""
        self._client_id = ""
        self._wanted_id = ""                               # the same, unless it was given one
        self.user = ""
        self._will: Will | None = None
        self._filters: dict[str, int] = {}                 # granted QoS by filter
        self._ended = False
        self._stopping = False
        self._received = ReceiveBuffer()
        self._timers = Timers(link)
        self._pacer = Pacer(link, self._timers, self._received, self._take_rest)
        self._silence = Silence(self._timers, self._on_silence, self._is_not_read)
        self._silence.expect(services.now_ms(), config.connect_timeout_ms)

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        inbox, outbox = self._inbox, self._outbox
        if inbox is not None:                                  # a CONNECT that trickles in does not gain time
            self._silence.hear(self._now_ms())
        if self._pacer.is_held:
            self._received.add(data)
            return
        data = self._received.take(data)
        try:
            if inbox is not None and outbox is not None:
                self._handle_packets(data, 0, inbox, outbox)
            elif data:
                self._handle_first(data)
        except ProtocolError as error:
            self._end(f"{error.code}: {error}")

    def _handle_packets(self, data: bytes, pos: int, inbox: Inbox, outbox: Outbox) -> None:
        messages: list[Message] = []
        packet_ids: list[bytes] = []
        begin = pos
        slow_steps = 0
        guard, bytes_max = inbox.guard, self._packet_bytes_max
        try:
            while True:
                pos, why, size = decode_publishes(data, pos, bytes_max, guard.places, messages, packet_ids)
                if why == NEED_MORE:
                    self._received.keep(data, pos, size)
                    return
                if data[pos] != packets.PUBACK:
                    slow_steps += 1
                    if slow_steps > SLOW_STEPS_PER_TURN:
                        self._received.keep(data, pos)
                        self._pacer.pause_until(self._silence.heard_ms)
                        return
                if why == UNKNOWN_TOPIC:
                    if inbox.is_carried_out(data, pos):
                        if messages or packet_ids:
                            self._submit(inbox, messages, packet_ids, pos - begin)
                        inbox.carry_out(data[pos:pos + size], self._transact)
                        pos += size
                        messages, packet_ids, begin = [], [], pos
                        if self._ended:
                            return
                        if self._pacer.is_held:
                            self._received.keep(data, pos)
                            return
                    elif not inbox.place(data, pos):
                        if self._ended:
                            return
                        inbox.skip(data, pos, packet_ids)
                        pos += size
                    continue
                if data[pos] == packets.PUBACK:
                    at = outbox.acknowledge(data, pos)
                    if at == pos:
                        self._received.keep(data, pos, PUBACK_SIZE)
                        return
                    pos = at
                    continue
                size = packet_size(data, pos, self._packet_bytes_max)
                if size == 0 or pos + size > len(data):
                    self._received.keep(data, pos, size)
                    return
                if messages or packet_ids:
                    self._submit(inbox, messages, packet_ids, pos - begin)
                    messages, packet_ids, begin = [], [], pos
                self._handle_control(data[pos], data[pos:pos + size])
                if self._ended:
                    return
                pos += size
        finally:                       # also before a packet that breaks the protocol: what came before it stands
            if messages or packet_ids:
                self._submit(inbox, messages, packet_ids, pos - begin)

    def _transact(self) -> Transacting:
        assert self._inbox is not None and self._outbox is not None
        if self._outbox.transacting is None:
            self._outbox.transacting = Transacting(self._services, self._inbox, self._outbox,
                                                   f"{self.user} mqtt {self._client_id}", self._pacer)
        return self._outbox.transacting

    def _take_rest(self) -> None:
        self.handle_data(b"")

    def _submit(self, inbox: Inbox, messages: list[Message], packet_ids: list[bytes], size_bytes: int) -> None:
        wait_ms = inbox.submit(messages, packet_ids, size_bytes)
        if wait_ms and not self._ended:
            self._pacer.pause_until(self._silence.heard_ms + wait_ms)

    def _handle_control(self, first: int, packet: bytes) -> None:
        """A whole packet that is neither PUBLISH nor PUBACK."""
        if first == packets.PINGREQ:
            _check_empty(packet)
            self._link.write(packets.PINGRESP)
        elif first == packets.SUBSCRIBE:
            packet_id, wishes = packets.decode_subscribe(packet[body_at(packet, 0):])
            granted = [self._grant(raw, qos) for raw, qos in wishes]
            self._link.write(packets.encode_suback(packet_id, granted))
            self._give_retained([raw for raw, _ in wishes], granted)
        elif first == packets.UNSUBSCRIBE:
            packet_id, filters = packets.decode_unsubscribe(packet[body_at(packet, 0):])
            for raw in filters:
                self._unsubscribe(mapping.decode_filter(raw))
            self._link.write(packets.encode_unsuback(packet_id))
        elif first == packets.DISCONNECT:
            _check_empty(packet)
            self._will = None                                  # [MQTT-3.14.4-3]
            self._end("")
        elif first == packets.CONNECT:
            raise ProtocolError("[MQTT-3.1.0-2] a second CONNECT")
        else:
            raise MalformedPacket(f"[MQTT-2.2.2-2] a packet that begins with {first:#04x}")

    # --- CONNECT -----------------------------------------------------------------------------------------------------

    def _handle_first(self, data: bytes) -> None:
        if data and data[0] != packets.CONNECT:
            raise ProtocolError("[MQTT-3.1.0-1] the first packet is no CONNECT")
        size = packet_size(data, 0, self._packet_bytes_max)
        if size == 0 or size > len(data):
            self._received.keep(data, 0, size)
            return
        packet = data[:size]
        self._connect(packets.decode_connect(packet[body_at(packet, 0):]))
        if self._pacer.is_held:
            self._received.keep(data, size)
        elif self._inbox is not None and self._outbox is not None and size < len(data):
            self._handle_packets(data, size, self._inbox, self._outbox)

    def _connect(self, connect: Connect) -> None:
        if connect.protocol_level != packets.PROTOCOL_LEVEL:
            self._refuse(packets.CONNACK_BAD_PROTOCOL, f"protocol level {connect.protocol_level} [MQTT-3.1.2-2]")
            return
        if not connect.client_id and not connect.clean_session:
            self._refuse(packets.CONNACK_BAD_CLIENT_ID, "no client id, and no clean session [MQTT-3.1.3-8]")
            return
        if connect.will is not None:
            mapping.decode_topic(connect.will.topic)
        self._pacer.hold()  # decision 91

        def told(answer: Principal | NotAuthenticated) -> None:
            if self._ended:
                return
            self._pacer.release()
            if isinstance(answer, NotAuthenticated):
                self._refuse(_code_of(answer, connect), str(answer))
                return
            self._accept(connect, answer)
            if self._received.held_bytes:
                self._take_rest()                              # what came behind CONNECT

        link = self._link
        credentials = Credentials(connect.user, connect.password, certificate=link.certificate,
                                  certificate_ends_ms=link.certificate_ends_ms)
        self._services.admission.authenticate(DOOR_NAME, link.peer, credentials, told,
                                              lambda: self._ended or link.gone)

    def _accept(self, connect: Connect, principal: Principal) -> None:
        services, link = self._services, self._link
        clients = Clients.of(services)
        try:
            before = self._take_client_id(connect.client_id, principal)
        except ClientIdRefused as error:
            self._refuse(packets.CONNACK_BAD_CLIENT_ID, str(error))
            return
        guard = self._guard = services.guard(DOOR_NAME, principal, self, self._client_id, peer=link.peer)
        self._will = connect.will
        self._packet_bytes_max = self._kernel.settings.max_message_bytes + PUBLISH_OVERHEAD_BYTES
        if before is not None:
            before.handle_taken_over()
        self._inbox = Inbox(link, guard, services.admission.trace, self._end,
                            ends_on_denied=self._config.on_denied == "disconnect")
        self._outbox = Outbox(link, guard, clients, self._config, services.admission.trace, self._end)
        self._silence.expect(self._now_ms(), int(connect.keep_alive_s * 1000 * self._config.keep_alive_factor))
        if not connect.clean_session:
            services.not_honoured.note(DOOR_NAME, KEPT, NOT_HONOURED[KEPT], self._client_id)
        link.write(packets.encode_connack(packets.CONNACK_ACCEPTED))

    def _take_client_id(self, wanted: str, principal: Principal) -> MqttSession | None:
        """Be known by the id that the client wants, or by one that it is given; returns who had it. Raises
        ClientIdRefused."""
        clients = Clients.of(self._services)
        if wanted and not self._services.admission.may_have_client_id(principal, wanted):
            raise ClientIdRefused(f"{principal.name} may not have this client id")
        self._tenant, self.user, self._wanted_id = principal.tenant, principal.name, wanted
        self._client_id = wanted or clients.assign_id(self._kernel.epoch)
        return clients.connect(self._tenant, self._client_id, self)

    def _refuse(self, code: int, reason: str) -> None:
        self._link.write(packets.encode_connack(code))         # and then the connection is closed [MQTT-3.2.2-5]
        self._end(f"connect_refused: {reason}")

    # --- admission's `RegisteredSession`
    # --------------------------------------------------------------------------------------

    def on_principal_ended(self, reason: str) -> None:
        """MQTT 3.1.1 has no words for it: the connection is closed. The will of a client whose token has run out is
        published, if it may be; that of a user who is gone is nobody's."""
        guard = self._guard
        if guard is None or not 0 < guard.logged_in.expires_ms <= self._services.wall_ms():
            self._will = None
        self._end(f"principal_ended: {reason}")

    def on_rights_changed(self) -> None:
        """Subscriptions that are no longer allowed end, and so does a client whose id is not; MQTT 3.1.1 cannot tell
        the client."""
        guard, wanted = self._guard, self._wanted_id
        if guard is None or self._ended:
            return
        if wanted and not self._services.admission.may_have_client_id(guard.logged_in, wanted):
            self.on_principal_ended("its client id is no longer allowed")
            return
        guard.forget_places()
        for topic_filter in list(self._filters):
            if not self._may_subscribe(guard, topic_filter):
                self._unsubscribe(topic_filter)
                self._services.admission.trace.on_event(DOOR_NAME, "subscription_ended")

    def handle_taken_over(self) -> None:
        """Another connection has come with the same client id [MQTT-3.1.4-2]."""
        self._end("taken_over: another connection came with the same client id")

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def _grant(self, raw: bytes, qos: int) -> int:
        """Subscribe to one filter; returns what SUBACK says of it. Raises ProtocolError."""
        topic_filter = mapping.decode_filter(raw)
        assert self._guard is not None and self._outbox is not None
        shared, transacts = topic_filter.startswith(SHARE), topic_filter.startswith(mapping.TXN)
        if topic_filter.startswith(mapping.RESERVED) and not shared and not transacts:
            return self._refuse_filter("reserved")
        if topic_filter not in self._filters and len(self._filters) >= self._config.max_subscriptions:
            return self._refuse_filter("too_many")
        granted = min(qos, QOS_MAX)
        try:
            if not self._may_subscribe(self._guard, topic_filter):
                return self._refuse_filter("denied")
            if shared:
                self._shares(self._outbox).subscribe(topic_filter, granted)
            elif transacts:
                self._transact().subscribe(topic_filter, granted)
            else:
                self._guard.subscribe(topic_filter, self._outbox, granted)
        except KernelError as error:
            return self._refuse_filter(error.code)
        self._filters[topic_filter] = granted
        return granted

    def _may_subscribe(self, guard: Guard, topic_filter: str) -> bool:
        """Raises InvalidFilter."""
        if topic_filter.startswith(mapping.TXN):
            return self._transact().may_subscribe(topic_filter)
        if not topic_filter.startswith(SHARE):
            return guard.may(Operation.CONSUME, topic_filter)
        group, wanted = parse_share(topic_filter)
        return guard.may_group(Operation.CONSUME, group) and guard.may(Operation.CONSUME, wanted)

    def _give_retained(self, filters: list[bytes], granted: list[int]) -> None:
        """A shared subscription is given none, as in MQTT 5 (4.8.2), and there are none about transactions."""
        assert self._outbox is not None
        for raw, qos in zip(filters, granted, strict=True):
            if qos != packets.SUBACK_REFUSED and not raw.startswith(b"$"):
                self._outbox.give_retained(mapping.decode_filter(raw), qos)

    def _shares(self, outbox: Outbox) -> Shares:
        if outbox.shares is None:
            outbox.shares = Shares(self._kernel, outbox, self._tenant)
        return outbox.shares

    def _refuse_filter(self, why: str) -> int:
        self._services.admission.trace.on_event(DOOR_NAME, "subscribe_" + why)
        return packets.SUBACK_REFUSED

    def _unsubscribe(self, topic_filter: str) -> None:
        if self._filters.pop(topic_filter, None) is None or self._outbox is None:
            return
        if topic_filter.startswith(SHARE):
            self._shares(self._outbox).unsubscribe(topic_filter)
        elif topic_filter.startswith(mapping.TXN):
            self._transact().unsubscribe(topic_filter)
        elif self._guard is not None:
            self._guard.unsubscribe(topic_filter, self._outbox)
            self._outbox.forget_filter(topic_filter)

    # --- time, and the end -------------------------------------------------------------------------------------------

    def handle_timer(self, now_ms: int) -> None:
        self._timers.handle_timer(now_ms)

    def _on_silence(self) -> None:
        if self._inbox is None:
            self._end("connect_timeout: no CONNECT came")
        else:
            self._end("keep_alive_timeout: nothing came for too long [MQTT-3.1.2-24]")

    def _is_not_read(self) -> bool:
        """Whether it may be our doing that nothing was heard."""
        return self._inbox is not None and bool(
            self._pacer.waits or self._kernel.congested or self._link.unsent_bytes)

    def handle_drained(self) -> None:
        if self._outbox is not None:
            self._outbox.pump()

    def handle_stopping(self) -> None:
        """MQTT 3.1.1 has no goodbye: what was published is acknowledged, then the connection is closed."""
        self._will = None                                      # the client is well, it is we who go
        if self._inbox is None or self._inbox.settled:
            self._end("stopping")
            return
        self._link.pause()
        self._inbox.end_when_settled("stopping")

    def handle_closed(self) -> None:
        self._finish()
        will, self._will = self._will, None
        if will is not None and self._inbox is not None:
            self._inbox.publish_will(will)

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._finish()
            self._link.close(reason)

    def _finish(self) -> None:
        """Take nothing more and owe nothing more; idempotent."""
        self._ended = True
        self._received.clear()
        self._timers.stop()
        if self._guard is not None:
            self._guard.leave()
        outbox = self._outbox
        if outbox is None:
            return
        outbox.end()
        for topic_filter in list(self._filters):
            self._unsubscribe(topic_filter)
        Clients.of(self._services).leave(self._tenant, self._client_id, self)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {"client_id": self._client_id, "user": self.user,
                                     "subscriptions": len(self._filters),
                                     "filters": sorted(self._filters)[:DESCRIBED_FILTERS_MAX]}
        if self._outbox is not None:
            described.update(self._outbox.describe())
        return described


def _check_empty(packet: bytes) -> None:
    if len(packet) != 2:
        raise MalformedPacket("a PINGREQ or DISCONNECT with a body (3.12, 3.14)")


def _code_of(refusal: NotAuthenticated, connect: Connect) -> int:
    """CONNACK's word for it: with the last two a client has no reason to try again as it did."""
    if isinstance(refusal, LoginsFull):
        return packets.CONNACK_UNAVAILABLE
    return packets.CONNACK_NOT_AUTHORIZED if connect.user is None else packets.CONNACK_BAD_LOGIN
