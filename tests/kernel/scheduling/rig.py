"""A rig that schedules: `later` puts messages in, `advance` lets time go by."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.message import Message, Stored, When
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.scheduling.queries import Scheduled
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig

NOW_MS: Final = 1_700_000_000_000


class ScheduleRig(Rig):
    def __init__(self, folder: Path | None = None, settings: KernelSettings | None = None, routes: Routes | None = None,
                 log: Log | None = None, wall_ms: int = NOW_MS) -> None:
        super().__init__(folder, settings, routes, log, wall_ms=wall_ms)

    @property
    def now_ms(self) -> int:
        return self.world.loop.now_ms()

    def message(self, address: str, value: bytes | None) -> Message:
        return self.kernel.place(address), value, encode_headers([(b"unit", b"C")]), 2, 0

    def later(self, address: str, *delays: tuple[int, bytes], repeat: str = "", key: str | None = None) -> list[int]:
        """Messages for an address, each (delay in ms, value); their ids once they are durable."""
        self.kernel.schedule([self.message(address, value) for _, value in delays],
                             [When(repeat=repeat, delay_ms=delay_ms) for delay_ms, _ in delays], self.witness, address,
                             idempotency_key=key)
        return [message_id for _, _, message_id in self.answer().positions]

    def answer(self) -> Stored:
        """The last one. Raises its error."""
        self.run()
        answer = self.witness.stored[-1]
        if answer.error is not None:
            raise answer.error
        return answer

    def advance(self, by_ms: int, step_ms: int = 100) -> None:
        while by_ms > 0:
            self.world.advance(min(step_ms, by_ms))
            by_ms -= step_ms
        self.run()

    def recall(self, message_id: int, tenant: str = "/") -> None:
        self.kernel.scheduling.recall(message_id, tenant, self.witness, message_id)
        self.answer()

    def show(self, message_id: int, tenant: str = "/") -> Any:
        found: list[Scheduled | None] = []
        self.kernel.scheduling.show(message_id, tenant, found.append)
        self.run()
        return found[0].what if found[0] is not None else None

    def page(self, start: bytes, limit: int, tenant: str = "/") -> tuple[list[Scheduled], bytes | None]:
        found: list[Any] = []
        self.kernel.scheduling.page(tenant, start, limit, found.append)
        self.run()
        page: tuple[list[Scheduled], bytes | None] = found[0]
        return page

    def waiting(self, limit: int = 1_000) -> list[int]:
        """Ids of everything that waits, page by page."""
        ids: list[int] = []
        start: bytes | None = b""
        while start is not None:
            page, start = self.page(start, limit)
            ids += [one.id for one in page]
        return ids
