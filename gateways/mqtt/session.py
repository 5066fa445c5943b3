"""One MQTT client: CONNECT, keep alive, the end. Publishes are `inbox`, deliveries `outbox`, filters `subscriptions`.

Rules kept here: packets take effect in the order they came, with one append per read; a client's fault ends in
`Link.close` with a reason and never in an exception, and MQTT 5 is told the reason code in DISCONNECT; whatever ends
the connection but DISCONNECT publishes the will [MQTT-3.1.2-8].
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.admission import NotAuthenticated
from gatehouse.gateways.admission.credentials import NOTHING, Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import TooManyConnections
from gatehouse.gateways.connections.wrong_port import came_to
from gatehouse.gateways.door_side import ReceiveBuffer, Silence, Timer
from gatehouse.gateways.mqtt import connecting, mapping, packets, properties, reasons
from gatehouse.gateways.mqtt.clients import ClientIdRefused, Clients
from gatehouse.gateways.mqtt.codec import (
    NEED_MORE,
    OTHER_PACKET,
    PUBACK_SIZE,
    REPEATED,
    UNKNOWN_TOPIC,
    body_at,
    decode_publishes,
    packet_id_of,
    packet_size,
    sort_packet,
)
from gatehouse.gateways.mqtt.connecting import Done, EnhancedLogin, read_auth
from gatehouse.gateways.mqtt.durable import OWN_IDS, DurableSession, Welcome
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError
from gatehouse.gateways.mqtt.inbox import DOOR_NAME, Inbox
from gatehouse.gateways.mqtt.incoming import Incoming
from gatehouse.gateways.mqtt.outbox import Outbox, Window
from gatehouse.gateways.mqtt.outgoing import Outgoing, OwnMessages
from gatehouse.gateways.mqtt.properties import Packet, stored_headers
from gatehouse.gateways.mqtt.subscriptions import Subscriptions, Wishes
from gatehouse.gateways.mqtt.system import System
from gatehouse.gateways.mqtt.transacting import Transacting
from gatehouse.gateways.slowing import SlowedSession, Sort
from gatehouse.kernel.errors import KernelError

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Link, Services
    from gatehouse.gateways.mqtt.config import MqttConfig
    from gatehouse.gateways.mqtt.native_publishes import PublishReader
    from gatehouse.gateways.mqtt.packets import Connect, Will
    from gatehouse.kernel.api import Message

new_reader: Callable[..., PublishReader] | None = None
"""Makes a native reader; None where it is not built, and the session takes everything."""
try:
    from gatehouse.gateways.mqtt import native_publishes
    new_reader = native_publishes.PublishReader
except ImportError:
    pass

PUBLISH_OVERHEAD_BYTES: Final = 5 + 2 + 65535 + 2      # fixed header, topic, packet id: a packet beyond its message
STOPPING: Final = "stopping"           # why a connection ends with the hub
TELLING_BYTES: Final = 1_024           # a client that takes smaller packets alone is sent no reason strings
PROPERTY_BYTES: Final = 65_536         # and in MQTT 5 its properties
EXACT: Final = frozenset((packets.PUBREC, packets.PUBREL, packets.PUBCOMP))
ACKS: Final = frozenset((packets.PUBACK, *EXACT))
DESCRIBED_FILTERS_MAX: Final = 100
PING: Final = bytes((packets.PINGREQ, 0))
SLOW_STEPS_PER_TURN: Final = 1000      # new topics and packets other than PUBLISH and PUBACK, about 10 us each: what
                                       # one client may do before the others have their turn


class MqttSession(SlowedSession):
    """See `contract.Session`."""

    def __init__(self, link: Link, services: Services, config: MqttConfig) -> None:
        super().__init__(link, services.now_ms)
        self._services = services
        self._kernel = services.kernel
        self._config = config
        self._packet_bytes_max = packets.CONNECT_BYTES_MAX
        self._taken_bytes_max = 0                          # of packets that the client takes; 0: any
        self._inbox: Inbox | None = None                   # made by `_takes_in`
        self._outbox: Outbox | None = None                 # None until CONNECT is accepted
        self._guard: Guard | None = None
        self._tenant = ""
        self._client_id = ""
        self._wanted_id = ""                               # the same, unless it was given one
        self.user = ""
        self._has_will = False                             # to be published if the connection ends now
        self._level = packets.MQTT311
        self._tells = True                                 # whether the client wants reason strings
        self._durable: DurableSession | None = None        # where the session may outlive the connection
        self._expiry_ms = 0                                # for how long after the connection
        self._is_let_in = False                            # CONNACK has left
        self._is_asked_who = False                         # and the answer takes time
        self._keeps_will = False                           # the kernel has the will
        self._login: EnhancedLogin | None = None           # under way
        self._method = ""                                  # of it, and of later ones
        self._proof = b""                                  # what CONNACK says of it
        self._figures: System | None = None                # where it has a filter of `$SYS`
        self._refused_bits = 0                             # of PUBLISH, see `codec.decode_publishes`
        self._subscriptions: Subscriptions | None = None
        self._pumping: Timer | None = None                 # once the client was to wait for more
        self._may_read = new_reader is not None            # a native reader, once something was published
        self._ended = False
        self._stopping = False
        self._silence = Silence(self._timers, self)
        self._silence.expect(services.now_ms(), config.connect_timeout_ms)

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        inbox, outbox = self._inbox, self._outbox
        if outbox is not None:                                 # a CONNECT that trickles in does not gain time
            self._silence.hear(self._now_ms())
            if inbox is not None and inbox.reader is not None:
                inbox.reader.close()
        if self._pacer.is_held:
            self._received.add(data)
            return
        data = self._received.take(data)
        try:
            if outbox is not None:
                if inbox is None:
                    if data == PING and not self._ended:       # decision 319
                        self._link.write(packets.PINGRESP)
                        return
                    inbox = self._takes_in()
                if self._slowing is None and not inbox.guard.limited or not self._takes_slowly(data, inbox.guard):
                    self._handle_packets(data, 0, inbox, outbox)
                if self._may_read:
                    self._open_reader(inbox, outbox)
            elif data:
                self._handle_first(data)
        except ProtocolError as error:
            self._end(f"{error.code}: {error}", error.reason_code)

    def _takes_in(self) -> Inbox:  # decision 319
        """What takes what the client publishes: made when the client first says something else than PINGREQ."""
        inbox, guard = self._inbox, self._guard
        if inbox is None:
            assert guard is not None, "the client is let in"
            config, services, incoming = self._config, self._services, None
            if self._level == packets.MQTT5:
                incoming = Incoming(services.wall_ms, config.receive_maximum, config.max_topic_aliases,
                                    tells=self._tells, checks_format=config.check_payload_format)
            inbox = self._inbox = Inbox(self._link, guard, services.admission.trace, self._end, services.wall_ms,
                                        self._slow_down, ends_on_denied=config.on_denied == "disconnect",
                                        incoming=incoming)
            if self._durable is not None:
                inbox.keep_ids_in(self._durable)
                inbox.received.update(dict.fromkeys(self._durable.received(), 0))
            self._note_own()
        return inbox

    def _note_own(self) -> None:
        """Where a filter leaves out what the client publishes itself, it is noted."""
        inbox, outbox, subscriptions = self._inbox, self._outbox, self._subscriptions
        if inbox is not None and outbox is not None and outbox.own is None and subscriptions is not None \
                and subscriptions.has_no_local:
            outbox.own = OwnMessages()
            inbox.note_own_in(outbox.own)

    def _open_reader(self, inbox: Inbox, outbox: Outbox) -> None:
        """Have what is plain taken before it comes here, where nothing waits that it would overtake."""
        if self._ended or self._received.held_bytes or outbox.transacting is not None or self._pacer.waits \
                or self._slowing is not None and self._slowing.waits:
            return
        room = inbox.reader_room()
        if not room:
            return
        reader = inbox.reader
        if reader is None:
            assert new_reader is not None
            incoming = inbox.incoming
            reader = new_reader(inbox, self._link, inbox.guard.gathering, self._services.admission,
                                None if incoming is None else incoming.meanings, self._packet_bytes_max,
                                self._refused_bits)
            if not self._link.read_through(reader):
                self._may_read = False
                return
            inbox.reader = reader
            self._silence.asks(reader.idle_ms)
        reader.open(room)

    def _close_reader(self) -> None:
        """What is under way is the inbox's."""
        inbox = self._inbox
        if inbox is not None and inbox.reader is not None:
            inbox.reader.close()

    def _take_sorted(self, data: bytes) -> bytes:
        """Handle whole packets; returns what of them has to wait for something else than a limit."""
        inbox, outbox = self._inbox, self._outbox
        if self._ended or inbox is None or outbox is None:
            return b""
        behind, self._received = self._received, ReceiveBuffer()
        try:
            self._handle_packets(data, 0, inbox, outbox)
        except ProtocolError as error:
            self._end(f"{error.code}: {error}", error.reason_code)
        left, self._received = self._received, behind
        return left.take_all()

    def _handle_packets(self, data: bytes, pos: int, inbox: Inbox, outbox: Outbox) -> None:
        messages: list[Message] = []
        packet_ids: list[bytes] = []
        exact_ids: list[bytes] = []
        begin = pos
        slow_steps = 0
        guard, bytes_max, incoming = inbox.guard, self._packet_bytes_max, inbox.incoming
        meanings = None if incoming is None else incoming.meanings
        try:
            while True:
                pos, why, size = decode_publishes(data, pos, bytes_max, guard.places, messages, packet_ids,
                                                  inbox.received, inbox.turn, exact_ids, meanings, self._refused_bits)
                if why == NEED_MORE:
                    self._received.keep(data, pos, size)
                    return
                if data[pos] != packets.PUBACK:
                    guard.settle()                             # whatever this is comes after what was gathered
                    slow_steps += 1
                    if slow_steps > SLOW_STEPS_PER_TURN:
                        self._received.keep(data, pos)
                        self._pacer.pause_until(self._silence.heard_ms)
                        return
                if why == OTHER_PACKET:
                    if data[pos] == packets.PUBACK:
                        at = outbox.acknowledge(data, pos)
                        if at > pos:
                            pos = at
                            continue
                    size = packet_size(data, pos, bytes_max)
                    if size == 0 or pos + size > len(data):
                        self._received.keep(data, pos, size)
                        return
                    if data[pos] in EXACT and size == PUBACK_SIZE:
                        inbox.check_under_way(len(packet_ids))     # before PUBREL says that it is fewer
                        pos = self._handle_exact(data, pos, inbox, outbox)
                        continue
                elif (why == REPEATED or data[pos] & 12) and self._is_repeated(data, pos, inbox, packet_ids):
                    if incoming is not None:
                        incoming.read(data[pos:pos + size])    # it may say what a topic alias stands for from now on
                    pos += size
                    continue
                elif why == REPEATED and incoming is None:     # what it repeats was not sent on this connection
                    decode_publishes(bytes((data[pos] & ~8,)) + data[pos + 1:pos + size], 0, bytes_max, guard.places,
                                     messages, packet_ids, inbox.received, inbox.turn, exact_ids, None,
                                     self._refused_bits)
                    pos += size
                    continue
                elif why == UNKNOWN_TOPIC and incoming is None and not inbox.is_carried_out(data, pos):
                    if not inbox.place(data, pos):
                        if self._ended:
                            return
                        inbox.skip(data, pos, packet_ids, exact_ids)
                        pos += size
                    continue
                publish = None
                if why != OTHER_PACKET and incoming is not None:
                    publish = incoming.read(data[pos:pos + size])
                    if inbox.take(publish, messages, packet_ids, exact_ids):
                        pos += size
                        continue
                if messages or packet_ids or exact_ids:
                    self._submit(inbox, messages, packet_ids, exact_ids, pos - begin)
                    messages, packet_ids, exact_ids, begin = [], [], [], pos
                    if self._ended:
                        return
                packet = data[pos:pos + size]
                if publish is not None:
                    inbox.take_alone(publish, packet, self._transact)
                elif why != OTHER_PACKET:
                    inbox.carry_out(packet, self._transact)
                else:
                    self._handle_control(data[pos], packet)
                if self._ended:
                    return
                pos += size
                begin = pos
                if self._pacer.is_held:
                    self._received.keep(data, pos)
                    return
        finally:                       # also before a packet that breaks the protocol: what came before it stands
            if messages or packet_ids or exact_ids:
                self._submit(inbox, messages, packet_ids, exact_ids, pos - begin)

    @staticmethod
    def _is_repeated(data: bytes, pos: int, inbox: Inbox, packet_ids: list[bytes]) -> bool:
        """Whether the PUBLISH at `pos` was sent before and is not done; where it is, that is answered. `packet_ids`:
        of QoS 1, and not submitted yet."""
        packet_id = packet_id_of(data, pos)
        if data[pos] & 4:
            if packet_id not in inbox.received:
                return False
            inbox.repeat(packet_id)
            return True
        return packet_id in packet_ids or inbox.is_under_way(packet_id)

    def _handle_exact(self, data: bytes, pos: int, inbox: Inbox, outbox: Outbox) -> int:
        """PUBREC, PUBREL or PUBCOMP packets that say yes and nothing else; returns the position behind them."""
        if data[pos] == packets.PUBREL:
            return inbox.release(data, pos, PUBACK_SIZE)
        return outbox.take_exact(data, pos, PUBACK_SIZE)

    def _release_again(self, packet: bytes) -> None:
        """MQTT 3.1: a PUBREL that is sent again, with DUP."""
        assert self._inbox is not None
        self._inbox.release(bytes((packets.PUBREL,)) + packet[1:], 0, PUBACK_SIZE)

    def _transact(self) -> Transacting:
        outbox = self._outbox
        assert outbox is not None
        if outbox.transacting is None:
            outbox.transacting = Transacting(self._services, self._takes_in(), outbox,
                                             f"{self.user} mqtt {self._client_id}", self._pacer)
        return outbox.transacting

    def _system(self) -> System:
        assert self._outbox is not None
        if self._figures is None:
            self._figures = System(self._services, self._outbox, self._config, self._timers)
        return self._figures

    def _submit(self, inbox: Inbox, messages: list[Message], packet_ids: list[bytes], exact_ids: list[bytes],
                size_bytes: int) -> None:
        wait_ms = inbox.submit(messages, packet_ids, exact_ids, size_bytes)
        if wait_ms:
            self._slow_down(wait_ms)

    def _slow_down(self, wait_ms: int) -> None:
        """A limit was overdrawn: what is published has to wait, and the rest goes on."""
        if not self._ended:
            assert self._guard is not None, "the client is let in"
            self._slows(self._guard).wait(wait_ms)

    def _sorting(self) -> Sort:
        return partial(sort_packet, packet_bytes_max=self._packet_bytes_max)

    def _can_be_refused(self) -> bool:
        return self._level == packets.MQTT5

    def _handle_control(self, first: int, packet: bytes) -> None:
        """A whole packet that is neither PUBLISH nor an acknowledgement of four bytes."""
        level = self._level
        if level == packets.MQTT31 and first >> 4 in (6, 8, 10):
            first &= ~8                                        # MQTT 3.1 lets them be sent again with DUP
        body = packet[body_at(packet, 0):]
        if first == packets.PINGREQ:
            _check_empty(packet)
            self._link.write(packets.PINGRESP)
        elif first == packets.SUBSCRIBE:
            self._subscribe(body)
        elif first == packets.UNSUBSCRIBE:
            self._unsubscribe(body)
        elif first == packets.DISCONNECT:
            self._handle_disconnect(body)
        elif level == packets.MQTT31 and first == packets.PUBREL and len(packet) == PUBACK_SIZE:
            self._release_again(packet)
        elif first in ACKS and level == packets.MQTT5:
            self._handle_ack(first, body)
        elif first in ACKS:
            raise MalformedPacket("an acknowledgement whose remaining length is not 2 (3.4.1)")
        elif first == packets.CONNECT:
            raise ProtocolError("[MQTT-3.1.0-2] a second CONNECT")
        elif first == packets.AUTH and level == packets.MQTT5:
            self._handle_auth(body)
        elif first in packets.SERVERS_ALONE:
            raise ProtocolError(f"a packet that servers alone send: {first:#04x} (2.1.2)")
        else:
            raise MalformedPacket(f"[MQTT-2.2.2-2] a packet that begins with {first:#04x}")

    def _handle_ack(self, first: int, body: bytes) -> None:
        """An MQTT 5 acknowledgement that says more than yes."""
        assert self._inbox is not None and self._outbox is not None
        packet_id, reason = packets.decode_ack(body, Packet(first >> 4))
        if first == packets.PUBACK:
            self._outbox.acknowledge_one(packet_id, reason)
        elif first == packets.PUBREL:
            self._inbox.release_ids([packet_id.to_bytes(2, "big")])
        else:
            self._outbox.answer_exact(first, packet_id, reason)

    def _handle_disconnect(self, body: bytes) -> None:
        reason = 0
        if self._level == packets.MQTT5:
            reason, given = packets.decode_reason(body, Packet.DISCONNECT)
            expiry_s = given.values.get(properties.SESSION_EXPIRY)
            if expiry_s and not self._expiry_ms:
                raise ProtocolError("(3.14.2.2.2) a session that was to end with its connection and now is not")
            if expiry_s is not None:
                self._expiry_ms = connecting.expiry_ms_of(expiry_s, self._config)
        elif body:
            raise MalformedPacket("a DISCONNECT with a body (3.14)")
        if reason != reasons.WITH_WILL:
            self._has_will = False                             # [MQTT-3.14.4-3]
        self._end("", says=False)

    # --- CONNECT -----------------------------------------------------------------------------------------------------

    def _handle_first(self, data: bytes) -> None:
        if self._is_logging_in():
            try:
                self._handle_login(data)
            except ProtocolError as error:                     # no CONNACK has left: it says why (4.13.1)
                self._write_fitting(connecting.refused(packets.MQTT5, error.reason_code,
                                                       str(error) if self._tells else ""))
                raise
            return
        if data and data[0] != packets.CONNECT:
            raise ProtocolError(came_to(data, "MQTT", "[MQTT-3.1.0-1] the first packet is no CONNECT"))
        size = packet_size(data, 0, self._packet_bytes_max)
        if size == 0 or size > len(data):
            self._received.keep(data, 0, size)
            return
        packet = data[:size]
        body = packet[body_at(packet, 0):]
        try:
            self._connect(packets.decode_connect(body))
        except ProtocolError as error:
            if connecting.level_of(body) == packets.MQTT5:
                self._link.write(connecting.refused(packets.MQTT5, error.reason_code, str(error)))
            raise
        if self._pacer.is_held:
            self._received.keep(data, size)
        elif self._is_logging_in():
            self._received.add(data[size:])
        elif self._outbox is not None and size < len(data):
            self._received.keep(data, size)
            self.handle_data(b"")

    def _connect(self, connect: Connect) -> None:
        if not connect.is_spoken:
            self._refuse(reasons.BAD_VERSION, f"protocol level {connect.protocol_level} [MQTT-3.1.2-2]")
            return
        self._level = connect.protocol_level
        bytes_max = self._taken_bytes_max = connect.properties.number(properties.MAXIMUM_PACKET)
        self._tells = not bytes_max or bytes_max >= TELLING_BYTES
        if not connect.client_id and (connect.protocol_level == packets.MQTT31 or
                                      not connect.clean_session and connect.protocol_level == packets.MQTT311):
            self._refuse(reasons.BAD_CLIENT_ID, "no client id, and no clean session [MQTT-3.1.3-8]")
            return
        if connect.will is not None and not self._may_have_will(connect.will):
            return
        method = connect.properties.values.get(properties.AUTH_METHOD, "")
        if method and method not in self._config.auth_methods:
            self._refuse(reasons.BAD_METHOD, "there is no such authentication method [MQTT5-4.12.0-1]")
            return
        if method:
            self._begin_login(method, lambda answer, proof: self._on_logged_in(connect, answer, proof)
                              ).take(connect.properties.values.get(properties.AUTH_DATA))
            return
        is_told = False

        def told(answer: Principal | NotAuthenticated) -> None:
            nonlocal is_told
            is_told = True
            if self._ended:
                return
            if self._is_asked_who:
                self._is_asked_who = False
                self._pacer.release()
            if isinstance(answer, NotAuthenticated):
                self._refuse(connecting.reason_of_refusal(answer, connect), str(answer))
                return
            self._accept(connect, answer)
            if self._received.held_bytes and not self._pacer.is_held:
                self.handle_data(b"")                              # what came behind CONNECT

        link = self._link
        credentials = NOTHING
        if connect.user or connect.password or link.certificate is not None:   # an empty name alone is nobody's
            credentials = Credentials(connect.user, connect.password, certificate=link.certificate,
                                      certificate_ends_ms=link.certificate_ends_ms)
        self._services.admission.authenticate(DOOR_NAME, link.peer, credentials, told,
                                              lambda: self._ended or link.gone)
        if not is_told and not self._ended:
            self._is_asked_who = True
            self._pacer.hold()  # decision 91

    # --- enhanced authentication -------------------------------------------------------------------------------------

    def _is_logging_in(self) -> bool:
        """Whether an enhanced login is under way."""
        return self._login is not None

    def _begin_login(self, method: str, done: Done) -> EnhancedLogin:
        scram = self._services.admission.scram(DOOR_NAME, self._link.peer, method)
        self._method = method
        login = self._login = EnhancedLogin(self._link, method, scram, self._later, done)
        return login

    def _later(self, ms: int, call: Callable[[], None]) -> None:
        self._timers.add(lambda now_ms: call()).at(self._now_ms() + max(1, ms))

    def _handle_login(self, data: bytes) -> None:
        """What comes between a CONNECT with an authentication method and its CONNACK [MQTT5-4.12.0-2]."""
        login = self._login
        size = packet_size(data, 0, self._packet_bytes_max)
        if login is None or size == 0 or size > len(data) or login.waits:
            self._received.keep(data, 0, size)
            return
        body = data[body_at(data, 0):size]
        if data[0] == packets.DISCONNECT:
            self._end("", says=False)
        elif data[0] != packets.AUTH:
            raise ProtocolError(f"[MQTT5-3.1.2-30] a packet that begins with {data[0]:#04x} before CONNACK")
        else:
            reason, said = read_auth(body, self._method)
            if reason != reasons.CONTINUE_AUTHENTICATION:
                raise ProtocolError("a client logs in again before CONNACK (4.12.1)")
            login.take(said)
            if login.waits and not self._ended:
                self._pacer.hold()
        if not self._ended and size < len(data):
            self._received.add(data[size:])
            if not self._pacer.is_held:
                self.handle_data(b"")

    def _on_logged_in(self, connect: Connect, answer: Principal | NotAuthenticated, proof: bytes) -> None:
        if self._ended:
            return
        self._login = None
        if self._pacer.is_held:
            self._pacer.release()
        if isinstance(answer, NotAuthenticated):
            self._refuse(connecting.reason_of_refusal(answer, connect), str(answer))
            return
        self._proof = proof
        self._accept(connect, answer)
        if self._received.held_bytes and not self._pacer.is_held:
            self.handle_data(b"")

    def _handle_auth(self, body: bytes) -> None:
        """An AUTH of a client that is let in: it logs in again [MQTT5-4.12.1-1], and the rest goes on meanwhile."""
        reason, said = read_auth(body, self._method)
        login = self._login
        if reason == reasons.RE_AUTHENTICATE and login is None:
            self._begin_login(self._method, self._on_logged_in_again).take(said or None)
        elif reason == reasons.CONTINUE_AUTHENTICATION and login is not None and not login.waits:
            login.take(said)
        else:
            raise ProtocolError(f"an AUTH with reason code {reason:#04x} that is not its turn (4.12)")

    def _on_logged_in_again(self, answer: Principal | NotAuthenticated, proof: bytes) -> None:
        guard = self._guard
        if self._ended or guard is None:
            return
        self._login = None
        before = guard.logged_in
        if isinstance(answer, NotAuthenticated):
            self._end(f"not_authenticated: {answer}")
        elif (answer.name, answer.tenant) != (before.name, before.tenant):
            self._end("not_authenticated: a client stays who it is when it logs in again")
        else:
            self._link.write(packets.encode_auth(reasons.SUCCESS, self._method, proof))

    def _may_have_will(self, will: Will) -> bool:
        """Raises ProtocolError for one that nobody may have."""
        mapping.decode_topic(will.topic)
        stored_headers(will.properties, 0)
        if self._level < packets.MQTT5:
            return True
        if will.retain and not self._config.retain_available:
            self._refuse(reasons.NO_RETAIN, "a will with RETAIN [MQTT5-3.2.2-13]")
            return False
        if will.qos > self._config.max_qos:
            self._refuse(reasons.NO_QOS, "a will with more than the highest QoS [MQTT5-3.2.2-12]")
            return False
        return True

    def _will_of(self, will: Will | None, guard: Guard) -> Will | None:
        """The will that the kernel keeps: it is published with the rights of the user, so one that an API key is not
        good for is never published."""
        address = "" if will is None else mapping.decode_topic(will.topic)
        if will is None or not self._services.admission.restricts(guard.principal, Operation.PUBLISH, address):
            return will
        self._count("will_not_authorized")
        guard.note_untold("will_not_authorized", f"the API key is not good for a will at {address[:80]!r}")
        return None

    def _accept(self, connect: Connect, principal: Principal) -> None:
        services, link = self._services, self._link
        clients = Clients.of(services)
        try:
            before = self._take_client_id(connect.client_id, principal)
        except ClientIdRefused as error:
            self._refuse(reasons.BAD_CLIENT_ID, str(error))
            return
        try:
            guard = self._guard = services.guard(DOOR_NAME, principal, self, self._client_id, peer=link.peer,
                                                 replaces=before is not None)
        except TooManyConnections as full:
            clients.leave(self._tenant, self._client_id, self)
            self._refuse(connecting.reason_of_refusal(full, connect), str(full))
            return
        connect = connect._replace(will=self._will_of(connect.will, guard))
        self._has_will = connect.will is not None
        config, trace = self._config, services.admission.trace
        bytes_max = self._kernel.settings.max_message_bytes + PUBLISH_OVERHEAD_BYTES
        if self._level == packets.MQTT5:
            bytes_max += PROPERTY_BYTES
            self._refused_bits = (0, 4, 6)[2 - config.max_qos] | (not config.retain_available)
        self._packet_bytes_max = min(bytes_max, config.max_packet_bytes or bytes_max)
        if before is not None:
            before.handle_taken_over()
        outbox = self._outbox = Outbox(link, guard, clients, config, trace, self, self._dress(connect))
        self._silence.expect(self._now_ms(),
                             int(connecting.keep_alive_of(connect, config) * 1000 * config.keep_alive_factor))
        self._expiry_ms = connecting.session_expiry_of(connect, config)
        welcome = Welcome(lambda: self._welcome(connect), lambda why: self._refuse(reasons.QUOTA, why))
        try:
            self._open_session(connect, outbox, welcome)
        except KernelError as error:
            self._expiry_ms = 0
            self._refuse(reasons.reason_of(error.code), str(error))
            return
        if welcome.waits:
            self._pacer.hold()
        else:
            self._welcome(connect)

    def _open_session(self, connect: Connect, outbox: Outbox, welcome: Welcome) -> None:
        """What outlives the connection: the session, where there is one, and the will. `welcome` waits for the disk.
        Raises SessionRefused, TooManySessions, Stopping."""
        assert self._guard is not None
        sessions, name = self._kernel.sessions, (self._tenant, self._client_id)
        was_there = sessions.owner_of(*name) is not None
        if self._expiry_ms or was_there and not connect.clean_session:
            outbox.window = Window(outbox.most_in_flight, OWN_IDS)
            durable = self._durable = DurableSession(
                self._guard, sessions, outbox, self._client_id, outbox.most_in_flight, self._end,
                clean=connect.clean_session, expiry_ms=self._expiry_ms, welcome=welcome)
            outbox.durable = durable
            outbox.durable_has_all = sessions.keeps_transient
        elif was_there:
            sessions.clear(*name, self.user)
        if connect.will is None:
            sessions.forget_will(*name)
            return
        sessions.keep_will(mapping.kept_will(connect.will, *name, self.user, self._expiry_ms), welcome.expect(), None)
        self._keeps_will = True

    def _welcome(self, connect: Connect) -> None:
        """Everything that the client is told with CONNACK is durable."""
        if self._ended:
            return
        durable = self._durable
        connack = self._fitting(connecting.accepted(
            connect, self._config, self._client_id, self._packet_bytes_max,
            session_present=durable is not None and durable.present,
            session_expiry_s=connecting.told_expiry_s(connect, self._expiry_ms), proof=self._proof))
        if not connack:
            self._has_will = False
            self._end("connect_refused: the client does not take a packet as large as CONNACK [MQTT5-3.1.2-24]")
            return
        self._is_let_in = True
        self._link.write(connack)
        if durable is not None:
            self._resume(durable)
        if self._pacer.is_held:
            self._pacer.release()
            if self._received.held_bytes:
                self.handle_data(b"")

    def _resume(self, durable: DurableSession) -> None:
        """What the session has had before goes on."""
        outbox, subscribed = self._outbox, durable.subscriptions()
        assert outbox is not None
        if subscribed:
            subscriptions = self._filters()
            subscriptions.durable = None                       # it has them
            for each in subscribed:
                subscriptions.resume(each)
                if each.filter in subscriptions.by_filter and each.filter.startswith(mapping.SYSTEM):
                    self._system().give(each.filter)
            subscriptions.durable = durable
            self._note_own()
            if outbox.choosing is not None:
                outbox.choosing.begin()
        durable.start()
        for topic_filter, (qos, start) in durable.owed_retained().items():
            if self._subscriptions is not None and topic_filter in self._subscriptions.by_filter:
                outbox.give_retained(topic_filter, qos, start)

    def _filters(self) -> Subscriptions:  # decision 282
        """The client's filters: made with the first of them."""
        if self._subscriptions is None:
            assert self._guard is not None and self._outbox is not None
            self._subscriptions = Subscriptions(self._guard, self._outbox, self._kernel, self._config, self._level,
                                                self._transact, self._system, self._count)
            self._subscriptions.keep_in(self._durable)
            if self._outbox.outgoing is not None:
                self._outbox.outgoing.sends_by(self._subscriptions)
        return self._subscriptions

    def give_up(self, reason: str) -> None:
        """See `outbox.Sender`."""
        self._end(reason)

    def pump_later(self, wait_ms: int) -> None:
        """See `outbox.Sender`."""
        if self._pumping is None:
            self._pumping = self._timers.add(self._pump)
        self._pumping.at(self._now_ms() + max(1, wait_ms))

    def _pump(self, now_ms: int) -> None:
        if self._outbox is not None:
            self._outbox.pump()

    def _dress(self, connect: Connect) -> Outgoing | None:
        """What is MQTT 5's alone of what the client is sent."""
        if self._level < packets.MQTT5:
            return None
        config, given = self._config, connect.properties
        self._tells = self._tells and given.number(properties.PROBLEM_INFORMATION, 1) > 0
        return Outgoing(Clients.of(self._services), given.number(properties.RECEIVE_MAXIMUM, 65_535),
                        given.number(properties.MAXIMUM_PACKET),
                        min(config.max_given_aliases, given.number(properties.ALIAS_MAXIMUM)))

    def _count(self, event: str) -> None:
        self._services.admission.trace.on_event(DOOR_NAME, event)

    def _take_client_id(self, wanted: str, principal: Principal) -> MqttSession | None:
        """Be known by the id that the client wants, or by one that it is given; returns who had it. Raises
        ClientIdRefused."""
        clients = Clients.of(self._services)
        if wanted and not self._services.admission.may_have_client_id(principal, wanted):
            raise ClientIdRefused(f"{principal.name} may not have this client id")
        owner = self._kernel.sessions.owner_of(principal.tenant, wanted) if wanted else None
        if owner is not None and owner != principal.name:
            raise ClientIdRefused("the session of this client id belongs to another user")
        self._tenant, self.user, self._wanted_id = principal.tenant, principal.name, wanted
        self._client_id = wanted or clients.assign_id(self._kernel.epoch)
        return clients.connect(self._tenant, self._client_id, self)

    def _refuse(self, reason_code: int, reason: str) -> None:
        self._write_fitting(connecting.refused(self._level, reason_code, reason if self._tells else ""))
        self._end(f"connect_refused: {reason}", says=False)

    def _fitting(self, packet: bytes) -> bytes:
        """The packet; nothing where the client takes none that large [MQTT5-3.1.2-24]."""
        return packet if not self._taken_bytes_max or len(packet) <= self._taken_bytes_max else b""

    def _write_fitting(self, packet: bytes) -> None:
        packet = self._fitting(packet)
        if packet:
            self._link.write(packet)

    # --- admission's `RegisteredSession`
    # --------------------------------------------------------------------------------------

    def on_principal_ended(self, reason: str) -> None:
        """Only MQTT 5 has words for it; then the connection is closed. The will of a client whose token has run out is
        published, if it may be; that of a user who is gone is nobody's."""
        guard = self._guard
        if guard is None or not 0 < guard.logged_in.expires_ms <= self._services.wall_ms():
            self._has_will = False
        self._end(f"principal_ended: {reason}")

    def on_rights_changed(self) -> None:
        """Subscriptions that are no longer allowed end, with what waits of them, and so does a client whose id is not;
        MQTT cannot tell the client of the former."""
        guard, wanted = self._guard, self._wanted_id
        if guard is None or self._ended:
            return
        if wanted and not self._services.admission.may_have_client_id(guard.logged_in, wanted):
            self.on_principal_ended("its client id is no longer allowed")
            return
        guard.forget_places()
        subscriptions = self._subscriptions
        for topic_filter in [] if subscriptions is None else list(subscriptions.by_filter):
            if subscriptions is not None and not subscriptions.may_have(topic_filter):
                subscriptions.end(topic_filter)
                self._count("subscription_ended")
                guard.note_untold("subscription_ended", f"{topic_filter!r} may not be had any more")
        if self._outbox is not None:
            self._outbox.look_again()

    def handle_taken_over(self) -> None:
        """Another connection has come with the same client id [MQTT-3.1.4-2]."""
        self._end("taken_over: another connection came with the same client id")

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def _subscribe(self, body: bytes) -> None:
        subscriptions, outbox = self._filters(), self._outbox
        assert outbox is not None
        packet_id, wishes, given = packets.decode_subscribe(body, self._level)
        identifier = given.number(properties.SUBSCRIPTION_ID)
        before = set(subscriptions.by_filter)
        asked = Wishes.of(given)
        granted = [subscriptions.grant(raw, options, identifier, asked) for raw, options in wishes]
        if self._ended:
            return
        self._note_own()
        why = subscriptions.reasons_given()
        suback = packets.encode_suback(packet_id, granted, self._level, why if self._tells else "")
        figures: list[str] = []
        retained: dict[str, int] = {}
        if asked.begin is None:                                # a history has what is retained
            figures = [mapping.decode_filter(raw) for (raw, _), qos in zip(wishes, granted, strict=True)
                       if qos < packets.SUBACK_REFUSED and raw.startswith(b"$SYS/")]
            retained = _wanted_retained(wishes, granted, before)
        if self._durable is not None:
            for topic_filter, qos in retained.items():
                if qos:
                    self._durable.owe_retained(topic_filter, qos, "")
            self._durable.when_stored(self._fitting(suback), lambda: self._give_stored(figures, retained))
        else:
            self._write_fitting(suback)
            self._give_stored(figures, retained)

    def _give_stored(self, figures: list[str], retained: dict[str, int]) -> None:
        """SUBACK has left: histories follow, or retained values, by filter with their QoS, or filters of `$SYS`."""
        outbox, filters = self._outbox, self._filters().by_filter
        assert outbox is not None
        if outbox.choosing is not None:
            outbox.choosing.begin()
        for topic_filter in figures:
            if topic_filter in filters:                        # UNSUBSCRIBE may have come with SUBSCRIBE
                self._system().give(topic_filter)
        for topic_filter, qos in retained.items():
            if topic_filter in filters:
                outbox.give_retained(topic_filter, qos)

    def _unsubscribe(self, body: bytes) -> None:
        subscriptions = self._filters()
        packet_id, filters = packets.decode_unsubscribe(body, self._level)
        if self._durable is not None:
            for raw in filters:
                self._durable.owe_retained(mapping.decode_filter(raw), 0, None)
        codes = [reasons.SUCCESS if subscriptions.end(mapping.decode_filter(raw)) else reasons.NO_SUBSCRIPTION
                 for raw in filters]
        unsuback = packets.encode_unsuback(packet_id, codes if self._level == packets.MQTT5 else None)
        if self._durable is not None:
            self._durable.when_stored(self._fitting(unsuback))
        else:
            self._write_fitting(unsuback)

    # --- time, and the end -------------------------------------------------------------------------------------------

    def handle_timer(self, now_ms: int) -> None:
        self._timers.handle_timer(now_ms)

    def on_silence(self) -> None:
        """See `door_side.Expecting`."""
        if self._outbox is None:
            self._end("connect_timeout: no CONNECT came")
        else:
            self._end("keep_alive_timeout: nothing came for too long [MQTT-3.1.2-24]")

    def is_excused(self) -> bool:
        """Whether it may be our doing that nothing was heard."""
        return self._outbox is not None and bool(
            self._pacer.waits or self._kernel.congested or not self._link.is_read
            or self._slowing is not None and self._slowing.is_full)

    def handle_drained(self) -> None:
        if self._outbox is not None:
            self._outbox.pump()

    def handle_stopping(self) -> None:
        """What was published is acknowledged, then the connection is closed; only MQTT 5 has a goodbye."""
        self._has_will = False                                 # the client is well, it is we who go
        self._close_reader()
        if self._inbox is None or self._inbox.settled:
            self._end(STOPPING)
            return
        self._link.pause()
        self._inbox.end_when_settled(STOPPING)

    def handle_closed(self) -> None:
        """The last call: from here on the session refers to nobody who refers to it."""  # decision 297
        self._finish()
        self._timers.end()
        self._pacer.end()
        self._silence.end()
        self._inbox = self._outbox = self._guard = self._durable = None
        self._subscriptions = self._slowing = self._figures = self._login = self._pumping = None

    def _end(self, reason: str, reason_code: int = 0, *, says: bool = True) -> None:
        """`reason`: `code: text`. MQTT 5 is told, where it was let in and `says` is true."""
        if self._ended:
            return
        if says and self._level == packets.MQTT5 and self._is_let_in:
            code, _, text = reason.partition(": ")
            reference = self._config.server_reference if code == STOPPING else ""
            if reference:
                reason_code = reasons.ANOTHER_SERVER
            self._write_fitting(packets.encode_disconnect(reason_code or reasons.reason_of(code),
                                                          (text or code) if self._tells else "", reference))
        self._finish()
        self._link.close(reason)

    def _finish(self) -> None:
        """Take nothing more and owe nothing more; idempotent."""
        self._close_reader()
        if self._guard is not None:
            self._guard.settle()                               # before the will, and what else follows
        if not self._ended:
            self._ended = True
            self._let_go()
        self._received.clear()
        self._timers.stop()
        if self._slowing is not None:
            self._slowing.on_closed()
        if self._guard is not None:
            self._guard.leave()
        outbox = self._outbox
        if outbox is None:
            return
        outbox.end()
        if self._subscriptions is not None:
            self._subscriptions.end_all()
        Clients.of(self._services).leave(self._tenant, self._client_id, self)

    def _let_go(self) -> None:
        """The session sleeps, or ends; the will is due, unless the client has said goodbye."""
        if self._keeps_will:
            if not self._has_will:
                self._kernel.sessions.forget_will(self._tenant, self._client_id)
            else:
                self._kernel.sessions.break_off(self._tenant, self._client_id)
        if self._durable is not None:
            self._durable.sleep(self._expiry_ms)

    def held_bytes(self) -> int:
        """What has come and waits here: for the rest of a packet, or for a limit."""
        return self._received.held_bytes + (0 if self._slowing is None else self._slowing.waiting_bytes)

    def describe(self) -> dict[str, Any]:
        filters = [] if self._subscriptions is None else sorted(self._subscriptions.by_filter)
        described: dict[str, Any] = {"client_id": self._client_id, "user": self.user,
                                     "protocol_level": self._level, "subscriptions": len(filters),
                                     "filters": filters[:DESCRIBED_FILTERS_MAX]}
        if self._outbox is not None:
            described.update(self._outbox.describe())
        return described


def _check_empty(packet: bytes) -> None:
    if len(packet) != 2:
        raise MalformedPacket("a PINGREQ with a body (3.12)")


def _wanted_retained(wishes: list[tuple[bytes, int]], granted: list[int], before: set[str]) -> dict[str, int]:
    """Which filters of a SUBSCRIBE are given what is retained, with the QoS that each was granted. `before`: those that
    were there."""
    wanted: dict[str, int] = {}
    for (raw, options), qos in zip(wishes, granted, strict=True):
        handling = options & packets.RETAIN_HANDLING
        # A shared subscription is given none (MQTT 5, 4.8.2), and there are none about transactions.
        if qos >= packets.SUBACK_REFUSED or raw.startswith(b"$") or handling == packets.SEND_NOT:
            continue
        topic_filter = mapping.decode_filter(raw)
        if handling != packets.SEND_IF_NEW or topic_filter not in before:
            wanted[topic_filter] = qos
    return wanted
