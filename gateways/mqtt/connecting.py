"""CONNACK: what a client is told of the hub's limits when it is let in, or why it is not. Pure.

MQTT 5 hears every limit that is not the protocol's own default (3.2.2.3), and a reason code; 3.1 and 3.1.1 hear one of
six return codes.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.admission import LoginsFull, NotAuthenticated
from gatehouse.gateways.mqtt import packets, properties, reasons
from gatehouse.gateways.mqtt.packets import MQTT5, Connect
from gatehouse.kernel.sessions.session_values import NEVER

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.config import MqttConfig

LONGEST_SHORT: Final = 65_535
ENDLESS_S: Final = 0xFFFFFFFF          # of a session expiry (3.1.2.11.2)


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
