"""Disks that are full, fail, take their time or forget: what the doors say, and what is there afterwards."""
from __future__ import annotations

import http.client
import json
import resource
import shutil
import threading
import time
from pathlib import Path

import confluent_kafka
import pytest

from gatehouse import exits
from tests.faults.clients import ping, post, produce, publish, request
from tests.faults.conftest import Start
from tests.faults.mqtt_peer import MqttPeer
from tests.faults.nursery import DEADLINE_S
from tests.faults.readers import read_over_http, read_over_kafka
from tests.faults.writers import TOPIC

KIB = 1024


def values_of(port: int) -> list[bytes]:
    """Every value of the topic that can be read, in order."""
    return [value for messages in read_over_http(port, gaps=[]).values() for _, _, value in messages]


def limit_files(pid: int, size_bytes: int) -> None:
    """Let the process write no file beyond this size, which to the log is a full disk."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def sample(port: int, name: str) -> int:
    """The value of a metric without labels."""
    page = request(port, "GET", "/metrics")[1].decode()
    return int(float(next(line for line in page.splitlines() if line.startswith(name + " ")).split()[1]))


def test_a_full_disk_is_told_in_each_protocols_words_and_ends_when_there_is_room(start: Start,
                                                                                 tmp_path: Path) -> None:
    hub = start("checkpoint_ms = 100")
    http, mqtt, kafka = (hub.port(door) for door in ("http", "mqtt", "kafka"))
    stored = [b"%d:" % i + bytes(100 * KIB) for i in range(20)]      # a log larger than any file of the index
    assert [post(http, value)[0] for value in stored] == [201] * 20
    log_bytes = sample(http, "gatehouse_log_bytes")
    limit_files(hub.pid, log_bytes + 50 * KIB)

    status, problem = post(http, b"refused" + bytes(100 * KIB))
    assert (status, problem["code"]) == (507, "storage_full")
    assert not publish(mqtt, b"refused" + bytes(100 * KIB))
    error = produce(kafka, b"refused" + bytes(100 * KIB))
    assert error is not None and error.code() == confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR
    assert request(http, "GET", "/healthz")[0] == 200
    assert values_of(http) == stored
    assert [value for messages in read_over_kafka(kafka).values() for _, _, value in messages] == stored
    assert publish(mqtt, b"small"), "what fits is still taken"
    assert hub.log.count("is full: messages are refused") == 1
    assert request(http, "GET", "/v1/status")[1]["log"]["full"] is True

    limit_files(hub.pid, resource.RLIM_INFINITY)
    assert post(http, b"after")[0] == 201
    assert publish(mqtt, b"after that")
    assert produce(kafka, b"last") is None
    assert values_of(http) == [*stored, b"small", b"after", b"after that", b"last"]
    assert hub.stop() == exits.OK
    assert values_of(start().port("http")) == [*stored, b"small", b"after", b"after that", b"last"]


def test_a_hub_without_a_free_descriptor_refuses_what_needs_a_new_segment_and_goes_on_later(start: Start) -> None:
    """Retention and a checkpoint, which open files too, are tried again as well."""
    hub = start("checkpoint_ms = 100\nsegment_bytes = 1048576\nretention_bytes = 2097152")
    descriptors = resource.prlimit(hub.pid, resource.RLIMIT_NOFILE)
    connection = http.client.HTTPConnection("127.0.0.1", hub.port("http"), timeout=60)

    def answer(value: bytes) -> tuple[int, str]:
        connection.request("POST", f"/v1/publish/{TOPIC}/k", value, {"Content-Type": "application/octet-stream"})
        response = connection.getresponse()
        return response.status, json.loads(response.read()).get("code", "")

    stored = [b"%d:" % i + bytes(100 * KIB) for i in range(15)]
    assert [answer(value)[0] for value in stored] == [201] * 15
    resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, (3, descriptors[1]))
    answers = [answer(b"refused" + bytes(100 * KIB)) for _ in range(10)]
    assert (507, "storage_full") in answers
    looked_again_s = time.monotonic() + 2.5
    while time.monotonic() < looked_again_s:
        assert answer(b"refused") == (507, "storage_full")
        time.sleep(0.1)
    resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, descriptors)
    deadline_s = time.monotonic() + DEADLINE_S
    while answer(b"after")[0] != 201:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    connection.close()
    assert hub.stop() == exits.OK
    assert values_of(start().port("http"))[-1] == b"after"


@pytest.mark.parametrize("path", ["/v1/queues/q", "/v1/topics/t", "/v1/groups/g"])
def test_what_another_is_making_is_not_told_to_be_there_before_it_is_durable(start: Start, tmp_path: Path,
                                                                             path: str) -> None:
    sign = tmp_path / "hold"
    hub = start(orders={"hold_sync": str(sign)}, doors=("http",), last_door="request_deadline_s = 600\n")
    port = hub.port("http")
    answers: list[int] = []
    sign.touch()
    makers = [threading.Thread(target=lambda: answers.append(request(port, "PUT", path)[0])) for _ in range(2)]
    makers[0].start()
    while sign.read_text() != "held":
        time.sleep(0.01)
    makers[1].start()
    makers[1].join(1)
    assert not answers
    sign.unlink()
    for maker in makers:
        maker.join()
    assert sorted(answers) == [200, 201]


def test_a_failed_fdatasync_acknowledges_nothing_and_ends_the_hub(start: Start, tmp_path: Path) -> None:
    sign = tmp_path / "fail"
    hub = start(orders={"fail_sync": str(sign)})
    assert post(hub.port("http"), b"before")[0] == 201
    sign.touch()
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(publish(hub.port("mqtt"), b"m"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(OSError):
        post(hub.port("http"), b"h")
    for thread in threads:
        thread.join()
    assert answers == [False] * 3
    assert hub.wait_ended() == exits.STORAGE
    assert hub.log.splitlines()[-1] == (
        "gatehouse: the log failed, nothing more can be promised: fdatasync failed: [Errno 5] Input/output error; "
        "ending, the next start recovers what was acknowledged")
    sign.unlink()
    hub = start()
    assert values_of(hub.port("http"))[0] == b"before"
    assert post(hub.port("http"), b"after")[0] == 201


def test_an_fdatasync_that_does_not_return_holds_up_nobody_else(start: Start, tmp_path: Path) -> None:
    sign = tmp_path / "hold"
    hub = start(orders={"hold_sync": str(sign)}, doors=("mqtt", "kafka", "http"),
                last_door="request_deadline_s = 600\n")
    http, kafka = hub.port("http"), hub.port("kafka")
    peer = MqttPeer(hub.port("mqtt"), "pinger")
    for i in range(20):
        assert post(http, b"%d" % i)[0] == 201
    stored = [b"%d" % i for i in range(20)]
    sign.touch()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(post(http, b"slow")[0]))
    thread.start()
    while sign.read_text() != "held":
        time.sleep(0.01)
    for _ in range(5):
        ping(peer)
        assert request(http, "GET", "/healthz")[0] == 200
        assert values_of(http) == stored, "nobody is given what may still vanish"
    assert [value for messages in read_over_kafka(kafka).values() for _, _, value in messages] == stored
    assert not answers, "the publish has no answer yet"
    sign.unlink()
    thread.join()
    assert answers == [201]
    assert values_of(http) == [*stored, b"slow"]
    peer.close()


def test_a_disk_that_blocks_makes_the_hub_unready_and_then_it_leaves_undone_what_it_can(
        start: Start, tmp_path: Path) -> None:
    sign = tmp_path / "hold"
    hub = start(orders={"hold_sync": str(sign)}, doors=("mqtt", "http"), hub="ready_flush_s = 0.2\n",
                last_door="request_deadline_s = 600\n")
    http = hub.port("http")
    peer = MqttPeer(hub.port("mqtt"), "pinger")
    assert post(http, b"before")[0] == 201 and request(http, "GET", "/readyz")[0] == 200
    sign.touch()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(post(http, b"slow")[0]))
    thread.start()
    hub.wait_log("new_connections")
    assert request(http, "GET", "/readyz")[0] == 503
    assert sample(http, "gatehouse_overload_level") >= 4
    with pytest.raises(ConnectionError, match="not let in"):
        MqttPeer(hub.port("mqtt"), "new")
    ping(peer)
    assert not answers
    sign.unlink()
    thread.join()
    assert answers == [201] and values_of(http) == [b"before", b"slow"]
    assert request(http, "GET", "/readyz")[0] == 200
    end_s = time.monotonic() + DEADLINE_S
    while sample(http, "gatehouse_overload_level") >= 4 and time.monotonic() < end_s:
        ping(peer)
    MqttPeer(hub.port("mqtt"), "new").close()
    peer.close()


def test_a_file_system_that_is_frozen_under_the_index_holds_up_nobody_else(start: Start, tmp_path: Path) -> None:
    """What RocksDB's binding writes, it writes under the interpreter's lock."""
    sign = tmp_path / "hold"
    hub = start("checkpoint_ms = 100", orders={"hold_index": str(sign)})
    http = hub.port("http")
    peer = MqttPeer(hub.port("mqtt"), "pinger")
    assert post(http, b"before")[0] == 201
    sign.touch()
    assert post(http, b"for a checkpoint")[0] == 201
    while sign.read_text() != "held":
        time.sleep(0.01)
    for i in range(5):
        ping(peer)
        assert post(http, b"%d" % i)[0] == 201, "the log is another file"
    stored = [b"before", b"for a checkpoint", *[b"%d" % i for i in range(5)]]
    assert values_of(http) == stored
    assert hub.alive
    sign.unlink()
    peer.close()
    assert hub.stop() == exits.OK
    assert values_of(start().port("http")) == stored


@pytest.mark.parametrize("index", ["with its index", "index deleted"])
@pytest.mark.parametrize("part", ["body", "head"])
def test_a_flipped_bit_costs_what_it_hit_and_is_told(start: Start, tmp_path: Path, part: str, index: str) -> None:
    hub = start()
    for i in range(30):
        assert post(hub.port("http"), b"message %d." % i)[0] == 201
    assert hub.stop() == exits.OK
    (file,) = (tmp_path / "data" / "log").iterdir()
    data = bytearray(file.read_bytes())
    at = data.index(b"message 15.")
    data[at if part == "body" else data.rindex(b"GHF1", 0, at) + 40] ^= 1
    file.write_bytes(data)
    if index == "index deleted":
        shutil.rmtree(tmp_path / "data" / "index")
    hub = start()
    left = [b"message %d." % i for i in range(30)]
    if (part, index) != ("head", "with its index"):      # heads are not needed where the index knows what they say
        del left[15]
    for _ in range(3):
        assert values_of(hub.port("http")) == left
    assert [value for messages in read_over_kafka(hub.port("kafka")).values() for _, _, value in messages] == left
    gaps: list[tuple[int, int]] = []
    read_over_http(hub.port("http"), gaps=gaps)
    if (part, index) == ("head", "index deleted"):  # nobody knows which partitions the frame entered: all are left out
        assert all(offset == 0 for offset, _ in gaps[1:]), "the other partitions hold nothing"
        del gaps[1:]
    assert gaps == [(15, 1)] * (30 - len(left)), "the page names what it steps over"
    told = [line for line in hub.log.splitlines() if "what was stored there is lost" in line]
    assert len(told) == 30 - len(left), "once, however often it is read"
    assert all("ERROR gatehouse: the log cannot be read from position" in line for line in told)
    assert post(hub.port("http"), b"after")[0] == 201
    assert values_of(hub.port("http")) == [*left, b"after"]


def test_a_deleted_index_is_built_anew(start: Start, tmp_path: Path) -> None:
    hub = start("checkpoint_ms = 100")
    for i in range(20):
        post(hub.port("http"), b"%d" % i, key=f"k{i % 3}")
    before = read_over_http(hub.port("http"))
    hub.kill()
    shutil.rmtree(tmp_path / "data" / "index")
    assert read_over_http(start().port("http")) == before
