"""The tour of the README works as it stands there, pasted into a shell beside `make run` (on other ports)."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.running_hub import ROOT, RunningHub, free_port

LIMIT_S: Final = 280
PORTS: Final = ("1883", "8080", "5672", "9092", "11883", "18080", "18443", "15673", "19092")
DENIED: Final = "is denied, by each door"


@pytest.fixture(scope="module")
def moved() -> dict[str, int]:
    """Every port that the tour names, and the free one that it has here."""
    return {port: free_port() for port in PORTS}


def on_other_ports(text: str, moved: dict[str, int]) -> str:
    """The same text; mosquitto's clients are told the port that is theirs anyway, and who is given a second to
    subscribe is given as long as he takes."""
    text = text.replace("& sleep 1\n", """& until curl -s http://127.0.0.1:8080/v1/connections |
        grep -q '"subscriptions":[1-9]'; do sleep 0.1; done\n""")
    text = re.sub(r"-h 127\.0\.0\.1(?! -p)", "-h 127.0.0.1 -p 1883", text)
    return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: str(moved[found[1]]), text)


def blocks(moved: dict[str, int]) -> list[str]:
    """The shell blocks of the README, in their order."""
    found = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [on_other_ports(block, moved) for block in found]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, moved: dict[str, int]) -> Iterator[list[str]]:
    """What each block says, run one after the other by one shell in a folder like a fresh clone's.

    A block ends at the first command that fails, but for the one in which all are to be refused.
    """
    folder = tmp_path_factory.mktemp("clone")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    hub = RunningHub(folder, on_other_ports((ROOT / "gateways.toml").read_text(), moved))
    script = "\n".join(f"set {'+e' if DENIED in block else '-e'}\n{block}\necho '=== block'"
                       for block in blocks(moved))
    environment = {name: value for name, value in os.environ.items()         # its dozen commands compile once, as usual
                   if not name.startswith("GATEHOUSE_") and name != "PYTHONDONTWRITEBYTECODE"}
    try:
        hub.wait_ready()
        shell = subprocess.Popen(["bash", "-c", f"exec 2>&1\n{script}"], stdout=subprocess.PIPE, text=True, cwd=folder,
                                 env=environment | {"HOME": str(folder)},
                                 start_new_session=True)
        try:
            out, _ = shell.communicate(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):           # what the shell has left in the background
                os.killpg(shell.pid, signal.SIGKILL)
        assert out.count("=== block") == len(blocks(moved)), out
        yield out.split("=== block\n")
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said
    finally:
        hub.kill()


def block(told: list[str], moved: dict[str, int], words: str) -> str:
    """What the block with these words says."""
    number = next(number for number, text in enumerate(blocks(moved)) if words in text)
    return told[number]


def pages_of(out: str) -> list[list[tuple[str, str, str]]]:
    """Key, value and door of each message of each page of a topic."""
    pages = [json.loads(line) for line in out.splitlines() if line.startswith('{"messages"')]
    return [[(message["key"], message["value"], message["door"]) for message in page["messages"]] for page in pages]


def test_five_minutes(told: list[str], moved: dict[str, int]) -> None:
    out = block(told, moved, "HTTP in")
    for line in ("line1/temp = 21.5", "line2/temp = 19.0", "line3/temp = 23.1", "line7/temp = 22.0", "hello, queue",
                 "24.5", "plant/line4/temp 20.2", "topic plant, key 'line1/temp'"):
        assert line in out
    assert set(pages_of(out)[0]) == {
        ("line1/temp", "21.5", "http"), ("line2/temp", "19.0", "mqtt"), ("line3/temp", "23.1", "kafka"),
        ("line7/temp", "22.0", "amqp")}
    consumed = [line.split("  ")[1] for line in out.splitlines() if line[:1].isdigit() and line.count("  ") == 2]
    taken = [line.split()[2] for line in out.splitlines() if line.startswith("worker takes") and line.endswith(" None")]
    assert sorted(consumed + taken) == [f"plant/line{number}/temp" for number in (1, 2, 3, 4, 7)]


def test_a_browser(told: list[str], moved: dict[str, int]) -> None:
    console, document = block(told, moved, "chromium").strip().splitlines()
    assert "Overview" in console
    assert f"mqtt 127.0.0.1:{moved['1883']}" in console, "live figures of the doors"
    assert "POST /v1/publish/{address}" in document


def test_a_device_sleeps_and_a_message_is_found(told: list[str], moved: dict[str, int]) -> None:
    lines = block(told, moved, "close the valve").splitlines()
    assert any(line.split()[:3] == ["meter7", "anonymous", "no"] for line in lines)
    assert [line for line in lines if line in ("1 night rate", "2 close the valve")] == [
        "1 night rate", "2 close the valve"], "each once, over the kill"
    assert lines.count("HOW ARE YOU?") == 1, "from the AMQP worker"
    assert any("stored" in line for line in lines) and any("plant/line9/temp" in line for line in lines)
    assert lines[-1] == "nobody_takes: it is ready, and nobody takes from there"


def test_half_messages(told: list[str], moved: dict[str, int]) -> None:
    out = block(told, moved, "half()")
    assert pages_of(out) == [[], [("17", "one book", "http")]]
    states = [json.loads(line)["state"] for line in out.splitlines() if '"state"' in line]
    assert states == ["committed", "rolled_back", "rolled_back"]
    assert '"code":"already_decided"' in out


def test_logins(told: list[str], moved: dict[str, int]) -> None:
    out = block(told, moved, "users create root")
    assert "allowed by the rule: allow user:ann: publish on address plant/# (1)" in out
    assert pages_of(out) == [[("17", "one book", "http")]], "the restored hub has the messages of before"
    assert '"address":"plant/line1/temp"' in out


def test_each_door_denies(told: list[str], moved: dict[str, int]) -> None:
    out = block(told, moved, DENIED)
    for words in ('"status":403', "Error: The connection was lost", "All subscription requests were denied",
                  "Topic authorization failed", "server channel error 403, message: ACCESS_REFUSED",
                  "denied: no rule allows it"):
        assert words in out
