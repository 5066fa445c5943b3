"""Stock HTTP clients (curl, Python's http.client and urllib) against a real hub, and what MQTT sees of it."""
from __future__ import annotations

import http.client
import json
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import check_batch, records_of
from tests.running_hub import RunningHub, running_hub

WAIT_S = 60
POLL_S = 30          # of a long poll: as long as a hub allows


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "mqtt") as hub:
        yield hub


def url(hub: RunningHub) -> str:
    return f"http://127.0.0.1:{hub.port('http')}"


def curl(*arguments: str, data: bytes = b"") -> tuple[int, bytes]:
    """Status and body of one request by curl."""
    done = subprocess.run(["curl", "--silent", "--show-error", "--path-as-is", "--max-time", str(WAIT_S),
                           "--expect100-timeout", str(WAIT_S), "--write-out", "\n%{http_code}", *arguments],
                          input=data, capture_output=True, check=True)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), body


def ask(hub: RunningHub, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """The JSON answer to one request by urllib."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if data is not body:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url(hub) + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.loads(answer.read() or b"null")


def read_all(hub: RunningHub, topic: str, page: int = 1000) -> list[Any]:
    """Every message of a topic, page after page."""
    messages: list[Any] = []
    cursor = ""
    while True:
        document = ask(hub, "GET", f"/v1/topics/{topic}/messages?max={page}{cursor}")
        if not document["messages"]:
            return messages
        messages += document["messages"]
        cursor = f"&cursor={document['cursor']}"


def test_curl_publishes_and_reads(hub: RunningHub) -> None:
    status, body = curl("-X", "POST", f"{url(hub)}/v1/publish/curl/line1/temp", "--data-binary", "21.5",
                        "-H", "Content-Type: text/plain", "-H", "X-Header-Unit: C", "-H", "X-Priority: 4")
    stored = json.loads(body)
    assert (status, stored["topic"], stored["address"]) == (201, "curl", "curl/line1/temp")
    status, body = curl(f"{url(hub)}/v1/topics/curl/messages")
    (message,) = json.loads(body)["messages"]
    assert status == 200
    assert {name: message[name] for name in ("id", "partition", "offset", "timestamp")} == {
        name: stored[name] for name in ("id", "partition", "offset", "timestamp")}
    assert (message["value"], message["headers"], message["priority"]) == ("21.5", [["unit", "C"]], 4)
    assert (message["door"], message["content_type"]) == ("http", "text/plain")


def test_curl_sends_a_large_body_with_expect_and_chunked(hub: RunningHub) -> None:
    large = bytes(range(256)) * 8192          # 2 MiB: curl waits for 100 Continue
    for extra in ([], ["-H", "Transfer-Encoding: chunked"]):
        status, body = curl("-X", "POST", f"{url(hub)}/v1/publish/large/x", "--data-binary", "@-",
                            "-H", "Expect: 100-continue", *extra, data=large)
        assert status == 201, body
    assert [message["value_base64"] for message in read_all(hub, "large")][0][:8] == "AAECAwQF"
    status, body = curl("-X", "POST", f"{url(hub)}/v1/publish/large/x", "--data-binary", "@-", data=b"x" * (5 << 20))
    assert (status, json.loads(body)["code"]) == (413, "message_too_large")
    status, body = curl("-X", "POST", f"{url(hub)}/v1/publish/large/x", "--data-binary", "@-", data=b"x" * (9 << 20))
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")


def test_odd_addresses_keep_their_levels(hub: RunningHub) -> None:
    for path, address in (("odd//b", "odd//b"), ("odd/a%2Fb", "odd/a%2Fb"), ("odd/gr%C3%BCn", "odd/grün"),
                          ("odd/", "odd/"), ("odd/..", "odd/.."), ("odd/a%2Bb", "odd/a%2Bb")):
        status, body = curl("-X", "POST", f"{url(hub)}/v1/publish/{path}", "--data-binary", path)
        assert (status, json.loads(body).get("address")) == (201, address), body
    shown = {message["value"]: message["address"] for message in read_all(hub, "odd")}
    assert shown["odd//b"] == "odd//b"
    assert shown["odd/"] == "odd/"
    assert shown["odd/a%2Fb"] == "odd/a%2Fb"


def test_a_thousand_messages_in_one_request_come_back_in_order_by_pages(hub: RunningHub) -> None:
    items = [{"key": f"k{number % 7}", "value": str(number)} for number in range(1000)]
    answer = ask(hub, "POST", "/v1/topics/many/messages", {"messages": items})
    assert len(answer["messages"]) == 1000
    messages = read_all(hub, "many", page=64)
    for key in range(7):      # a key keeps its order; keys of different partitions need not
        values = [int(message["value"]) for message in messages if message["key"] == f"k{key}"]
        assert values == list(range(key, 1000, 7))
    assert len({message["id"] for message in messages}) == 1000
    assert ask(hub, "GET", "/v1/topics/many/messages?from=2100-01-01T00:00:00Z")["messages"] == []
    assert len(ask(hub, "GET", "/v1/topics/many/messages?from=2000-01-01T00:00:00Z&max=1000")["messages"]) == 1000


def test_answers_follow_a_topic_that_changes(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/topics/grows", {"partitions": 1, "max_message_bytes": 100})
    batch = {"messages": [{"key": str(number), "value": str(number)} for number in range(20)]}

    def told() -> list[Any]:
        answers = list(ask(hub, "POST", "/v1/topics/grows/messages", batch)["messages"])
        return answers + [ask(hub, "POST", f"/v1/publish/grows/{number}", b"x") for number in range(20)]

    told()
    with pytest.raises(urllib.error.HTTPError, match="413"):
        ask(hub, "POST", "/v1/topics/grows/messages", {"messages": [{"value": "x" * 200}]})
    ask(hub, "PATCH", "/v1/topics/grows", {"max_message_bytes": 1000})
    assert ask(hub, "POST", "/v1/topics/grows/messages", {"messages": [{"value": "x" * 200}]})["messages"]
    for partitions in (8, 32):
        ask(hub, "PATCH", "/v1/topics/grows", {"partitions": partitions})
        answers = told()
        stored = {message["id"]: message for message in read_all(hub, "grows")}
        assert [(each["partition"], each["offset"]) for each in answers] == [
            (stored[each["id"]]["partition"], stored[each["id"]]["offset"]) for each in answers]


def test_a_queue_that_was_made_anew_is_published_to(hub: RunningHub) -> None:
    for value in ("1", "2"):
        ask(hub, "PUT", "/v1/queues/again", {})
        ask(hub, "POST", "/v1/publish/$queue/again", value.encode())
        assert [each["value"] for each in ask(hub, "GET", "/v1/queues/again/messages")["messages"]] == [value]
        ask(hub, "DELETE", "/v1/queues/again")


def test_batches_hold_what_pages_show(hub: RunningHub) -> None:
    ask(hub, "POST", "/v1/topics/bulk/messages", {"messages": [{"value": str(number)} for number in range(50)]})
    topic = ask(hub, "GET", "/v1/topics/bulk")
    (partition,) = [bounds["partition"] for bounds in topic["bounds"] if bounds["high_watermark"]]
    with urllib.request.urlopen(f"{url(hub)}/v1/topics/bulk/batches?partition={partition}&offset=0",
                                timeout=WAIT_S) as answer:
        data, following = answer.read(), answer.headers["X-Next-Offset"]
    values = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        header = check_batch(data[:size])
        piece = Piece(header.base_offset, header.record_count, True, data[:size], 0, 0, 0)
        values += [record[3] for record in records_of(piece)]
        data = data[size:]
    assert (values, following) == ([b"%d" % number for number in range(50)], "50")


def test_a_repeated_idempotency_key_stores_once(hub: RunningHub) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = ask(hub, "POST", "/v1/publish/once/a", b"x", **key)
    assert ask(hub, "POST", "/v1/publish/once/a", b"x", **key) == first
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(hub, "POST", "/v1/publish/once/a", b"y", **key)
    assert (refused.value.code, json.loads(refused.value.read())["code"]) == (422, "idempotency_conflict")
    assert len(read_all(hub, "once")) == 1


def test_a_repetition_is_answered_as_the_first_after_partitions_were_added(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/topics/wider", {"partitions": 1})
    batch = {"messages": [{"key": str(number), "value": "x"} for number in range(20)]}

    def told() -> list[Any]:
        return [ask(hub, "POST", "/v1/topics/wider/messages", batch, **{"Idempotency-Key": "wide"})] + [
            ask(hub, "POST", f"/v1/publish/wider/{number}", b"x", **{"Idempotency-Key": f"wide-{number}"})
            for number in range(20)]

    first = told()
    ask(hub, "PATCH", "/v1/topics/wider", {"partitions": 8})
    assert told() == first


def test_each_try_of_a_request_may_have_a_trace_of_its_own(hub: RunningHub) -> None:
    key = {"Idempotency-Key": "order-8", "tracestate": "a=1", "X-Expires-In": "60"}
    tries = [ask(hub, "POST", "/v1/publish/traced/a", b"x", **key, traceparent=f"00-{number:032x}-{number:016x}-00")
             for number in (1, 2)] + [ask(hub, "POST", "/v1/publish/traced/a", b"x", **key)]
    assert tries == tries[:1] * 3 and len(read_all(hub, "traced")) == 1
    with pytest.raises(urllib.error.HTTPError, match="422"):
        ask(hub, "POST", "/v1/publish/traced/a", b"x", **key, **{"X-Header-Other": "1"})


def test_a_long_poll_is_woken_by_another_clients_message(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/topics/poll", {"partitions": 3})
    cursor = ask(hub, "GET", "/v1/topics/poll/messages?from=latest")["cursor"]
    answers: queue.Queue[Any] = queue.Queue()
    poller = threading.Thread(target=lambda: answers.put(
        ask(hub, "GET", f"/v1/topics/poll/messages?cursor={cursor}&wait={POLL_S}")))
    poller.start()
    ask(hub, "POST", "/v1/publish/poll/a", b"woken")
    assert [message["value"] for message in answers.get(timeout=WAIT_S)["messages"]] == ["woken"]
    poller.join()


def test_topics_by_http(hub: RunningHub) -> None:
    made = ask(hub, "PUT", "/v1/topics/made", {"partitions": 2, "max_message_bytes": 2000})
    assert (made["partitions"], made["max_message_bytes"]) == (2, 2000)
    assert "made" in [topic["name"] for topic in ask(hub, "GET", "/v1/topics")["topics"]]
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(hub, "POST", "/v1/publish/made/a", b"x" * 3000)
    assert refused.value.code == 413
    assert ask(hub, "PATCH", "/v1/topics/made", {"partitions": 5, "max_message_bytes": None})["partitions"] == 5
    ask(hub, "POST", "/v1/publish/made/a", b"x" * 3000)
    ask(hub, "DELETE", "/v1/topics/made")
    with pytest.raises(urllib.error.HTTPError) as gone:
        ask(hub, "GET", "/v1/topics/made/messages")
    assert (gone.value.code, gone.value.headers["Content-Type"]) == (404, "application/problem+json")


def test_one_connection_carries_many_requests(hub: RunningHub) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", hub.port("http"), timeout=WAIT_S)
    for number in range(100):
        connection.request("POST", f"/v1/publish/keep/{number}", body=b"x" * number)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["topic"]) == (201, "keep")
    connection.request("POST", "/v1/publish/keep/a", body=iter([b"a", b"b"]), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})
    assert connection.getresponse().read().startswith(b'{"id"')
    connection.close()
    assert len(read_all(hub, "keep")) == 101


def mqtt_client(hub: RunningHub, client_id: str) -> mqtt.Client:
    connected = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv311)
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    assert connected.wait(WAIT_S)
    return client


def test_http_to_mqtt_and_back(hub: RunningHub) -> None:
    received: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
    subscribed = threading.Event()
    client = mqtt_client(hub, "crossing")
    client.on_message = lambda _client, _data, message: received.put(message)
    client.on_subscribe = lambda *_: subscribed.set()
    client.subscribe("cross/+/temp", qos=1)
    assert subscribed.wait(WAIT_S)
    ask(hub, "POST", "/v1/publish/cross/line1/temp", b"21.5")
    message = received.get(timeout=WAIT_S)
    assert (message.topic, message.payload, message.qos) == ("cross/line1/temp", b"21.5", 1)
    client.publish("cross/line2/temp", b"\xff", qos=1).wait_for_publish(WAIT_S)
    client.loop_stop()
    client.disconnect()
    shown = [message for message in read_all(hub, "cross") if message["door"] == "mqtt"]
    assert [(one["address"], one["value_base64"]) for one in shown] == [("cross/line2/temp", "/w==")]


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        stored = [ask(hub, "POST", f"/v1/publish/safe/{number}", b"%d" % number) for number in range(20)]
        cursor = ask(hub, "GET", "/v1/topics/safe/messages?max=5")["cursor"]
        hub.kill()
    with running_hub(tmp_path, "http") as hub:
        messages = read_all(hub, "safe")
        assert [message["id"] for message in messages] == [answer["id"] for answer in stored]
        rest = ask(hub, "GET", f"/v1/topics/safe/messages?cursor={cursor}")["messages"]
        assert rest == messages[5:]
        assert ask(hub, "POST", "/v1/publish/safe/new", b"x")["id"] not in {answer["id"] for answer in stored}
        assert hub.stop()[0] == 0
