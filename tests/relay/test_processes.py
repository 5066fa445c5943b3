"""Hubs and a meeting point as processes: joined as a user does it, then killed in turn while messages go over."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.relay.processes import RunningRelay, ask, hub_config, key_of, link_of, read_all, wait_for
from tests.running_hub import RunningHub, free_port, gatehouse

SEND = '[[relay.links]]\nname = "link"\nsend = ["plant/#"]\nreceive = ["orders/#"]\n'
RECEIVE = '[[relay.links]]\nname = "link"\nsend = ["orders/#"]\nreceive = ["plant/#"]\n'


@contextmanager
def two_hubs(folder: Path) -> Iterator[tuple[RunningHub, RunningHub, RunningRelay]]:
    port = free_port()
    url = f"ws://127.0.0.1:{port}/v1/relay"
    hubs = []
    for name, links in (("a", SEND), ("b", RECEIVE)):
        (folder / name).mkdir()
        hubs.append(RunningHub(folder / name, hub_config(url, links)))
    relay = None
    try:
        for hub in hubs:
            hub.wait_ready()
        relay = RunningRelay(folder, port, {"a": key_of(hubs[0]), "b": key_of(hubs[1])}, ["plant", "orders"])
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
    wait_for(lambda: link_of(a)["state"] == link_of(b)["state"] == "open", lambda: (link_of(a), link_of(b)))


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
            wait_for(lambda: link_of(hubs[0])["state"] == "open" and link_of(hubs[0])["lag"]["messages"] == 0
                     and link_of(hubs[1])["lag"]["messages"] == 0, lambda: (link_of(hubs[0]), link_of(hubs[1])))
            came = Counter(message["value"] for message in read_all(hubs[1], "plant"))
            assert came == Counter(sent)
            assert [message["value"] for message in read_all(hubs[0], "orders")] == ["back"]
        finally:
            for hub in hubs:
                hub.kill()
