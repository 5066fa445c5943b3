"""Consumer groups of the Kafka door beside Apache Kafka 4: a rebalance of a hundred members, ten thousand groups that
commit.

    python -m bench.kafka_groups [--members 100] [--groups 10000] [--rounds 10]

A rebalance: one member has left and a new one has joined; the clock runs from the moment in which all others join
again until the last has its part, as if no client took time. Commits: each group commits the offset of one partition,
over a few connections with a window of requests in flight each. Kafka answers before the disk has it, this hub after.

JoinGroup 2, SyncGroup 1, LeaveGroup 1, OffsetCommit 2, FindCoordinator 0: versions without flexible fields.
"""
from __future__ import annotations

import argparse
import socket
import struct
import sys
import time
from statistics import median
from typing import Final

from bench.apache_kafka import create_topic, start_kafka
from bench.load_kafka import enter, request_head, text
from bench.load_pair import LoadFailed, receive
from bench.measure import table
from bench.servers import Server, start_hub, work_folder

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP = 8, 10, 11, 13, 14
NOT_YET: Final = (14, 15, 16)    # the coordinator loads, is not there, is another: for a moment after a start
SESSION_MS: Final = 60_000
SETTLE_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.1
CONNECTIONS: Final = 4
WINDOW: Final = 32
TOPIC: Final = "plant"
METADATA: Final = b"\0\1\0\0\0\1\0\5plant" + b"\xff" * 4
PART: Final = b"\0\1\0\0\0\1\0\5plant" + bytes(20)


def counted(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def send(connection: socket.socket, key: int, version: int, body: bytes) -> None:
    connection.sendall(request_head(key, version, len(body)) + body)


def take(connection: socket.socket) -> bytes:
    """The next answer, behind its correlation id."""
    return receive(connection, struct.unpack(">i", receive(connection, 4))[0])[4:]


def read_text(answer: bytes, at: int) -> tuple[str, int]:
    size: int = struct.unpack_from(">h", answer, at)[0]
    return answer[at + 2:at + 2 + size].decode(), at + 2 + size


class Member:
    """One member on a connection of its own."""

    def __init__(self, port: int, group: str) -> None:
        self.connection = enter(port)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []     # the leader is told who there is

    def join(self) -> None:
        body = text(self.group) + struct.pack(">ii", SESSION_MS, SESSION_MS) + text(self.member_id) + text("consumer")
        send(self.connection, JOIN_GROUP, 2, body + struct.pack(">i", 1) + text("range") + counted(METADATA))

    def on_joined(self) -> None:
        """Raises LoadFailed."""
        answer = take(self.connection)
        error, self.generation = struct.unpack_from(">hi", answer, 4)
        if error:
            raise LoadFailed(f"JoinGroup answered error {error}")
        at = read_text(answer, read_text(answer, 10)[1])[1]
        self.member_id, at = read_text(answer, at)
        count: int = struct.unpack_from(">i", answer, at)[0]
        at += 4
        self.members = []
        for _ in range(count):
            name, at = read_text(answer, at)
            self.members.append(name)
            at += 4 + struct.unpack_from(">i", answer, at)[0]

    def sync(self) -> None:
        body = text(self.group) + struct.pack(">i", self.generation) + text(self.member_id)
        parts = b"".join([text(name) + counted(PART) for name in self.members])
        send(self.connection, SYNC_GROUP, 1, body + struct.pack(">i", len(self.members)) + parts)

    def on_part(self) -> None:
        """Raises LoadFailed."""
        error: int = struct.unpack_from(">h", take(self.connection), 4)[0]
        if error:
            raise LoadFailed(f"SyncGroup answered error {error}")

    def leave(self) -> None:
        send(self.connection, LEAVE_GROUP, 1, text(self.group) + text(self.member_id))
        take(self.connection)
        self.connection.close()


def assign(members: list[Member]) -> None:
    """What follows when all have asked to join."""
    for member in members:
        member.on_joined()
    for member in members:
        member.sync()
    for member in members:
        member.on_part()


def find_coordinator(port: int, group: str) -> None:
    """Wait until the server coordinates groups. Raises LoadFailed."""
    end_s = time.monotonic() + SETTLE_S
    with enter(port) as connection:
        while True:
            send(connection, FIND_COORDINATOR, 0, text(group))
            error: int = struct.unpack_from(">h", take(connection))[0]
            if not error:
                return
            if error not in NOT_YET or time.monotonic() > end_s:
                raise LoadFailed(f"FindCoordinator answered error {error}")
            time.sleep(LOOK_AGAIN_S)


def rebalances(port: int, count: int, rounds: int) -> list[float]:
    """Seconds of each."""
    members = [Member(port, "workers") for _ in range(count)]
    end_s = time.monotonic() + SETTLE_S
    while True:
        members[0].join()
        try:
            members[0].on_joined()
            break
        except LoadFailed:
            if time.monotonic() > end_s:
                raise
            time.sleep(LOOK_AGAIN_S)
    took = []
    for turn in range(rounds + 1):
        if turn:
            members.pop().leave()
            members.append(Member(port, "workers"))
        for member in members[1:] if not turn else members[-1:]:
            member.join()
        time.sleep(LOOK_AGAIN_S)         # who is new has been heard: the others would go on without him
        begun_s = time.perf_counter()
        for member in members[:1] if not turn else members[:-1]:
            member.join()
        assign(members)
        if turn:
            took.append(time.perf_counter() - begun_s)
    for member in members:
        member.connection.close()
    return took


def commit(group: int, offset: int) -> bytes:
    """The request of one group, framed."""
    body = text(f"group-{group}") + struct.pack(">i", -1) + text("") + struct.pack(">qi", -1, 1) + text(TOPIC)
    body += struct.pack(">iiq", 1, 0, offset) + text("")
    return request_head(OFFSET_COMMIT, 2, len(body)) + body


def settle(connection: socket.socket) -> None:
    """Wait until commits are taken: Kafka makes a topic for them first. Raises LoadFailed."""
    end_s = time.monotonic() + SETTLE_S
    while True:
        connection.sendall(commit(0, 0))
        error: int = struct.unpack(">h", take(connection)[-2:])[0]
        if not error:
            return
        if time.monotonic() > end_s:
            raise LoadFailed(f"OffsetCommit answered error {error}")
        time.sleep(LOOK_AGAIN_S)


def commits(port: int, groups: int, rounds: int) -> list[float]:
    """Commits a second, in each round; a first round, in which the groups are made, is not counted."""
    connections = [enter(port) for _ in range(CONNECTIONS)]
    settle(connections[0])
    rates = []
    for turn in range(rounds + 1):
        begun_s = time.perf_counter()
        for first in range(0, groups, CONNECTIONS * WINDOW):
            last = min(groups, first + CONNECTIONS * WINDOW)
            shares = [range(first + number, last, CONNECTIONS) for number in range(CONNECTIONS)]
            for connection, share in zip(connections, shares, strict=True):
                connection.sendall(b"".join([commit(group, turn + 1) for group in share]))
            for connection, share in zip(connections, shares, strict=True):
                for _ in share:
                    error: int = struct.unpack(">h", take(connection)[-2:])[0]
                    if error:
                        raise LoadFailed(f"OffsetCommit answered error {error}")
        if turn:
            rates.append(groups / (time.perf_counter() - begun_s))
    for connection in connections:
        connection.close()
    return rates


def measure(server: Server, options: argparse.Namespace) -> list[str]:
    create_topic(server, TOPIC, 4)
    port = server.ports["kafka"]
    find_coordinator(port, "workers")
    took = [seconds * 1000 for seconds in rebalances(port, options.members, options.rounds)]
    print(f"{server.name}: rebalances {median(took):.1f} ms", file=sys.stderr, flush=True)
    rates = commits(port, options.groups, options.rounds)
    return [server.name, f"{median(took):.1f}", f"{max(took):.1f}", f"{median(rates):,.0f}", f"{min(rates):,.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with work_folder() as folder:
        servers: list[Server] = []
        try:
            servers.append(start_hub(folder / "hub", doors=("kafka",), settings={
                "GATEWAYS__KAFKA__GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}))
            servers.append(start_kafka(folder / "kafka"))
            rows = [measure(server, options) for server in servers]
            print(table([f"{options.members} members, {options.groups:,} groups", "rebalance, ms", "longest, ms",
                         "commits/s", "slowest round/s"], rows), flush=True)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
