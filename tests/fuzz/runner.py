"""Sends cases to a hub of its own and watches it.

    Fuzz(door, seed, folder).run(seconds)

A case is decided by door, seed and number alone, so it can be made again. While cases run, a canary publishes over
HTTP: each of its messages must be acknowledged within a bound, and at the end each must be there, once. The hub may log
no fault of its own (a traceback), may not end, may not hold the loop for long, and its memory stays bounded.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.fuzz.corpus import corpus
from tests.fuzz.mutations import Conversation, case
from tests.running_hub import RunningHub, config_of

CONNECTIONS: Final = 24                      # cases at a time
REMEMBERED: Final = 400                      # cases that may have been the one, where the hub shows a fault
ANSWER_S: Final = 0.02                       # how long a piece waits for an answer before the next
END_S: Final = 0.05
RESET_SHARE: Final = 0.2                     # of connections that end with a reset
CANARY_S: Final = 0.2                        # between two of its messages
CANARY_LATE_S: Final = 20.0                  # a busy machine included
MEMORY_MAX: Final = 1 << 30                  # resident bytes of the hub
LOOK_S: Final = 2.0                          # between two looks at the hub
KERNEL: Final = ('fsync = "never"\nretention_bytes = 268435456\nkept_bytes = 134217728\nsegment_bytes = 16777216\n'
                 "default_partitions = 4")
FAULT: Final = "Traceback"


class HubFault(AssertionError):
    """The hub did what it never may. Says what, and which cases were on their way."""


class Fuzz:
    """One door's run. `sent` counts the bytes, `cases` the conversations."""

    def __init__(self, door: str, seed: int, folder: Path) -> None:
        self.door = door
        self.seed = seed
        self.sent = 0
        self.cases = 0
        self.canaries: list[str] = []
        self._folder = folder
        self._recent: deque[int] = deque(maxlen=REMEMBERED)
        self._hub: RunningHub | None = None

    def case(self, number: int) -> Conversation:
        """The pieces of one case."""
        return case(random.Random(f"{self.door} {self.seed} {number}"), self.door, corpus(self.door))

    def run(self, seconds: float, first: int = 0) -> None:
        """Cases from `first` on for so long. Raises HubFault."""
        with self._running():
            asyncio.run(self._run_until(time.monotonic() + seconds, first))
            self._check_hub()
            asyncio.run(self._check_canaries())
        self._check_end()

    def play(self, cases: list[Conversation]) -> None:
        """These cases, one after the other. Raises HubFault."""
        with self._running():
            for conversation in cases:
                asyncio.run(self._send(conversation, random.Random(0)))
            asyncio.run(self._check_canaries())
            self._check_hub()
        self._check_end()

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._hub = RunningHub(self._folder, config_of(kernel=KERNEL))
        try:
            self._hub.wait_ready()
            asyncio.run(self._prepare())
            yield
            code, _ = self._hub.stop()
            if code != 0:
                raise self._fault(f"ended with {code}")
        finally:
            self._hub.kill()

    async def _prepare(self) -> None:
        """Topics that look at what enters them, and readers: what is opened where nobody looks shows nothing."""
        await self._ask("PUT", "/v1/topics/plant", b'{"partitions": 2}')
        await self._ask("PUT", "/v1/topics/squeezed", b'{"partitions": 1, "compact": true, "interpret_headers": true}')
        await self._ask("PUT", "/v1/topics/bound", b'{"partitions": 1}')
        await self._ask("PUT", "/v1/topics/canary", b'{"partitions": 1}')

    # ---- the run

    async def _run_until(self, end_s: float, first: int) -> None:
        numbers = iter(range(first, 1 << 62))
        canary = asyncio.create_task(self._sing(end_s))
        workers = [asyncio.create_task(self._work(numbers, end_s)) for _ in range(CONNECTIONS)]
        watcher = asyncio.create_task(self._watch(end_s))
        try:
            await asyncio.gather(canary, watcher, *workers)
        finally:
            for task in (canary, watcher, *workers):
                task.cancel()

    async def _work(self, numbers: Iterator[int], end_s: float) -> None:
        while time.monotonic() < end_s:
            number = next(numbers)
            self._recent.append(number)
            await self._send(self.case(number), random.Random(number))
            self.cases += 1

    async def _send(self, turns: Conversation, chance: random.Random) -> None:
        assert self._hub is not None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._hub.port(self.door))
        except OSError as error:
            raise self._fault(f"takes no connection: {error}") from None
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                for turn in turns:
                    writer.write(turn)
                    self.sent += len(turn)
                    await asyncio.wait_for(writer.drain(), 1)
                    if not await self._answer(reader, ANSWER_S):
                        break
                await self._answer(reader, END_S)
        finally:
            if chance.random() < RESET_SHARE:
                with contextlib.suppress(OSError):               # the hub may have closed it
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                               struct.pack("ii", 1, 0))
            writer.close()

    @staticmethod
    async def _answer(reader: asyncio.StreamReader, wait_s: float) -> bool:
        """Read what has come; False where the hub has closed."""
        try:
            return bool(await asyncio.wait_for(reader.read(1 << 16), wait_s))
        except TimeoutError:
            return True

    # ---- what is watched

    async def _sing(self, end_s: float) -> None:
        number = 0
        while time.monotonic() < end_s:
            name, number = f"canary-{self.seed}-{number}", number + 1
            try:
                status, _ = await asyncio.wait_for(
                    self._ask("POST", "/v1/publish/canary/x", name.encode()), CANARY_LATE_S)
            except (TimeoutError, OSError, EOFError) as error:
                raise self._fault(f"does not answer the canary: {error!r}") from None
            if status != 201:
                raise self._fault(f"answers the canary {status}")
            self.canaries.append(name)
            await asyncio.sleep(CANARY_S)

    async def _watch(self, end_s: float) -> None:
        while time.monotonic() < end_s:
            self._check_hub()
            await asyncio.sleep(LOOK_S)

    def _check_hub(self) -> None:
        assert self._hub is not None
        if self._hub.process.poll() is not None:
            raise self._fault(f"ended with {self._hub.process.poll()}")
        if FAULT in self._hub.log():
            raise self._fault("logged a fault of its own")
        if self.memory() > MEMORY_MAX:
            raise self._fault(f"holds {self.memory() >> 20} MiB")

    def memory(self) -> int:
        """Resident bytes of the hub."""
        assert self._hub is not None
        try:
            pages = Path(f"/proc/{self._hub.process.pid}/statm").read_text().split()[1]
        except FileNotFoundError:
            return 0
        return int(pages) * 4096

    def _check_end(self) -> None:
        assert self._hub is not None
        if FAULT in self._hub.log():
            raise self._fault("logged a fault of its own while it stopped")

    async def _check_canaries(self) -> None:
        """Every acknowledged message of the canary is there once, but for the oldest, which retention has taken."""
        values: list[str] = []
        target = "/v1/topics/canary/messages?max=1000&from=earliest"
        while True:
            page = await self._read(target)
            values += [message["value"] for message in page["messages"]]
            if not page["messages"]:
                break
            target = f"/v1/topics/canary/messages?max=1000&cursor={page['cursor']}"
        (bounds,) = (await self._read("/v1/topics/canary"))["bounds"]
        sung = set(self.canaries)
        found = [value for value in values if value in sung]
        gone = len(sung) - len(found)
        if found != self.canaries[gone:] or gone > bounds["log_start_offset"]:
            raise self._fault(f"lost or doubled the canary's messages: {len(found)} of {len(sung)} are there, and "
                              f"retention took {bounds['log_start_offset']}")

    async def _read(self, target: str) -> dict[str, Any]:
        status, body = await self._ask("GET", target, b"")
        if status != 200:
            raise self._fault(f"answers {status} where the canary's messages are read")
        document: dict[str, Any] = json.loads(body)
        return document

    async def _ask(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        assert self._hub is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", self._hub.port("http"))
        try:
            kind = "application/json" if body.startswith(b"{") else "text/plain"
            writer.write(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        if not answer:
            raise EOFError("closed without an answer")
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), rest

    def _fault(self, what: str) -> HubFault:
        assert self._hub is not None
        return HubFault(f"the hub {what} (door {self.door}, seed {self.seed}, cases {list(self._recent)[:1]} to "
                        f"{list(self._recent)[-1:]}):\n{self._hub.log()[-4000:]}")

    @property
    def recent(self) -> list[int]:
        """Numbers of the last cases: one of them is to blame."""
        return list(self._recent)
