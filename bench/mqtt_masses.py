"""Many MQTT connections at once, beside mosquitto: they come, are idle, all come back, and all break.

    python -m bench.mqtt_masses [--connections 10000] [--rounds 1] [--users 4]

    connects    all connections are opened at once, each with a session and a will, until the last CONNACK
    bytes       what the server has grown by for each
    storm       all are cut, and all come back at once, to their sessions
    wills       all are cut: until somebody who listens has the will of each

In both servers each connection leaves a session and a will. The hub has them on disk before CONNACK; mosquitto keeps
them in memory. A connection that is refused or closed counts as lost. One process with one thread makes the load.

With `--users` everybody logs in as one of so many users, whose passwords were proven once before; without, as nobody.
"""
from __future__ import annotations

import argparse
import resource
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.measure import table
from bench.servers import ROOT, Server, ServerFailed, start_hub, start_mosquitto, work_folder

WAIT_S: Final = 120.0
CONNACK_BYTES: Final = 4
RESET: Final = struct.pack("ii", 1, 0)         # SO_LINGER: a close that says no goodbye
RECEIVE_BYTES: Final = 1 << 16


def _field(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((first, *length, size)) + body


def password_of(user: str) -> str:
    return f"password of {user}"


def connect_packet(number: int, users: int) -> bytes:
    """CONNECT of 3.1.1 without clean session, with a will of QoS 0, and where there are users as one of them."""
    flags, shown = (0xC4, login(number % users)) if users else (4, b"")
    return _packet(0x10, _field("MQTT") + bytes((4, flags, 0, 0)) + _field(f"mass-{number}") + _field(f"wills/{number}")
                   + _field("bye") + shown)


def login(number: int) -> bytes:
    return _field(f"user{number}") + _field(password_of(f"user{number}"))


class Crowd:
    """Connections that are opened together."""

    def __init__(self, port: int, count: int, users: int = 0) -> None:
        self._port = port
        self._count = count
        self._users = users
        self._open: list[socket.socket] = []
        self.lost = 0

    def connect(self) -> float:
        """All of them, at once: seconds until the last CONNACK."""
        selector = selectors.DefaultSelector()
        begun_s = time.perf_counter()
        for number in range(self._count):
            opened = socket.socket()
            opened.setblocking(False)
            opened.connect_ex(("127.0.0.1", self._port))
            selector.register(opened, selectors.EVENT_WRITE, number)
        left = self._count
        while left and time.perf_counter() - begun_s < WAIT_S:
            for key, events in selector.select(1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket), "only sockets are registered"
                try:
                    if events & selectors.EVENT_WRITE:
                        connection.send(connect_packet(key.data, self._users))
                        selector.modify(connection, selectors.EVENT_READ, key.data)
                        continue
                    answer = connection.recv(CONNACK_BYTES)
                except OSError:
                    answer = b""
                selector.unregister(connection)
                left -= 1
                if len(answer) == CONNACK_BYTES and answer[3] == 0:
                    self._open.append(connection)
                else:
                    self.lost += 1
                    connection.close()
        self.lost += left
        return time.perf_counter() - begun_s

    def cut(self) -> None:
        """All of them, without a goodbye."""
        for connection in self._open:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
        self._open.clear()


def listen_for_wills(port: int, users: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    connection.sendall(_packet(0x10, _field("MQTT") + (b"\4\xc2" if users else b"\4\2") + b"\0\0" + _field("undertaker")
                               + (login(0) if users else b"")))
    connection.recv(CONNACK_BYTES)
    connection.sendall(_packet(0x82, b"\0\1" + _field("wills/#") + b"\0"))
    connection.recv(CONNACK_BYTES + 1)
    return connection


def count_wills(connection: socket.socket, count: int) -> tuple[int, float]:
    """How many came, and when the last one did (seconds)."""
    begun_s, seen, rest = time.perf_counter(), 0, b""
    connection.settimeout(WAIT_S / 4)
    try:
        while seen < count:
            data = rest + connection.recv(RECEIVE_BYTES)
            at = 0
            while len(data) - at >= 2 and len(data) - at >= 2 + data[at + 1]:      # a will is shorter than 128 bytes
                at += 2 + data[at + 1]
                seen += 1
            rest = data[at:]
    except TimeoutError:
        pass
    return seen, time.perf_counter() - begun_s


def start_hub_of(users: int, folder: Path) -> Server:
    if not users:
        return start_hub(folder, doors=("mqtt",))
    folder.mkdir()
    config = folder / "gateways.toml"
    config.write_text(f'[hub]\ndata_dir = "{folder / "data"}"\n[gateways.mqtt]\n')
    for name in [f"user{number}" for number in range(users)]:
        subprocess.run([sys.executable, "-m", "gatehouse.cli", "users", "create", name, "--config", str(config),
                        "--password-file", "-"], input=password_of(name) + "\n", text=True, capture_output=True,
                       cwd=ROOT, check=True)
    rules = "".join([f'[[acl]]\nwho = "user:user{number}"\npattern = "#"\n' for number in range(users)])
    return start_hub(folder, doors=("mqtt",), settings={"AUTH__ALLOW_ANONYMOUS": "false"}, more=rules)


def start_mosquitto_of(users: int, folder: Path) -> Server:
    if not users:
        return start_mosquitto(folder)
    program = shutil.which("mosquitto_passwd")
    if program is None:
        raise ServerFailed("mosquitto_passwd is not installed: on Debian, apt-get install mosquitto")
    folder.mkdir()
    passwords = folder / "passwords"
    passwords.touch(0o700)
    for name in [f"user{number}" for number in range(users)]:
        subprocess.run([program, "-b", str(passwords), name, password_of(name)], check=True)
    return start_mosquitto(folder, passwords)


def measure(server: Server, count: int, users: int) -> list[str]:
    port = server.ports["mqtt"]
    if users:                                        # each password is proven once
        proving = Crowd(port, users, users)
        proving.connect()
        proving.cut()
        if proving.lost:
            raise ServerFailed(f"{server.name} refused {proving.lost} of {users} users")
    crowd = Crowd(port, count, users)
    before = server.resident_bytes()
    connects_s = crowd.connect()
    each = (server.resident_bytes() - before) / count
    crowd.cut()
    storm_s = crowd.connect()
    watcher = listen_for_wills(port, users)
    crowd.cut()
    wills, wills_s = count_wills(watcher, count)
    watcher.close()
    return [server.name, f"{count / connects_s:,.0f}", f"{each:,.0f}", f"{count / storm_s:,.0f}", f"{storm_s:.2f}",
            f"{crowd.lost:,}", f"{wills:,}", f"{wills_s:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mqtt_masses", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--users", type=int, default=0, help="0: nobody logs in")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))         # the servers have it from here
    rows: list[list[str]] = []
    with work_folder() as folder:
        for at in range(options.rounds):
            for start in (start_hub_of, start_mosquitto_of):
                server = start(options.users, folder / f"{len(rows)}-{at}")
                try:
                    rows.append(measure(server, options.connections, options.users))
                finally:
                    server.kill()
    who = f" of {options.users} users" if options.users else ""
    print(table([f"{options.connections:,} connections{who}", "connects/s", "bytes each", "storm: connects/s", "s",
                 "lost", "wills", "s"], rows))


if __name__ == "__main__":
    main()
