"""A real disk, small, that half messages have filled to the last byte: `python -m tests.faults.full_of_halves`.

Needs the right to mount a disk, which a machine for tests may not give; `tests.transactions.test_full_disk` is the same
on the simulator's.
"""
from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.faults.clients import post, request
from tests.faults.test_disk import sample
from tests.running_hub import RunningHub, config_of

KIB: Final = 1024
DISK_MIB: Final = 40
WAIT_S: Final = 60.0
KERNEL: Final = "checkpoint_ms = 100\nreserve_bytes = 8388608"
QUIET: Final = {"after": 86_400}

Resize = Callable[[int], None]
Start = Callable[[], RunningHub]


class NoDisk(Exception):
    """This machine lets nobody mount one."""


@contextmanager
def small_disk(folder: Path) -> Iterator[Resize]:
    """A disk of its own at this folder, and how to set its size in MiB. Raises NoDisk."""
    folder.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoDisk(done.stderr.strip())

    mount(f"size={DISK_MIB}m")
    try:
        yield lambda mib: mount(f"remount,size={mib}m")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def hold(line: HTTPConnection, size_bytes: int) -> str | None:
    """The id of a transaction with so large a half message; None where there is no room for it."""
    body = {"group": "shop", "check": QUIET, "messages": [{"address": "t/k", "value": "v" * size_bytes}]}
    line.request("POST", "/v1/transactions", json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    told = json.loads(answer.read())
    assert answer.status == 201 or (answer.status, told["code"]) == (507, "storage_full"), told
    return str(told["id"]) if answer.status == 201 else None


def fill(port: int) -> list[str]:
    """Not even a small one is taken afterwards."""
    line = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    held: list[str] = []
    for size_bytes in (500 * KIB, 50 * KIB, 5 * KIB, 100, 0):
        while (one := hold(line, size_bytes)) is not None:
            held.append(one)
    line.close()
    return held


def until_taken(port: int, value: bytes) -> None:
    deadline = time.monotonic() + WAIT_S
    while (status := post(port, value)[0]) != 201:
        assert status == 507 and time.monotonic() < deadline, status
        time.sleep(0.1)


def rolled_back(start: Start, resize: Resize) -> None:
    """What half messages have filled is rolled back."""
    hub = start()
    held = fill(hub.port("http"))
    assert len(held) > 10
    for one in held[:-1]:
        status, told = request(hub.port("http"), "POST", f"/v1/transactions/{one}/rollback")
        assert (status, told["state"]) == (200, "rolled_back"), told
    assert sample(hub.port("http"), "gatehouse_reserve_held") == 0
    assert post(hub.port("http"), b"message")[1]["code"] == "storage_full", "the room is not for messages"
    hub.kill()

    hub = start()
    port = hub.port("http")
    for one, state in ((held[0], "rolled_back"), (held[-2], "rolled_back"), (held[-1], "open")):
        assert request(port, "GET", f"/v1/transactions/{one}")[1]["state"] == state
    resize(3 * DISK_MIB)
    until_taken(port, b"after")
    assert sample(port, "gatehouse_reserve_held") == 1
    assert request(port, "POST", f"/v1/transactions/{held[-1]}/commit")[0] == 200


def not_committed(start: Start, resize: Resize) -> None:
    """A commit without room is refused and stays open."""
    hub = start()
    port = hub.port("http")
    first = fill(port)[0]
    status, told = request(port, "POST", f"/v1/transactions/{first}/commit")
    assert (status, told["code"]) == (507, "storage_full")
    assert request(port, "GET", f"/v1/transactions/{first}")[1]["state"] == "open"
    resize(3 * DISK_MIB)
    assert request(port, "POST", f"/v1/transactions/{first}/commit")[0] == 200


def run(act: Callable[[Start, Resize], None], folder: Path) -> None:
    """On a disk of its own; what is started is killed in the end."""
    hubs: list[RunningHub] = []

    def start() -> RunningHub:
        hubs.append(RunningHub(folder, config_of(("http",), KERNEL)))
        hubs[-1].wait_ready()
        return hubs[-1]

    with small_disk(folder / "data") as resize:
        try:
            act(start, resize)
        finally:
            hubs[-1].kill()


def main() -> int:
    for act in (rolled_back, not_committed):
        with TemporaryDirectory() as folder:
            try:
                run(act, Path(folder))
            except NoDisk as error:
                print(f"no disk can be mounted here: {error}", file=sys.stderr)
                return 3
        print(act.__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
