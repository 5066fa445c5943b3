"""Queues and groups by name: read through to the state, so that a hundred thousand idle ones cost no memory.

A definition takes effect at once, so that the next message can be placed; `settle` and `undo` follow when its frame is
durable or refused.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from gatehouse.kernel.errors import GroupHasMembers
from gatehouse.kernel.groups.group_settings import (
    GroupSettings,
    Queue,
    QueueSettings,
    decode_group,
    decode_queue,
    encode_group,
    encode_queue,
    named_key,
    split_key,
)
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.state.topics import Topics

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Core

CACHED: Final = 10_000             # definitions of each kind

T = TypeVar("T")


class Definitions(Generic[T]):
    """Definitions of one kind by tenant and name."""

    def __init__(self, state: StateTable, kind: Kind, decode: Callable[[bytes, bytes], T], encode: Callable[[T], bytes]
                 ) -> None:
        self._state = state
        self._kind = kind
        self._decode = decode
        self._encode = encode
        self._pending: dict[bytes, tuple[StateRecord, T | None]] = {}
        self._cached: OrderedDict[bytes, T | None] = OrderedDict()

    def get(self, tenant: str, name: str) -> T | None:
        """None where there is none."""
        key = named_key(tenant, name)
        pending = self._pending.get(key)
        if pending is not None:
            return pending[1]
        if key in self._cached:
            return self._cached[key]
        value = self._state.get(self._kind, key)
        definition = None if value is None else self._decode(key, value)
        self._cached[key] = definition
        if len(self._cached) > CACHED:
            self._cached.popitem(last=False)
        return definition

    def put(self, tenant: str, name: str, definition: T | None) -> StateRecord:
        """Define or forget; the record goes into the pending frame."""
        key = named_key(tenant, name)
        record = StateRecord(self._kind, key, None if definition is None else self._encode(definition))
        self._pending[key] = (record, definition)
        self._cached.pop(key, None)
        return record

    def settle(self, record: StateRecord) -> None:
        """This record is durable. Whoever asked for all of them meanwhile had the one before kept."""
        self._cached.pop(record.key, None)
        pending = self._pending.get(record.key)
        if pending is not None and pending[0] is record:
            del self._pending[record.key]

    def undo(self) -> None:
        """What is not durable was refused."""
        self._pending.clear()

    def all(self, tenant: str) -> Iterator[tuple[str, T]]:
        """Every definition of a tenant, sorted by name."""
        prefix = named_key(tenant, "")
        definitions: dict[str, T] = {}
        for key, value in self._state.scan(self._kind):
            if key.startswith(prefix):
                definitions[split_key(key)[1]] = self._decoded(key, value)
        for key, (_, definition) in self._pending.items():
            if key.startswith(prefix):
                if definition is None:
                    definitions.pop(split_key(key)[1], None)
                else:
                    definitions[split_key(key)[1]] = definition
        yield from sorted(definitions.items())

    def _decoded(self, key: bytes, value: bytes) -> T:
        """What is stored under a key; decoded once, as long as there is room for it: lists are asked for often."""
        definition = self._cached.get(key)
        if definition is None:
            definition = self._decode(key, value)
            if len(self._cached) < CACHED:
                self._cached[key] = definition
        return definition


class LiveGroups:  # decision 160
    """Names of assigned groups that have members: nobody but those moves their offsets, and nobody deletes them."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()

    def note(self, tenant: str, name: str, has_members: bool) -> None:
        """Whether a group has members now."""
        (self._names.add if has_members else self._names.discard)((tenant, name))

    def require_no_members(self, tenant: str, name: str) -> None:
        """Raises GroupHasMembers."""
        if (tenant, name) in self._names:
            raise GroupHasMembers(f"the assigned group {name!r} has members")


class QueueDefinitions(Definitions[Queue]):
    """Of queues; a new one gets partition ids of its own."""

    def __init__(self, state: StateTable, topics: Topics, core: Core) -> None:
        super().__init__(state, Kind.QUEUE, decode_queue, encode_queue)
        self._topics = topics
        self._core = core

    def add(self, tenant: str, name: str, settings: QueueSettings) -> Queue:
        """A queue that is not there yet. Raises Stopping."""
        pending_frame = self._core.open_frame()
        first = self._topics.new_partition_ids(settings.priorities)
        queue = Queue(tenant, name, first, settings, pending_frame.builder.now_ms, pending_frame.now_ms)
        pending_frame.state.extend([self.put(tenant, name, queue),
                                    StateRecord(Kind.COUNTERS, b"", self._topics.counters())])
        return queue

    def every(self) -> Iterator[Queue]:
        """Every tenant's queues, as far as they are durable; in no order."""
        for key, value in self._state.scan(Kind.QUEUE):
            yield decode_queue(key, value)

    def tenants(self) -> dict[int, str]:
        """The tenant of every queue, by its first partition id."""
        return {queue.first_partition_id: queue.tenant for queue in self.every()}


class GroupDefinitions(Definitions[GroupSettings]):
    """The definitions of groups, leased and assigned."""

    def __init__(self, state: StateTable) -> None:
        super().__init__(state, Kind.GROUP, lambda _, value: decode_group(value), encode_group)
