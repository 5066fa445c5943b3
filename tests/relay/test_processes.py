"""Hubs and a meeting point as processes: joined as a user does it, then killed in turn while messages go over."""
from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.relay.processes import RunningRelay, ask, hub_config, key_of, link_of, read_all
from tests.running_hub import RunningHub, free_port, gatehouse
from tests.waiting import until

SEND = '[[relay.links]]\nname = "link"\nsend = ["plant/#"]\nreceive = ["orders/#"]\n'
RECEIVE = '[[relay.links]]\nname = "link"\nsend = ["orders/#"]\nreceive = ["plant/#"]\n'


@contextmanager
def two_hubs(folder: Path, of_link: str = "", of_relay: str = "", of_links: str = "") -> Iterator[
        tuple[RunningHub, RunningHub, RunningRelay]]:
    port = free_port()
    url = f"ws://127.0.0.1:{port}/v1/relay"
    hubs = []
    for name, links in (("a", SEND), ("b", RECEIVE)):
        (folder / name).mkdir()
        hubs.append(RunningHub(folder / name, hub_config(url, links + of_link)))
    relay = None
    try:
        for hub in hubs:
            hub.wait_ready()
        relay = RunningRelay(folder, port, {"a": key_of(hubs[0]), "b": key_of(hubs[1])}, ["plant", "orders"],
                             more=of_relay, of_links=of_links)
        yield hubs[0], hubs[1], relay
    finally:
        for hub in hubs:
            hub.kill()
        if relay is not None:
            relay.kill()


def url_of(hub: RunningHub) -> str:
    return f"http://127.0.0.1:{hub.port('http')}"


def join(a: RunningHub, b: RunningHub) -> None:
    """By the commands that a user types."""
    invited = gatehouse("relay", "invite", "link", "--url", url_of(a))
    assert invited.returncode == 0, invited.stderr
    joined = gatehouse("relay", "join", invited.stdout.strip(), "--url", url_of(b))
    assert (joined.returncode, joined.stdout) == (0, "joined link\n"), joined.stderr
    until(lambda: link_of(a)["state"] == link_of(b)["state"] == "open", lambda: (link_of(a), link_of(b)))


def restarted(hub: RunningHub) -> RunningHub:
    hub.kill()
    config = (hub.folder / "gateways.toml").read_text()
    again = RunningHub(hub.folder, config)
    again.wait_ready()
    return again


def test_messages_cross_both_ways_and_survive_kills(tmp_path: Path) -> None:
    with two_hubs(tmp_path) as (a, b, relay):
        join(a, b)
        sent: list[str] = []
        hubs = [a, b]
        try:
            for round_number in range(6):
                for number in range(20):
                    value = f"{round_number}-{number}"
                    ask(hubs[0], "POST", f"/v1/publish/plant/{number % 3}", body=value.encode())
                    sent.append(value)
                match round_number:
                    case 1:
                        hubs[0] = restarted(hubs[0])
                    case 2:
                        relay.kill()
                        relay.start()
                    case 3:
                        hubs[1] = restarted(hubs[1])
            ask(hubs[1], "POST", "/v1/publish/orders/1", body=b"back")
            until(lambda: link_of(hubs[0])["state"] == "open" and link_of(hubs[0])["lag"]["messages"] == 0
                     and link_of(hubs[1])["lag"]["messages"] == 0, lambda: (link_of(hubs[0]), link_of(hubs[1])))
            came = Counter(message["value"] for message in read_all(hubs[1], "plant"))
            assert came == Counter(sent)
            assert [message["value"] for message in read_all(hubs[0], "orders")] == ["back"]
        finally:
            for hub in hubs:
                hub.kill()


def test_the_commands_of_a_link(tmp_path: Path) -> None:
    with two_hubs(tmp_path) as (a, b, _):
        def said(hub: RunningHub, *words: str) -> str:
            done = gatehouse("relay", *words, "--url", url_of(hub))
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert said(a, "key") == key_of(a) + "\n"
        assert "not joined" in said(a, "status")
        join(a, b)
        ask(a, "POST", "/v1/publish/plant/1", body=b"once")
        until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
        assert "open" in said(a, "status") and "received.messages" in said(b, "show", "link")
        assert "and the other hub takes it" in said(a, "explain", "link", "plant/1")
        assert "not sent" in said(a, "explain", "link", "secret/1")
        assert said(a, "pause", "link") == "paused link\n"
        ask(a, "POST", "/v1/publish/plant/1", body=b"later")
        assert link_of(a)["state"] == "paused" and link_of(a)["lag"]["messages"] == 1
        assert said(a, "once", "link") == "link is empty, and paused\n"
        assert (link_of(a)["state"], link_of(a)["lag"]["messages"]) == ("paused", 0)
        assert said(a, "resume", "link") == "resumed link\n"
        until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
        assert said(b, "rewind", "link", "plant").startswith("rewound plant: ")
        until(lambda: len(read_all(b, "plant")) == 4, lambda: read_all(b, "plant"))
        assert [message["value"] for message in read_all(b, "plant")] == ["once", "later"] * 2
        made = said(a, "rotate")
        until(lambda: "none" in said(a, "rotate"), lambda: said(a, "rotate"))
        assert "next key" in made and ask(a, "GET", "/v1/relay")["next_key"] in made
        assert said(b, "unlink", "link") == "unlinked link\n"
        assert "not joined" in said(b, "status")
        refused = gatehouse("relay", "pause", "nothing", "--url", url_of(a))
        assert (refused.returncode, "no link 'nothing'" in refused.stderr) == (1, True)
        again = gatehouse("relay", "join", "ghl1.x", "--url", url_of(a))
        assert again.returncode == 1 and "does not read" in again.stderr
        audited = read_all(a, "audit")
        assert {"relay.invited", "relay.pinned", "relay.paused", "relay.resumed"} <= {
            json.loads(message["value"])["action"] for message in audited}


def test_what_is_kept_survives_everybody_and_arrives_without_its_sender(tmp_path: Path) -> None:
    """B is away, A sends and goes, the meeting point is killed: B comes back to all of it."""
    with two_hubs(tmp_path, "spool = true\n", 'spool = "spool"\n', "spool_bytes = 1000000\n") as (a, b, relay):
        join(a, b)
        ask(a, "POST", "/v1/publish/plant/1", body=b"0")
        until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
        b.kill()
        sent = ["0"]
        for number in range(1, 30):
            ask(a, "POST", f"/v1/publish/plant/{number % 3}", body=b"%d" % number)
            sent.append(str(number))
        until(lambda: link_of(a)["spool"]["kept_messages"] == 29, lambda: link_of(a))
        letters = link_of(a)["spool"]["kept_letters"]
        until(lambda: held(relay.port) == letters, lambda: held(relay.port))
        assert "absent" in gatehouse("relay", "status", "--url", url_of(a)).stdout
        a.kill()
        relay.kill()
        relay.start()
        again = restarted(b)
        try:
            until(lambda: len(read_all(again, "plant")) == 30, lambda: link_of(again))
            assert Counter(message["value"] for message in read_all(again, "plant")) == Counter(sent)
            until(lambda: not held(relay.port), lambda: held(relay.port))
        finally:
            again.kill()


def held(port: int) -> int:
    """How many letters a meeting point keeps."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("gatehouse_relay_spool_letters ")))
