"""A line of the log that tells of a message has its trace id, as text and as JSON."""
from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.interop.asking import ask
from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub
from tests.interop.test_rights import http as ask_guarded
from tests.running_hub import DEADLINE_S, config_of, sound_hub
from tests.waiting import until

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CONTEXT: Final = f"00-{TRACE}-b7ad6b7169203331-00"


def over_http(hub: GuardedHub, address: str) -> None:
    assert ask_guarded(hub, "POST", f"/v1/publish/{address}", b"x", headers={"traceparent": CONTEXT})[0] == 403


def over_http_in_json(hub: GuardedHub, address: str) -> None:
    status, said = ask_guarded(hub, "POST", "/v1/publish", json.dumps({"messages": [
        {"address": address, "value": 1, "traceparent": CONTEXT}]}).encode(), headers={
            "Content-Type": "application/json"})
    assert status in (207, 403), said


def over_mqtt(hub: GuardedHub, address: str) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set("ada", PASSWORD)
    client.connect("127.0.0.1", hub.ports("mqtt")[0])
    client.loop_start()
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("unit", "C"), ("traceparent", CONTEXT)]
    client.publish(address, b"x", qos=1, properties=properties).wait_for_publish(DEADLINE_S)
    client.disconnect()
    client.loop_stop()


def over_amqp(hub: GuardedHub, address: str) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(
        "127.0.0.1", hub.ports("amqp")[0], credentials=pika.PlainCredentials("ada", PASSWORD)))
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.basic_publish("amq.topic", address.replace("/", "."), b"x", pika.BasicProperties(
            headers={"unit": "C", "traceparent": CONTEXT}))
    connection.close()


@pytest.mark.parametrize("publish", [over_http, over_http_in_json, over_mqtt, over_amqp])
def test_a_publish_without_the_right_is_told_of_with_its_trace(
        tmp_path: Path, publish: Callable[[GuardedHub, str], None]) -> None:
    """Kafka's clients send nothing to a topic that they are not shown."""
    with guarded_hub(tmp_path) as hub:
        publish(hub, "shut/1")
        line = hub.hub.wait_log_line(f"(trace {TRACE})")
        assert "refused ada: not_authorized" in line, line
        found = until(lambda: json.loads(ask_guarded(
            hub, "GET", "/v1/trace/events?user=ada", user="root")[1])["events"])
        assert any(event["what"] == "refused" and event["address"] == "shut/1" for event in found), found


def receiver(answer: int) -> tuple[http.server.ThreadingHTTPServer, list[Any]]:
    """Answers each POST so, and keeps its headers."""
    heads: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heads.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(answer)
            self.end_headers()

        def log_message(self, *given: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, heads


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_a_webhook_gets_the_trace_and_the_line_that_it_wants_no_more_names_it(tmp_path: Path, mode: str) -> None:
    server, heads = receiver(410)
    config = config_of(("http",)) + 'webhook_allow = ["http://127.0.0.1"]\n[hub]\nlog_format = "json"\n'
    with sound_hub(tmp_path, config) as hub:
        port = server.server_address[1]
        status, said = ask(hub, "PUT", "/v1/webhooks/orders", {
            "topic": "orders", "group": "shop", "url": f"http://127.0.0.1:{port}/", "mode": mode})
        assert status in (200, 201), said
        assert ask(hub, "POST", "/v1/publish", {"messages": [
            {"address": "orders/1", "value": 1, "traceparent": CONTEXT,
             "headers": [["tracestate", "a=1"], ["tracestate", "b=2"]]}]})[0] == 201
        line = json.loads(hub.wait_log_line("is disabled"))
        assert line["trace_id"] == TRACE and line["message"].endswith(f"(trace {TRACE})")
        head = {name.lower(): value for name, value in heads[0].items()}
        assert (head["traceparent"], head["tracestate"]) == (CONTEXT, "a=1,b=2")
    server.shutdown()
    server.server_close()
