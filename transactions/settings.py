"""What can be set about transactions; the configuration file's [transactions] says the same."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gatehouse.kernel.errors import InvalidCheckBack

MAX_TIME_MS: Final = 30 * 24 * 3_600_000         # of one wait: a month
MAX_CHECKS: Final = 1_000
MAX_BY: Final = 200                              # characters of who began it, or decided, that are kept


class CheckSettings(NamedTuple):
    """When the sender of a transaction is asked what became of it. The defaults are RocketMQ's."""

    first_ms: int = 6_000         # of silence, before it is asked first
    every_ms: int = 30_000        # between two checks, and after the last one
    max_checks: int = 15

    def check(self) -> None:
        """Raises InvalidCheckBack."""
        if not 1 <= self.first_ms <= MAX_TIME_MS or not 1 <= self.every_ms <= MAX_TIME_MS:
            raise InvalidCheckBack(f"a time of a check-back is 1 to {MAX_TIME_MS} ms")
        if not 0 <= self.max_checks <= MAX_CHECKS:
            raise InvalidCheckBack(f"a transaction is checked 0 to {MAX_CHECKS} times, not {self.max_checks}")


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    checks: CheckSettings = CheckSettings()
    topics: Mapping[str, CheckSettings] = field(default_factory=dict)
    """How senders are asked about transactions whose first message goes to one of these topics."""

    timeout_ms: int = 60_000
    """When a transaction without a group ends: nobody can be asked about it."""

    max_open: int = 10_000_000
    max_open_bytes: int = 10 << 30
    """The most undecided transactions, and bytes of their half messages, in the whole hub."""

    max_messages: int = 10_000
    max_bytes: int = 64 << 20
    """The most messages and bytes of one transaction, which is read and appended as one."""

    remembered_ms: int = 24 * 3_600_000
    max_remembered: int = 1_000_000
    """How long, and how many, decisions are remembered."""

    slice: int = 200
    """How many are read by a start, asked, given up or forgotten in one turn of the loop: a few milliseconds of it. Not
    in the configuration file; tests have smaller ones."""
