"""Who has logged in lately, and from which network: such a login goes before those of strangers while many wait.

Known is the pair, not the name: somebody who merely knows a name gains nothing by it elsewhere. A wrong password of
that user there ends it.
"""
from __future__ import annotations

from typing import Final

RECENT_MAX: Final = 20_000        # (network, user) pairs; about 4 MB; the one that logged in longest ago goes first


class RecentLogins:
    """Pairs of network and user that have logged in since the hub's start, bounded."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], None] = {}

    def knows(self, network: str, user: str) -> bool:
        return (network, user) in self._pairs

    def remember(self, network: str, user: str) -> None:
        """Remember that a user's password or proof, from this network, was checked and is right."""
        pairs = self._pairs
        pairs.pop((network, user), None)             # to the end of the order
        if len(pairs) >= RECENT_MAX:
            del pairs[next(iter(pairs))]
        pairs[network, user] = None

    def forget(self, network: str, user: str) -> None:
        self._pairs.pop((network, user), None)
