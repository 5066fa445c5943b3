"""How a client is let in: CONNACK, with limits or a reason why not, and the enhanced authentication of MQTT 5. Pure.

MQTT 5 hears every limit that is not the protocol's own default (3.2.2.3), and a reason code; 3.1 and 3.1.1 hear one of
six return codes.

Enhanced authentication (4.12) is SCRAM, in AUTH packets before CONNACK, and again whenever a client likes:

    CONNECT  method, client first     AUTH 0x19  method, client first     (to log in again)
    AUTH 0x18         server first    AUTH 0x18          server first
    AUTH 0x18         client final    AUTH 0x18          client final
    CONNACK           server final    AUTH 0x00          server final

The machine is `gateways.admission.scram`; refusals are slowed, and so are proofs of a user for whom others have failed.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.errors import LoginsFull, NotAuthenticated
from gatehouse.gateways.mqtt import packets, properties, reasons
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.packets import MQTT5, Connect, decode_reason, encode_auth
from gatehouse.gateways.mqtt.properties import Packet
from gatehouse.kernel.sessions.session_values import NEVER

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.scram import ScramServer
    from gatehouse.gateways.contract import Link
    from gatehouse.gateways.mqtt.config import MqttConfig

LONGEST_SHORT: Final = 65_535
ENDLESS_S: Final = 0xFFFFFFFF          # of a session expiry (3.1.2.11.2)

METHODS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Done = Callable[["Principal | NotAuthenticated", bytes], None]
"""Who has logged in, with the server's last word; or why not."""


def keep_alive_of(connect: Connect, config: MqttConfig) -> int:
    """Seconds of keep alive that hold for a client; 0: none. Only MQTT 5 can be told another one than it wants."""
    wanted, longest = connect.keep_alive_s, config.max_keep_alive_s
    if connect.protocol_level < MQTT5 or not longest:
        return wanted
    return min(wanted, longest) if wanted else longest


def session_expiry_of(connect: Connect, config: MqttConfig) -> int:
    """For how many ms the session of a client waits for it; 0: it ends with the connection, NEVER: without end."""
    if connect.protocol_level == MQTT5:
        wanted_s = connect.properties.number(properties.SESSION_EXPIRY)
    else:
        wanted_s = 0 if connect.clean_session else ENDLESS_S
    return expiry_ms_of(wanted_s, config)


def expiry_ms_of(wanted_s: int, config: MqttConfig) -> int:
    """How long a session lasts, in ms, for whom asks for so many seconds."""
    if config.max_session_expiry_s:
        wanted_s = min(wanted_s, config.max_session_expiry_s)
    return NEVER if wanted_s == ENDLESS_S else wanted_s * 1000


def told_expiry_s(connect: Connect, expiry_ms: int) -> int | None:
    """What an MQTT 5 client is told of that; None where it is what it asked for."""
    given_s = ENDLESS_S if expiry_ms == NEVER else expiry_ms // 1000
    return None if given_s == connect.properties.number(properties.SESSION_EXPIRY) else given_s


def accepted(connect: Connect, config: MqttConfig, client_id: str, packet_bytes_max: int, *,
             session_present: bool = False, session_expiry_s: int | None = None, proof: bytes = b"") -> bytes:
    """The CONNACK of a client that is let in. `session_expiry_s`: where it is another than the client asked for.
    `proof`: what ends its enhanced authentication."""
    if connect.protocol_level < MQTT5:
        return packets.encode_connack(packets.CONNACK_ACCEPTED,
                                      session_present=session_present and connect.protocol_level > packets.MQTT31)
    pairs: list[tuple[int, Any]] = []
    if session_expiry_s is not None:
        pairs.append((properties.SESSION_EXPIRY, session_expiry_s))
    if config.receive_maximum < LONGEST_SHORT:
        pairs.append((properties.RECEIVE_MAXIMUM, config.receive_maximum))
    if config.max_qos < 2:
        pairs.append((properties.MAXIMUM_QOS, config.max_qos))
    if not config.retain_available:
        pairs.append((properties.RETAIN_AVAILABLE, 0))
    pairs.append((properties.MAXIMUM_PACKET, packet_bytes_max))
    if not connect.client_id:
        pairs.append((properties.ASSIGNED_ID, client_id))
    if config.max_topic_aliases:
        pairs.append((properties.ALIAS_MAXIMUM, config.max_topic_aliases))
    for available, number in ((config.wildcards_available, properties.WILDCARDS_AVAILABLE),
                              (config.identifiers_available, properties.IDS_AVAILABLE),
                              (config.shared_available, properties.SHARED_AVAILABLE)):
        if not available:
            pairs.append((number, 0))
    keep_alive_s = keep_alive_of(connect, config)
    if keep_alive_s != connect.keep_alive_s:
        pairs.append((properties.SERVER_KEEP_ALIVE, keep_alive_s))
    if proof:
        pairs.append((properties.AUTH_METHOD, connect.properties.values[properties.AUTH_METHOD]))
        pairs.append((properties.AUTH_DATA, proof))
    if connect.properties.number(properties.ASK_RESPONSE) and config.response_prefix:
        pairs.append((properties.RESPONSE_INFORMATION, config.response_prefix.replace("{client_id}", client_id)))
    return packets.encode_connack5(reasons.SUCCESS, pairs, session_present=session_present)


def refused(level: int, reason: int, text: str) -> bytes:
    """The CONNACK of a client that is not let in; then the connection is closed [MQTT-3.2.2-5]."""
    if level < MQTT5:
        return packets.encode_connack(packets.return_code_of(reason))
    pairs: list[tuple[int, Any]] = [(properties.REASON_STRING, text[:packets.REASON_CHARACTERS])] if text else []
    return packets.encode_connack5(reason, pairs)


def reason_of_refusal(refusal: NotAuthenticated, connect: Connect) -> int:
    """With the last two a client has no reason to try again as it did."""
    if isinstance(refusal, LoginsFull):
        return reasons.BUSY
    return reasons.NOT_AUTHORIZED if connect.user is None else reasons.BAD_LOGIN


def level_of(body: bytes) -> int:
    """The protocol level that the body of a CONNECT begins with, as far as it is there; 0: none that is known."""
    return packets.MQTT5 if body[:7] == b"\0\4MQTT\5" else 0


class EnhancedLogin:
    """One login. `later(ms, call)` calls once the time has passed, unless the connection ends before."""

    def __init__(self, link: Link, method: str, scram: ScramServer, later: Callable[[int, Callable[[], None]], None],
                 done: Done) -> None:
        self.method = method
        self.waits = False
        """Whether its end is held back: the client has nothing more to say."""

        self._link = link
        self._scram = scram
        self._later = later
        self._done = done
        self._has_begun = False

    def take(self, data: bytes | None) -> None:
        """What the client says next; None where a login begins and leaves that to its next AUTH."""
        if data is None:
            self._say(b"")
            return
        try:
            if not self._has_begun:
                self._has_begun = True
                self._say(self._scram.first(data))
                return
            final, principal = self._scram.final(data)
        except NotAuthenticated as error:
            refusal = error                # the name of an except clause is gone behind it
            self._end(error.delay_ms, lambda: self._done(refusal, b""))
            return
        if self._scram.wait_ms:
            self._end(self._scram.wait_ms, lambda: self._succeed_late(final))
        else:
            self._done(principal, final)

    def _say(self, data: bytes) -> None:
        self._link.write(encode_auth(reasons.CONTINUE_AUTHENTICATION, self.method, data))

    def _end(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.waits = True
        self._later(delay_ms, call)

    def _succeed_late(self, final: bytes) -> None:
        try:
            self._done(self._scram.accepted(), final)
        except NotAuthenticated as error:        # not any more
            self._done(error, b"")


def read_auth(body: bytes, method: str) -> tuple[int, bytes]:
    """The body of an AUTH: (reason code, authentication data). `method` is that of CONNECT. Raises ProtocolError."""
    reason, given = decode_reason(body, Packet.AUTH)
    if not method:
        raise ProtocolError("[MQTT5-4.12.0-7] AUTH without an authentication method in CONNECT")
    if given.values.get(properties.AUTH_METHOD) != method:
        raise ProtocolError("[MQTT5-4.12.0-5] an AUTH with another method than CONNECT's")
    if reason not in (reasons.CONTINUE_AUTHENTICATION, reasons.RE_AUTHENTICATE):
        raise ProtocolError(f"[MQTT5-3.15.2-1] an AUTH with reason code {reason:#04x}")
    return reason, given.values.get(properties.AUTH_DATA, b"")
