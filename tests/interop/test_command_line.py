"""The command line against a real hub: what was published is there, for people and for programs."""
from __future__ import annotations

import json
import time

import pytest

from gatehouse import exits
from gatehouse_client import SyncClient
from tests.running_hub import DEADLINE_S, RunningHub, gatehouse


@pytest.fixture
def call(hub: RunningHub):
    """Exit code, standard output and standard error of one command."""
    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        done = gatehouse(*arguments, "--url", f"http://127.0.0.1:{hub.port('http')}", stdin=stdin)
        return done.returncode, done.stdout, done.stderr
    return call


def test_publish_and_consume(call):
    code, out, _ = call("publish", "plant/line1/temp", "21.5", "--header", "unit=C", "--content-type", "text/plain")
    assert (code, out[:31]) == (0, "stored: topic plant, partition ")
    assert call("publish", "plant/line1/temp", stdin="1\n2\n3\n") == (
        0, "published 3 messages to plant/line1/temp\n", "")
    code, out, _ = call("consume", "plant", "--json")
    messages = [json.loads(line) for line in out.splitlines()]
    assert [message["value"] for message in messages] == ["21.5", "1", "2", "3"]
    assert messages[0]["headers"] == [["unit", "C"]]
    assert messages[0]["content_type"] == "text/plain"
    assert "content_type" not in messages[1]


def test_consume_from_an_offset_and_filtered(call):
    partition = json.loads(call("publish", "plant/a", "0", "--json")[1])["partition"]
    call("publish", "plant/a", stdin="1\n2\n")
    call("publish", "plant/b/deep", "other")
    code, out, _ = call("consume", "plant", "--from", "1", "--partition", str(partition), "--filter", "plant/+",
                        "--json")
    assert (code, [json.loads(line)["value"] for line in out.splitlines()]) == (0, ["1", "2"])


def test_consume_by_a_condition(call):
    for unit, value in (("C", "21"), ("F", "70"), ("C", "22")):
        call("publish", "plant/line1", value, "--header", f"unit={unit}", "--content-type", "text/plain")
    code, out, err = call("consume", "plant", "--filter", "unit = 'C' AND content_type LIKE 'text/%'", "--json")
    assert (code, [json.loads(line)["value"] for line in out.splitlines()], err) == (0, ["21", "22"], "")
    assert call("consume", "plant", "--filter", "unit = 'K'") == (0, "", "")
    code, out, err = call("consume", "plant", "--filter", "unit =")
    assert (code, out) == (exits.USAGE, "")
    assert err.startswith("gatehouse: 'unit =' is no filter: at character 7: expected a name or a value, found the end")


def test_topics_and_status(call):
    call("publish", "plant/a", "x")
    assert [json.loads(line)["name"] for line in call("topics", "--json")[1].splitlines()] == ["plant"]
    assert "high watermark" in call("topics", "plant")[1]
    code, out, _ = call("status", "--json")
    told = json.loads(out)
    doors = {door["door"]: door for door in told["doors"]}
    assert (code, told["ready"], told["topics"], doors["http"]["messages_in"]) == (0, True, 1, 1)
    assert set(doors) == {"mqtt", "http", "amqp", "kafka"}
    assert "http" in call("status")[1]


def test_consume_as_a_member_of_a_group(call):
    call("publish", "jobs", stdin="".join(f"{number}\n" for number in range(50)))
    code, out, _ = call("consume", "jobs", "--group", "workers", "--max", "40", "--json")
    first = [json.loads(line)["value"] for line in out.splitlines()]
    code, out, _ = call("consume", "jobs", "--group", "workers")
    assert (code, len(first), len(out.splitlines())) == (0, 40, 10)
    assert call("consume", "jobs", "--group", "workers") == (0, "", "")


def test_groups_are_defined_shown_rewound_and_deleted(call):
    call("publish", "jobs", stdin="1\n2\n3\n")
    code, out, _ = call("groups", "define", "workers", "--max-attempts", "1", "--invisible", "90.5", "--retry", "0.1",
                        "--retry", "1", "--json")
    told = json.loads(out)
    assert (code, told["max_attempts"], told["invisible_ms"], told["retry"]["delays_ms"]) == (0, 1, 90_500, [100, 1000])
    call("consume", "jobs", "--group", "workers")
    assert "workers  leased" in call("groups", "list")[1]
    code, out, _ = call("groups", "show", "workers")
    assert (code, "topic  ready  leased" in out) == (0, True)
    code, out, _ = call("groups", "rewind", "workers", "jobs", "earliest", "--json")
    assert sum(json.loads(line)["lag"] for line in out.splitlines()) == 3
    assert call("groups", "delete", "workers") == (0, "deleted workers\n", "")
    assert call("groups", "show", "workers")[0] == exits.FAILED
    assert call("groups", "define", "workers", "--filter", "a = ")[0] == exits.FAILED


def test_dead_letters_and_their_queue(call, hub):
    call("groups", "define", "workers", "--max-attempts", "1")
    call("publish", "jobs", stdin="1\n2\n")
    assert call("dead-letters", "list", "workers")[1].count("\n") == 1
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        group = client.group("workers", "jobs")
        assert group.reject(group.pop(wait_s=20)) == [None, None]
    end_s = time.monotonic() + DEADLINE_S
    while call("dead-letters", "list", "workers")[1].count("\n") < 3:       # they are read before they are buried
        assert time.monotonic() < end_s
    letters = [json.loads(line) for line in call("dead-letters", "list", "workers", "--json")[1].splitlines()]
    assert [letter["value"] for letter in letters] == ["1", "2"]
    assert "rejected" in call("dead-letters", "list", "workers")[1]
    assert "$dead-letters/workers" in call("queues", "list")[1]
    assert json.loads(call("queues", "show", "$dead-letters/workers", "--json")[1])["ready"] == 2
    code, out, err = call("dead-letters", "redrive", "workers", letters[0]["id"], "7")
    assert (code, out) == (exits.FAILED, "redriven: 1\n")
    assert err == "gatehouse: 1 stayed; 7: the group has no such dead letter\n"
    assert call("dead-letters", "redrive", "workers", "--all") == (0, "redriven: 1\n", "")


def test_refusals(call):
    assert call("consume", "nothing") == (
        exits.FAILED, "", "gatehouse: the hub refused: there is no topic 'nothing' (unknown_topic)\n")
    code, out, err = call("publish", "plant/a", "x", "--retain")
    assert (code, err) == (exits.OK, "")
