"""Conversations of MQTT 5 with what the vectors have little of: sessions that outlive their connection, properties,
aliases, histories and selectors, shared subscriptions, wills, SCRAM."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt import properties as P
from tests.fuzz.mutations import Conversation
from tests.gateways.mqtt.five import (
    ack_packet,
    connect_packet,
    packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)

PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT, AUTH = 0x40, 0x50, 0x62, 0x70, 0xE0, 0xF0
KEEPS: Final = [(P.SESSION_EXPIRY, 60), (P.RECEIVE_MAXIMUM, 10), (P.ALIAS_MAXIMUM, 4), (P.MAXIMUM_PACKET, 5_000)]
SAYS: Final = [(P.CONTENT_TYPE, "text/plain"), (P.EXPIRY, 30), (P.RESPONSE_TOPIC, "plant/answers"),
               (P.CORRELATION, b"17"), (P.USER, ("a", "1")), (P.USER, ("a", "2")), (P.FORMAT, 1)]

MQTT_5_CONVERSATIONS: Final[list[Conversation]] = [
    [connect_packet("keeps", clean=False, properties=KEEPS),
     subscribe_packet(1, ("plant/#", 2), ("$share/g/plant/+", 1), properties=[(P.SUBSCRIPTION_ID, 7)]),
     publish_packet("plant/1", b"once", 2, qos=2, properties=SAYS), ack_packet(PUBREL, 2),
     ack_packet(PUBREC, 1), ack_packet(PUBCOMP, 1, 0), ack_packet(PUBACK, 0x8000, 0x80),
     unsubscribe_packet(3, "plant/#", "never/there"), packet(DISCONNECT, b"\0\5\x11\0\0\0\x0a")],
    [connect_packet("keeps", clean=False, properties=KEEPS), packet(DISCONNECT, b"\4\0")],
    [connect_packet("history", properties=[(P.RECEIVE_MAXIMUM, 2)]),
     publish_packet("plant/1", b"a", 1), publish_packet("plant/1", b"b", 2, retain=True),
     subscribe_packet(3, ("plant/#", 1), properties=[(P.USER, ("from", "earliest")),
                                                     (P.USER, ("selector", "a = '1'"))]),
     ack_packet(PUBACK, 1), ack_packet(PUBACK, 2), subscribe_packet(4, ("$from/1700000000000/plant/+", 0)),
     unsubscribe_packet(5, "plant/+")],
    [connect_packet("aliases"), publish_packet("plant/1", b"named", 1, properties=[(P.ALIAS, 1)]),
     publish_packet("", b"by its alias", 2, properties=[(P.ALIAS, 1)]),
     publish_packet("plant/2", b"later", 3, properties=[(P.USER, ("delay", "60"))]),
     subscribe_packet(4, ("$SYS/broker/+", 1)), packet(0xC0, b"")],
    [connect_packet("will", will=("plant/wills", b"gone", 1, True, [(P.WILL_DELAY, 5), *SAYS]), keep_alive_s=30)],
    [connect_packet("scram", properties=[(P.AUTH_METHOD, "SCRAM-SHA-256"), (P.AUTH_DATA, b"n,,n=ann,r=abc")]),
     packet(AUTH, b"\x18\x16\x15\0\x0dSCRAM-SHA-256\x16\0\3c=x")],
]
"""What each client sends, piece by piece."""
