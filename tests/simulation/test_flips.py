"""Bits that flip on the simulated disk, between a crash and the next start: what is lost was in the frame that was hit
and is told; nothing is given out a second time, whatever happens to the index."""
from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

import pytest

from gatehouse.kernel.log.segments import ENVELOPE_BYTES, SEGMENT_HEADER_BYTES, SegmentReader, Torn
from gatehouse.kernel.message import decode_head
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from tests.kernel.rig import Rig
from tests.simulation.disk import CrashKind, SimDisk
from tests.simulation.store import SimStore

LIVES: Final = 6
ADDRESSES: Final = ("t/a", "t/b", "u/a", "u/b", "v/a")
SETTINGS: Final = KernelSettings(segment_bytes=6_000, default_partitions=2, checkpoint_ms=500, recent_bytes=0)


class Place(NamedTuple):
    """A message's place, and so a name that is given once."""

    partition_id: int
    offset: int


class Hit(NamedTuple):
    """A frame in which a bit is flipped."""

    start: int                         # positions of its first byte
    end: int                           # and behind its last one
    places: set[Place]


class Life:
    """A hub on a disk whose bits flip; the messages that it acknowledged."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(f"disk {seed}"))
        self.store = SimStore(Random(f"store {seed}"), self.disk.operate)
        self.rig = Rig(disk=self.disk, store=self.store, settings=SETTINGS)
        self.acknowledged: dict[Place, tuple[int, bytes]] = {}
        self.lost: set[Place] = set()
        self.ids: set[int] = set()
        for address in ADDRESSES:
            self.publish(address)

    def publish(self, address: str) -> None:
        values = [self.random.randbytes(self.random.randrange(1, 200)) for _ in range(self.random.randrange(1, 5))]
        for value, (partition_id, offset, message_id) in zip(values, self.rig.publish(address, *values), strict=True):
            place = Place(partition_id, offset)
            assert place not in self.acknowledged and message_id not in self.ids, "given out a second time"
            self.acknowledged[place] = message_id, value
            self.ids.add(message_id)

    def live(self) -> None:
        for _ in range(self.random.randrange(5, 25)):
            self.publish(self.random.choice(ADDRESSES))
            if not self.random.randrange(4):
                self.rig.world.advance(600)

    def crash(self) -> None:
        kind: CrashKind = self.random.choice(("kill", "power"))
        self.disk.crash(kind)
        self.store.crash(kind)

    # ---- bits

    def frames(self) -> list[tuple[str, int, int, bytes]]:
        """File, first and last offset, and head of every whole frame of the main chain."""
        found = []
        for name in self.disk.names("log"):
            base = int(name[:-4])
            reader = SegmentReader(self.disk.open_read(f"log/{name}"), base)
            at = SEGMENT_HEADER_BYTES
            while at < reader.size:
                try:
                    frame = reader.frame(at, check_body=True)
                except Torn:                         # hit in an earlier life
                    following = reader.next_frame(at + 1)
                    if following is None:
                        break
                    at = following
                    continue
                found.append((f"log/{name}", at, frame.end - base, frame.head))
                at = frame.end - base
        return found

    def flip_header(self) -> None:
        name = self.random.choice(self.disk.names("log"))
        self.disk.flip(f"log/{name}", self.random.randrange(SEGMENT_HEADER_BYTES), self.random.randrange(8))

    def flip_frame(self) -> Hit | None:
        """Not in the last one, which cannot be told from a frame that a crash left half written; nor in one that
        defines a topic, whose messages nobody could find without it."""
        frames = [one for one in self.frames()[:-1]
                  if not any(record.kind == Kind.TOPIC for record in decode_head(one[3]).state)]
        if not frames:
            return None
        name, start, stop, head = self.random.choice(frames)
        within_head = self.random.randrange(3)
        at = self.random.randrange(start, start + ENVELOPE_BYTES + len(head) if within_head else stop)
        self.disk.flip(name, at, self.random.randrange(8))
        base = int(name[4:-4])
        entries = decode_head(head).entries
        places = {Place(partition_id, first + i)
                  for partition_id, first,
                  count in zip(entries.partition_id, entries.first_offset, entries.count, strict=True)
                  for i in range(count)}
        return Hit(base + start, base + stop, places)

    # ---- what is there

    def check(self, hits: list[Hit]) -> None:
        found: dict[Place, tuple[int, bytes | None]] = {}
        for topic in self.rig.kernel.topics():
            for partition_id in topic.partition_ids():
                for record in self.rig.read_partition(partition_id):
                    found[Place(partition_id, record[0])] = record[6], record[3]
        for place, sent in self.acknowledged.items():
            if place in found:
                assert found[place] == sent
            elif place not in self.lost:
                hit = next((one for one in hits if place in one.places), None)
                assert hit is not None, f"{place} was in no frame that was hit"
                assert any(one.start < hit.end and hit.start < one.end for one in self.rig.damage), f"{place}: untold"
                self.lost.add(place)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits_cost_the_frames_that_they_hit(seed: int) -> None:
    life = Life(seed)
    hits: list[Hit] = []
    for _ in range(LIVES):
        life.live()
        life.crash()
        for _ in range(life.random.randrange(3)):
            life.flip_header()
        hits += [hit for _ in range(life.random.randrange(3)) if (hit := life.flip_frame()) is not None]
        if not life.random.randrange(3):
            life.store.delete_folder()
        life.rig.restart()
        life.check(hits)
        life.rig.world.advance(600)
    life.crash()
    life.store.delete_folder()
    life.rig.restart()
    life.check(hits)
    life.live()
    life.check(hits)
