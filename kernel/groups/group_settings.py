"""What can be set about groups and queues, and how their definitions are recorded."""
from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypeVar

from gatehouse.kernel.errors import InvalidGroup, InvalidQueue

_BINDING = struct.Struct(">Q?")

MAX_NAME_BYTES: Final = 255
MAX_PRIORITIES: Final = 255
MAX_BACKOFF_STEPS: Final = 100
MAX_INVISIBLE_MS: Final = 7 * 24 * 3_600_000
MAX_DELAY_MS: Final = 10 * 366 * 24 * 3_600_000
MAX_FAILURES: Final = 1_000
LEAST_OPEN_MS: Final = 100
MAX_OPEN_MS: Final = 24 * 3_600_000
NOTHING: Final = -1                    # of a limit: the queue holds nothing, where 0 means no limit
OF_QUEUES: Final = ("max_length", "max_bytes", "ttl_ms")       # limits that may be NOTHING
OVERFLOWS: Final = ("drop-head", "reject", "dead-letter")
STARTS: Final = ("earliest", "latest")
LEASED: Final = "leased"
ASSIGNED: Final = "assigned"
DEAD_LETTER_PREFIX: Final = "$dead-letters/"
"""Before the name of a group: the name of the queue of its dead letters."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When a message that was not acked comes again: a list of delays, or delays that grow.

    `delays_ms` not empty: the n-th retry waits its n-th entry, the last one again and again. Empty: `first_ms` times
    `factor` to the n-th, at most `longest_ms`. `jitter` 0.2 makes it between 80 % and 120 % of that.
    """

    delays_ms: tuple[int, ...] = ()
    first_ms: int = 1_000
    factor: float = 2.0
    longest_ms: int = 600_000
    jitter: float = 0.2

    def delay_ms(self, attempt: int, chance: float) -> int:
        """How long to wait after the attempt (from 1) failed; `chance` in [0, 1) decides about the jitter."""
        if self.delays_ms:
            return self.delays_ms[min(attempt, len(self.delays_ms)) - 1]
        grown = self.first_ms * self.factor ** min(attempt - 1, 64)
        return int(min(grown, self.longest_ms) * (1 + self.jitter * (2 * chance - 1)))

    def check(self) -> None:
        if len(self.delays_ms) > MAX_BACKOFF_STEPS \
                or any(not 0 <= delay_ms <= MAX_DELAY_MS for delay_ms in self.delays_ms):
            raise InvalidGroup(f"retry delays are 0 to {MAX_DELAY_MS} ms, and at most {MAX_BACKOFF_STEPS} of them")
        if not (0 <= self.first_ms <= MAX_DELAY_MS and 0 <= self.longest_ms <= MAX_DELAY_MS):
            raise InvalidGroup(f"retry delays are 0 to {MAX_DELAY_MS} ms")
        if not (1 <= self.factor <= 100 and 0 <= self.jitter <= 1):
            raise InvalidGroup("a retry factor is 1 to 100, its jitter 0 to 1")


@dataclass(frozen=True, slots=True)
class Pausing:
    """When a group is handed nothing, since its members only fail; see `kernel.groups.circuits`."""

    failures: int = 0
    """After so many in a row, or where half of the last 20 failed; 0: never."""

    open_ms: int = 60_000
    """For so long at first; then one message goes out, and each that fails too doubles the time."""

    longest_open_ms: int = 3_600_000
    """Where it is shorter than the first, all are as long as the first."""

    def check(self) -> None:
        """Raises InvalidGroup."""
        if not 0 <= self.failures <= MAX_FAILURES:
            raise InvalidGroup(f"failures before a pause are 0 to {MAX_FAILURES}, not {self.failures}")
        if not all(LEAST_OPEN_MS <= open_ms <= MAX_OPEN_MS for open_ms in (self.open_ms, self.longest_open_ms)):
            raise InvalidGroup(f"a pause is {LEAST_OPEN_MS} to {MAX_OPEN_MS} ms")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a leased group hands out messages."""

    kind: str = LEASED
    start: str = "earliest"
    """Where a group begins that nobody has used yet: with everything that is stored, or with what comes from now on."""

    invisible_ms: int = 30_000
    """How long a popped message stays with its taker unless the pop says otherwise."""

    max_attempts: int = 16
    """After so many leases that ended without an ack a message is a dead letter; 0: never."""

    dead_letters: bool = True
    """Keep dead letters in the group's dead-letter queue; else they are dropped, counted."""

    ordered: bool = False
    """One message of a key at a time: while it is leased or waits for its retry, later ones of its key wait too."""

    selector: str = ""
    """What the group wants of its partitions; the rest counts as settled. See `kernel.selectors`."""

    single_active: bool = False
    """Only the oldest of several members is given anything."""

    retry: Retry = Retry()
    pausing: Pausing = Pausing()

    def check(self) -> None:
        """Raises InvalidGroup."""
        if self.kind not in (LEASED, ASSIGNED) or self.start not in STARTS:
            raise InvalidGroup(f"a group is {LEASED} or {ASSIGNED} and starts at {' or '.join(STARTS)}")
        if not 1 <= self.invisible_ms <= MAX_INVISIBLE_MS:
            raise InvalidGroup(f"invisible_ms is 1 to {MAX_INVISIBLE_MS}, not {self.invisible_ms}")
        if not 0 <= self.max_attempts <= 65_535:
            raise InvalidGroup(f"max_attempts is 0 to 65535, not {self.max_attempts}")
        self.retry.check()
        self.pausing.check()


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue holds, for how long, and what becomes of what it does not hold. 0 means no limit; of `OF_QUEUES`
    NOTHING (-1) means that it holds nothing."""

    priorities: int = 1
    """Each priority has a partition of its own; the highest is served first."""

    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "drop-head"
    """What gives way at a limit: the oldest ready message, the new one (refused), or the oldest as a dead letter."""

    ttl_ms: int = 0
    """NOTHING: a message is given to a member that waits for it, or has expired."""

    expires_ms: int = 0
    """A queue that nobody uses for so long is deleted."""

    max_attempts: int = 0
    """After so many leases that ended without an ack a message is a dead letter."""

    single_active: bool = False
    dead_letter: str = ""
    """Where dead letters go, in the words of the door that declared the queue; empty: nowhere, counted."""

    door: str = ""
    """More settings of that door, kept and given back as they are."""

    def check(self) -> None:
        """Raises InvalidQueue."""
        if not 1 <= self.priorities <= MAX_PRIORITIES + 1:
            raise InvalidQueue(f"a queue has 1 to {MAX_PRIORITIES + 1} priorities, not {self.priorities}")
        for name in ("max_length", "max_bytes", "ttl_ms", "expires_ms", "max_attempts"):
            if getattr(self, name) < (NOTHING if name in OF_QUEUES else 0):
                raise InvalidQueue(f"{name} cannot be negative")
        if self.overflow not in OVERFLOWS:
            raise InvalidQueue(f"overflow is one of {', '.join(OVERFLOWS)}, not {self.overflow!r}")

    @property
    def limited(self) -> bool:
        return bool(self.max_length or self.max_bytes)

    @property
    def watched(self) -> bool:
        """Something is to happen in the queue though nobody uses it: its group stays in memory."""
        return bool(self.limited or self.ttl_ms or self.dead_letter)


QUEUE_SETTINGS: Final = tuple([field.name for field in fields(QueueSettings)])
"""What is recorded of them, and known of what an earlier version, or a later one, has recorded."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A named queue of its own ids: `first_partition_id` and one more for each further priority."""

    tenant: str
    name: str
    first_partition_id: int
    settings: QueueSettings
    created_ms: int
    used_ms: int = field(default=0, compare=False)
    """When it was last used, as far as that was written down; of queues that expire."""

    def partition_id(self, priority: int = 0) -> int:
        """The partition of a priority; one above the highest counts as the highest."""
        return self.first_partition_id + min(max(priority, 0), self.settings.priorities - 1)

    def partition_ids(self) -> range:
        return range(self.first_partition_id, self.first_partition_id + self.settings.priorities)


Settings = TypeVar("Settings", GroupSettings, QueueSettings)


def named_key(tenant: str, name: str) -> bytes:
    """The state key of something with a name in a tenant."""
    return tenant.encode() + b"\0" + name.encode()


def split_key(key: bytes) -> tuple[str, str]:
    tenant, _, name = key.partition(b"\0")
    return tenant.decode(), name.decode()


def binding_key(partition_id: int, chosen: bool, filter_text: str) -> bytes:
    """The state key of a binding: what matches the filter enters the queue."""
    return _BINDING.pack(partition_id, chosen) + filter_text.encode()


def decode_binding(key: bytes) -> tuple[int, bool, str]:
    """Partition id, chosen, filter."""
    partition_id, chosen = _BINDING.unpack_from(key)
    return partition_id, chosen, key[_BINDING.size:].decode()


def definition_key(space: str, tenant: str, name: str) -> bytes:
    """The state key of a door's definition."""
    return b"\0".join([space.encode(), tenant.encode(), name.encode()])


def decode_definition(key: bytes) -> tuple[str, str, str]:
    """Space, tenant, name."""
    space, tenant, name = key.split(b"\0", 2)
    return space.decode(), tenant.decode(), name.decode()


def check_name(name: str, what: str) -> None:
    """Raises InvalidGroup for a name that cannot be stored."""
    if not name or len(name.encode(errors="replace")) > MAX_NAME_BYTES or "\0" in name:
        raise InvalidGroup(f"a {what}'s name has 1 to {MAX_NAME_BYTES} bytes and no NUL")


def encode_group(settings: GroupSettings) -> bytes:
    return json.dumps(asdict(settings)).encode()


def decode_group(value: bytes) -> GroupSettings:
    read = _known(GroupSettings, json.loads(value))
    retry = _known(Retry, read.pop("retry", {}))
    retry["delays_ms"] = tuple(retry.get("delays_ms", ()))
    pausing = Pausing(**_known(Pausing, read.pop("pausing", {})))
    return GroupSettings(**read, retry=Retry(**retry), pausing=pausing)


def encode_queue(queue: Queue) -> bytes:
    settings = {name: getattr(queue.settings, name) for name in QUEUE_SETTINGS}  # decision 326
    return json.dumps({"first_partition_id": str(queue.first_partition_id), "created_ms": queue.created_ms,
                       "used_ms": queue.used_ms, "settings": settings}).encode()


def decode_queue(key: bytes, value: bytes) -> Queue:
    read = json.loads(value)
    first = int(read["first_queue_id" if "first_queue_id" in read else "first_partition_id"])  # as logs from before
    settings = {name: value for name, value in read["settings"].items() if name in QUEUE_SETTINGS}
    return Queue(*split_key(key), first, QueueSettings(**settings), read["created_ms"], read.get("used_ms", 0))


def _known(of: type[Any], read: dict[str, Any]) -> dict[str, Any]:
    """What this version knows of a definition."""
    names = {field.name for field in fields(of)}
    return {name: value for name, value in read.items() if name in names}
