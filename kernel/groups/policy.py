"""What a group does with its messages besides handing them out: the moments at which it asks its policies.

    read ─► judge ─► handed out ─► settled
              └────► settled at once, set aside, or given up (on_given_up) and settled

A group has a list of policies (`kernel.groups.leasing.Policies`) and asks them in this order, always about a whole
batch. A new one is a class like those in `expiry`, `max_length`, `ordering`, `dead_lettering` and `selecting`, and a
line in that list.
"""
from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, Final

from gatehouse.kernel.message import Leased

if TYPE_CHECKING:
    from gatehouse.kernel.groups.prefetcher import Prefetcher, Verdict

# Why a message came to its end without an ack.
EXPIRED: Final = "expired"
ATTEMPTS: Final = "attempts"           # it was handed out as often as the group allows
REJECTED: Final = "rejected"
OVERFLOW: Final = "overflow"


class Policy:  # decision 141
    """Each moment does nothing here; a policy has those that concern it. A moment may raise Stopping."""

    moments: ClassVar[frozenset[str]] = frozenset()
    """Names of those at which it has something to say. At `judge`, `on_settled`, `on_ready` and `on_idle`, which come
    with every batch, no other policy is asked."""

    judges_all = False
    """Whether it judges whatever leaves a cursor, and not only what is to be handed out."""

    judges_plain = False
    """Whether it has a say about *plain* messages, too: those that were never handed out and do not say when they
    expire. It may change when the group is configured."""

    def __init_subclass__(cls) -> None:
        cls.moments = frozenset(name for name, moment in vars(Policy).items()
                                if isinstance(moment, FunctionType) and getattr(cls, name) is not moment)

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        """Of these, in hand now, those that may be handed out. What becomes of each other one is said to `verdict`, or
        the prefetcher sets it aside."""
        return messages

    def on_given_up(self, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        """These end without an ack: what is to be kept of them goes into the frame that settles them."""

    def on_settled(self, prefetcher: Prefetcher, offsets: list[int]) -> None:
        """These are done with, in the pending frame."""

    def on_start(self) -> None:
        """Everything is open: what happens without anybody's doing begins."""

    def on_ready(self) -> None:
        """Messages entered, or are ready again; nobody has been handed any."""

    def on_idle(self) -> None:
        """Something is ready, and nobody takes."""

    def on_loaded(self, prefetcher: Prefetcher) -> None:
        """A cursor was read from the state: at a start, or after a frame that was refused."""

    def on_put_back(self, prefetcher: Prefetcher) -> None:
        """What was in hand, and set aside, is ready again."""

    def on_reset(self, prefetcher: Prefetcher) -> None:
        """The cursor goes on elsewhere: nothing of what was read of it counts."""

    def on_configured(self) -> None:
        """The group has other settings, or its topic has."""

    @property
    def is_watching(self) -> bool:
        """Whether something is to happen by itself, so that the group must stay in memory."""
        return False


def speakers(policies: list[Policy], moment: str) -> list[Policy]:
    """Those that have something to say at this moment."""
    return [policy for policy in policies if moment in policy.moments]
