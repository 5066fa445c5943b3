"""What one kernel is made of. Whoever works over several of these is handed them together."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kernel.deliveries import Deliveries
from kernel.heads import Heads
from kernel.idempotency import Window
from kernel.index import Index
from kernel.log import Damage, Log
from kernel.owed import Owed
from kernel.placing import Places
from kernel.ports import Loop, Worker
from kernel.producers import Producers
from kernel.projection import Projection
from kernel.reader import Reader
from kernel.settings import KernelSettings
from kernel.state import StateTable
from kernel.subscriptions import Subscriptions
from kernel.topics import Topics
from kernel.views import Views
from kernel.watches import Watches


@dataclass(slots=True)
class Parts:
    # the world
    loop: Loop
    log_worker: Worker
    reader_worker: Worker
    checkpoint_worker: Worker
    fatal: Callable[[str], None]
    on_damage: Callable[[Damage], None]
    on_error: Callable[[Exception], None]
    projection: Projection | None

    # what is durable
    log: Log
    index: Index

    # what is in memory
    heads: Heads
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

    settings: KernelSettings
    hub: bytes
    """Identity of this hub, 16 bytes, given once."""

    owed: list[Owed] = field(default_factory=list)
    """Who is asked before records of queues go with their segment."""

    kept_full: bool = False
    """What is kept beyond retention has reached `kept_bytes`, and nothing of it is dead."""

    secret: bytes = b""
    """What signs receipt handles, 32 bytes, given once."""

    epoch: int = 0
    """Which start of the hub this is."""
