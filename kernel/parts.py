"""What one kernel is made of. Whoever works over several of these is handed them together."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kernel.addresses.placing import Places
from kernel.clock import Clock
from kernel.delivery.deliveries import Deliveries
from kernel.delivery.subscriptions import Subscriptions
from kernel.delivery.watches import Watches
from kernel.index.index import Index
from kernel.index.reader import Reader
from kernel.index.watermarks import Watermarks
from kernel.log.disk_guard import DiskGuard
from kernel.log.log import Damage, Log
from kernel.ports import Loop, Worker
from kernel.retention.holders import Holder
from kernel.settings import KernelSettings
from kernel.state.projection import Projection
from kernel.state.state import StateTable
from kernel.state.topics import Topics
from kernel.state.views import Views
from kernel.write.idempotency import Window
from kernel.write.producers import Producers


@dataclass(slots=True)
class Parts:
    # the world
    loop: Loop
    log_worker: Worker
    reader_worker: Worker
    checkpoint_worker: Worker
    validation_worker: Worker
    fatal: Callable[[str], None]
    on_damage: Callable[[Damage], None]
    on_error: Callable[[Exception], None]
    projection: Projection | None

    # what is durable
    log: Log
    index: Index

    # what is in memory
    watermarks: Watermarks
    state: StateTable
    topics: Topics
    producers: Producers
    window: Window
    views: Views
    subscriptions: Subscriptions
    watches: Watches
    places: Places
    reader: Reader
    deliveries: Deliveries

    disk_guard: DiskGuard
    clock: Clock
    settings: KernelSettings
    hub: bytes
    """Identity of this hub, 16 bytes, given once."""

    holders: list[Holder] = field(default_factory=list)
    """Who is asked before records of partitions go with their segment."""

    kept_full: bool = False
    """What is kept beyond retention has reached `kept_bytes`, and nothing of it is dead."""

    secret: bytes = b""
    """What signs receipt handles, 32 bytes, given once."""

    epoch: int = 0
    """Which start of the hub this is."""

    first_id: int = 0
    """All message ids of earlier starts are below."""
