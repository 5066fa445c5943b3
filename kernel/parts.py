"""What one kernel is made of. Whoever works over several of these is handed them together."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.clock import Clock
from gatehouse.kernel.delivery.deliveries import Deliveries
from gatehouse.kernel.delivery.subscriptions import Subscriptions
from gatehouse.kernel.delivery.watches import Watches
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.index.watermarks import Watermarks
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.log.log import Damage, Log
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.retention.holders import Holder
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.projection import Projection
from gatehouse.kernel.state.state import StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.views import Views
from gatehouse.kernel.write.idempotency import Window
from gatehouse.kernel.write.producers import Producers


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

    shard: int = 0
    """Who gives the ids of this hub, given once, see `kernel.ids`."""

    secret: bytes = b""
    """What signs receipt handles, 32 bytes, given once."""

    epoch: int = 0
    """Which start of the hub this is."""

    first_id: int = 0
    """All message ids of earlier starts are below."""
