"""A wire between two network devices that carries frames late, twice, or not at all.

    python -m tests.relay.bad_wire DEVICE DEVICE    carries them
    python -m tests.relay.bad_wire DEVICE           has what is at another end send frames as they are on a cable

The kernel's own (`tc netem`) is not in every kernel, so raw sockets do it; devices must not leave checksums and cutting
to whatever comes behind them. Needs root.
"""
from __future__ import annotations

import array
import fcntl
import heapq
import random
import select
import socket
import struct
import sys
import time

LATENESS_S = (0.002, 0.012)            # so frames overtake each other, too
LOST = 0.01
TWICE = 0.02
SEED = 7

SIOCETHTOOL = 0x8946
OFFLOADS = (0x17, 0x19, 0x1F, 0x24, 0x2C)      # STXCSUM, SSG, STSO, SGSO, SGRO
ETH_P_ALL = 3
PACKET_OUTGOING = 4
FRAME_BYTES = 1 << 17


def plain(device: str) -> None:
    """Have a device send whole frames with their checksums in them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFFLOADS:
            value = array.array("B", struct.pack("II", command, 0))
            address, _ = value.buffer_info()
            try:
                fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), address))
            except OSError:
                continue                       # it has none of that kind


def carry(names: tuple[str, str]) -> None:
    ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) for _ in names]
    for name, end in zip(names, ends, strict=True):
        plain(name)
        end.bind((name, 0))
        end.setblocking(False)
    print("ready", flush=True)
    chance = random.Random(SEED)
    late: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        wait_s = max(late[0][0] - time.monotonic(), 0) if late else 1.0
        for end in select.select(ends, [], [], wait_s)[0]:
            frame, address = end.recvfrom(FRAME_BYTES)
            if address[2] == PACKET_OUTGOING or chance.random() < LOST:
                continue
            for _ in range(2 if chance.random() < TWICE else 1):
                number += 1
                heapq.heappush(late, (time.monotonic() + chance.uniform(*LATENESS_S), number,
                                      1 - ends.index(end), frame))
        while late and late[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(late)
            try:
                ends[to].send(frame)
            except OSError:
                continue                       # the plug is pulled


if __name__ == "__main__":
    if len(sys.argv) > 2:
        carry((sys.argv[1], sys.argv[2]))
    else:
        plain(sys.argv[1])
