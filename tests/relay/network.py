"""Hubs of one thread, a meeting point, and a network between them that does what a test says: all in lists of bytes."""
from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path

from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.world import World
from gatehouse.relay import frames
from gatehouse.relay.hub_links import HubLinks
from gatehouse.relay.meeting import Meeting, Visit
from gatehouse.relay.settings import LinkSettings, MeetingSection, MetHub, MetLink, RelaySection
from gatehouse.relay.shelves import DiskShelves
from tests.kernel.rig import Rig, Witness
from tests.simulation.disk import CrashKind, SimDisk
from tests.simulation.store import SimStore

URL = "wss://relay.test/v1/relay"
NAME = "relay.test"
TICK_MS = 250
MAX_TURNS = 5_000


class HubRig(Rig):
    """A rig whose hub has an identity of its own."""

    def __init__(self, name: str, **rest) -> None:
        self._hub_identity = name.encode().ljust(16, b"-")[:16]
        super().__init__(**rest)

    def _open(self) -> Kernel:
        kernel = Kernel(loop=self.world.loop, log_worker=self.world.log_worker, reader_worker=self.world.reader_worker,
                        checkpoint_worker=self.world.checkpoint_worker,
                        validation_worker=self.world.validation_worker, log=self.log, store=self.store,
                        routes=self.routes, settings=self.settings, fatal=self.fatal.append,
                        on_damage=self.damage.append, on_error=self.errors.append, notices=self.told,
                        new_hub=self._hub_identity, new_secret=self._hub_identity * 2, journeys=self.journeys,
                        new_trace=self._new_trace)
        kernel.open()
        return kernel


    def crash(self, kind: CrashKind) -> None:
        """The process is gone, and what the next start finds is what disk and index have."""
        assert isinstance(self.disk, SimDisk) and isinstance(self.store, SimStore)
        self.disk.crash(kind)
        self.store.crash(kind)
        self.log = self._new_log()
        self.world = World(self.world.loop.wall_ms() + 1_000)
        self.witness = Witness()
        self.kernel = self._open()


class Cable:
    """One connection of a hub to the meeting point; frames wait in both directions until they are moved."""

    def __init__(self) -> None:
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.cut = False
        self.closing = False
        self.reason = ""

    @property
    def waiting_bytes(self) -> int:
        return sum(len(frame) for frame in self.down)


class HubEnd:
    def __init__(self, cable: Cable) -> None:
        self.cable = cable

    def send(self, frame: bytes) -> None:
        self.cable.up.append(frame)

    def close(self, reason: str) -> None:
        self.cable.cut, self.cable.reason = True, reason


class RelayEnd:
    def __init__(self, cable: Cable) -> None:
        self.cable = cable

    @property
    def waiting_bytes(self) -> int:
        return self.cable.waiting_bytes

    def send(self, frame: bytes) -> None:
        self.cable.down.append(frame)

    def close(self, reason: str) -> None:
        self.cable.closing, self.cable.reason = True, reason


class TestHub:
    """A hub with its links."""

    __test__ = False

    def __init__(self, name: str, links: list[LinkSettings], rng: random.Random, owed: int = 1 << 30,
                 limit: dict[str, int] | None = None, has_aes: bool = True, **rest) -> None:
        self.name = name
        self.section = RelaySection(URL, owed_messages=owed, **(limit or {}))
        self.settings = links
        self.rng = rng
        self.has_aes = has_aes
        self.rig = HubRig(name, **rest)
        self.events: list[tuple[str, str, str]] = []
        self.denied: set[str] = set()
        self.rights = object()
        self.clock_apart_ms = 0
        self.may_dial = True                 # once in a tick
        self.cable: Cable | None = None
        self.visit: Visit | None = None
        self._start()

    def _start(self) -> None:
        kernel, loop = self.rig.kernel, self.rig.world.loop
        self.links = HubLinks(kernel=kernel, section=self.section, settings=self.settings, secret=kernel.secret,
                              hub_name=self.name, chance=self.rng.randbytes, now_ms=loop.now_ms,
                              wall_ms=lambda: loop.wall_ms() + self.clock_apart_ms, allowed=lambda _: self._allow,
                              rights=lambda: self.rights,
                              tell=lambda *event: self.events.append(event), has_aes=self.has_aes)
        kernel.keep_for(self.links.owed)
        kernel.looking.ask_links(self.links.owed)

    def _allow(self, address: str) -> None:
        if address in self.denied:
            from gatehouse.kernel.errors import CreateDenied
            raise CreateDenied("not here")

    def crash(self, kind: CrashKind | None = None) -> None:
        """As kill -9, or where the disk is simulated as a power cut: the connection is cut, memory is gone."""
        if self.visit is not None and self.cable is not None:
            self.visit.handle_closed()
        self.cable = None
        if kind is None:
            self.rig.restart()
        else:
            self.rig.crash(kind)
        self._start()

    def values(self, topic: str) -> list[bytes]:
        return sorted(value for value in self.rig.values(topic) if value is not None)

    def state(self, link: str) -> str:
        return self.links.describe_link(link)["state"]


class Network:
    """Hubs and the meeting point; `turn` moves everything a little."""

    def __init__(self, *hubs: TestHub, topics: tuple[str, ...] = ("*",), pairs: list[tuple[str, str]] | None = None,
                 rng: random.Random | None = None, **section) -> None:
        self.hubs = list(hubs)
        self.rng = rng or random.Random(1)
        self.section = MeetingSection(NAME, **section)
        self.spool_bytes = 1 << 20 if section.get("spool") else 0
        self.met = tuple(MetHub(hub.name, (hub.links.identity.public.hex(),)) for hub in hubs)
        names = [hub.name for hub in hubs]
        everybody = [(a, b) for i, a in enumerate(names) for b in names[i + 1:]]
        self.allowed = tuple(MetLink(pair, topics, self.spool_bytes)
                             for pair in (everybody if pairs is None else pairs))
        self.away: list[TestHub] = []        # cannot reach the meeting point
        self.told: list[str] = []
        self.wall_ms = 1_700_000_000_000
        self.change: Callable[[TestHub, bytes, bool], list[bytes]] = lambda hub, frame, up: [frame]
        self.replace_relay()

    def replace_relay(self) -> None:
        """The meeting point is killed, and another one stands there."""
        for hub in self.hubs:
            if hub.cable is not None:
                hub.cable.cut = True
        spool = self.section.spool
        shelves = None if spool is None else DiskShelves(Path(spool), at_once, self.rng.randbytes)
        self.meeting = Meeting(self.section, self.met, self.allowed, self.rng.randbytes, self.told.append,
                               lambda: self.wall_ms, shelves)

    def cut(self, hub: TestHub) -> None:
        if hub.cable is not None:
            hub.cable.cut = True

    def dial(self, hub: TestHub) -> None:
        hub.may_dial = False
        hub.cable = cable = Cable()
        hub.visit = self.meeting.visit(RelayEnd(cable), 0)
        hub.links.connected(HubEnd(cable), NAME)

    def turn(self) -> bool:
        """Move what waits; False where nothing did."""
        moved = [self.turn_of(hub) for hub in self.hubs]
        return True in moved

    def turn_of(self, hub: TestHub) -> bool:
        """What waits for one hub, and from it."""
        moved = False
        if hub.cable is not None and hub.cable.cut:
            hub.visit.handle_closed()
            hub.cable = None
            hub.links.lost("cut")
        if hub.cable is None:
            if not hub.may_dial or hub in self.away:
                return False
            self.dial(hub)
            moved = True
        cable = hub.cable
        hub.rig.run()
        for _ in range(len(cable.up)):
            for frame in self.change(hub, cable.up.popleft(), True):
                hub.visit.handle_frame(frame)
                moved = True
        for _ in range(len(cable.down)):
            for frame in self.change(hub, cable.down.popleft(), False):
                hub.links.handle_frame(frame)
                moved = True
        hub.rig.run()
        cable.cut |= cable.closing
        return moved

    def tick(self, by_ms: int = TICK_MS) -> None:
        self.wall_ms += by_ms
        self.meeting.spools.handle_tick()
        self.meeting.handle_pace()
        for hub in self.hubs:
            self.tick_of(hub, by_ms)

    def tick_of(self, hub: TestHub, by_ms: int = TICK_MS) -> None:
        hub.may_dial = True
        hub.rig.world.loop.advance(by_ms)
        hub.links.handle_tick()
        hub.rig.run()

    def settle(self, ticks: int = 8) -> None:
        """Until nothing moves, some times over."""
        for _ in range(ticks):
            for _ in range(MAX_TURNS):
                if not self.turn():
                    break
            else:
                raise AssertionError("the network never comes to rest")
            self.tick()

    def join(self, a: TestHub, b: TestHub, link: str) -> None:
        text = a.links.invite(link, 60_000)
        a.rig.run()
        b.links.join(text)
        b.rig.run()


def at_once(job: Callable[[], object], then: Callable[[object], None]) -> None:
    """A disk that is quick."""
    try:
        result = job()
    except OSError as error:
        result = error
    then(result)


def carried(frame: bytes) -> bool:
    return frame[:1] == bytes((frames.CARRY,))
