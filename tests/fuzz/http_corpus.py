"""Requests as curl, browsers and the Python client send them. Line ends, `Host` and `Content-Length` are added."""
from __future__ import annotations

import struct
from typing import Final

JSON_TYPE: Final = "Content-Type: application/json"
MASK: Final = b"\x11\x22\x33\x44"

UPGRADE: Final = """\
GET /v1/ws HTTP/1.1
Connection: Upgrade
Upgrade: websocket
Sec-WebSocket-Version: 13
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
Sec-WebSocket-Protocol: gatehouse.v1+json
Sec-WebSocket-Extensions: permessage-deflate
"""
MQTT_UPGRADE: Final = UPGRADE.replace("/v1/ws", "/mqtt").replace("gatehouse.v1+json", "mqtt").replace(
    "Sec-WebSocket-Extensions: permessage-deflate\n", "")
MQTT_CONNECT: Final = bytes.fromhex("100d 0004 4d515454 04 02 0000 0001 63")
MQTT_PUBLISH: Final = bytes.fromhex("3210 0007") + b"plant/w" + bytes.fromhex("0001") + b"hello"


def frame(payload: bytes, opcode: int = 1, first_bit: int = 0x80) -> bytes:
    """A masked WebSocket frame (RFC 6455, 5.2)."""
    masked = bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0xFE,)) + struct.pack(">H", size)
    return bytes((first_bit | opcode,)) + length + MASK + masked


def post(path: str, body: str, *headers: str) -> str:
    return "\n".join([f"POST {path} HTTP/1.1", *headers]) + "\n\n" + body


def get(path: str, *headers: str) -> str:
    return "\n".join([f"GET {path} HTTP/1.1", *headers]) + "\n\n"


HTTP_CONVERSATIONS: Final[list[list[str | bytes]]] = [
    [post("/v1/publish/plant/line1/temp", "21.5", "Content-Type: text/plain")],
    [post("/v1/publish/plant/line1/temp", "21.5", "Content-Type: text/plain")] * 4,
    [post("/v1/publish/plant/alarm", "wake", "X-Delay: 3600", "X-Message-Id: 7", "X-Tag: a")],
    [post("/v1/publish/plant/shift", "tick", "X-Repeat: 0 8 * * MON-FRI; until=2030-01-01T00:00:00Z")],
    [post("/v1/publish/plant/line9/temp", "1", "X-Retain: true"), get("/v1/retained/plant/+/temp?max=10")],
    [post("/v1/publish/plant/once", "1", "Idempotency-Key: abc-1")] * 2,
    [post("/v1/publish/plant/x", "1", "ce-specversion: 1.0", "ce-id: 1", "ce-source: /line1", "ce-type: temp")],
    [post("/v1/publish/plant/c", "5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")],
    [post("/v1/publish", '{"messages": [{"address": "plant/a", "value": "1", "headers": {"x": "y"}}, '
          '{"address": "plant/b", "base64": "AAE=", "delay": 5}]}', JSON_TYPE)],
    [post("/v1/topics/plant/messages", '{"messages": [{"key": "line1/temp", "value": "2"}]}', JSON_TYPE)],
    [post("/v1/topics/plant/messages", '[{"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": 1}]',
          "Content-Type: application/cloudevents-batch+json")],
    [get("/v1/topics/plant/messages?max=10&from=earliest"), get("/v1/topics/plant/messages?cursor=AAAA&wait=0")],
    [get("/v1/topics/plant/messages?filter=line%20%3D%20%27a%27%20AND%20x%20%3E%203&max=5")],
    [get("/v1/topics/plant/events?from=earliest", "Accept: text/event-stream")],
    [get("/v1/events?filter=plant/%2B/temp&selector=x%20IS%20NOT%20NULL", "Last-Event-ID: AjBdUMABAQEe9CxC")],
    [get("/v1/topics"), "PUT /v1/topics/made HTTP/1.1\n" + JSON_TYPE + '\n\n{"partitions": 3, "compact": true}',
     "PATCH /v1/topics/made HTTP/1.1\n" + JSON_TYPE + '\n\n{"partitions": 4}', "DELETE /v1/topics/made HTTP/1.1\n\n"],
    [post("/v1/groups/workers/pop?topic=plant&max=10&invisible=30&wait=0", ""),
     post("/v1/groups/workers/ack", '{"receipt_handles": ["AAAA"]}', JSON_TYPE)],
    [post("/v1/groups/squeezers/pop?topic=squeezed&max=10&invisible=1", ""),
     post("/v1/groups/workers/release", '{"receipt_handles": ["AAAA"], "delay": 1}', JSON_TYPE)],
    ["PUT /v1/groups/g2 HTTP/1.1\n" + JSON_TYPE + '\n\n{"topic": "plant", "max_attempts": 3, "retry": "every 1s"}',
     get("/v1/groups/g2"), "DELETE /v1/groups/g2 HTTP/1.1\n\n"],
    [get("/v1/queues"), get("/v1/queues/q"), post("/v1/queues/q/pop?max=5", "")],
    [get("/v1/dead-letters?max=5"), post("/v1/dead-letters/redrive", '{"group": "g2", "max": 5}', JSON_TYPE)],
    [get("/v1/scheduled?max=5"), "DELETE /v1/scheduled/1048577 HTTP/1.1\n\n"],
    [post("/v1/transactions?group=shop&address=orders/17", "one book"), post("/v1/transactions/1048577/commit", "")],
    [post("/v1/transactions", '{"group": "shop", "messages": [{"address": "orders/1", "value": "x"}], '
          '"check": {"after": "PT5S", "every": "PT5S", "times": 3}}', JSON_TYPE),
     post("/v1/transactions/1048577/rollback", ""), get("/v1/transactions?group=shop"),
     get("/v1/transactions/checks?group=shop&wait=0")],
    [post("/v1/batches/positions", '{"topics": ["plant"], "at": "earliest"}', JSON_TYPE),
     post("/v1/batches/fetch", '{"ranges": [{"topic": "plant", "partition": 0, "from": 0, "to": 10}]}', JSON_TYPE)],
    [get("/v1/topics/plant/batches?partition=0&offset=0")],
    ["PUT /v1/webhooks/shop HTTP/1.1\n" + JSON_TYPE + '\n\n{"url": "https://shop.example/hook", "topic": "orders"}',
     get("/v1/webhooks"), "DELETE /v1/webhooks/shop HTTP/1.1\n\n"],
    [post("/v1/tickets", ""), get("/v1/connections"), get("/v1/status"), get("/metrics"), get("/openapi.json")],
    [post("/v1/acl/test", '{"user": "ann", "action": "publish", "address": "plant/x"}', JSON_TYPE), get("/v1/acl")],
    [get("/v1/status", "Authorization: Basic YW5uOnBhc3N3b3Jk"), get("/v1/topics", "Authorization: Bearer a.b.c")],
    [UPGRADE, frame(b'{"type":"publish","id":1,"messages":[{"address":"plant/w","value":"1"}]}'),
     frame(b'{"type":"subscribe","id":2,"subscription":"s","filter":"plant/#","credit":10}'),
     frame(b'{"type":"credit","subscription":"s","credit":10}'), frame(b"", 9), frame(b"\x03\xe8", 8)],
    [UPGRADE, frame(b'{"type":"pop","id":1,"group":"workers","topic":"plant","max":5}'),
     frame(b'{"type":"publ', 1, 0), frame(b'ish","id":3,"messages":[]}', 0)],
    [MQTT_UPGRADE, frame(MQTT_CONNECT, 2), frame(MQTT_PUBLISH, 2), frame(MQTT_PUBLISH * 20, 2)],
]
