"""How many sessions have each shared filter: a queue behind one is kept for those that sleep. Pure."""
from __future__ import annotations

from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.sessions.session import Session
from gatehouse.kernel.sessions.session_records import OPEN


class SharedFilters:  # decision 280
    """By tenant and `$share/GROUP/FILTER`, of the sessions that were added."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def has(self, tenant: str, filter_text: str) -> bool:
        """Whether a session has this filter."""
        return (tenant, filter_text) in self._counts

    def add(self, session: Session) -> None:
        """Count the filters that it has now."""
        for name in _shared_of(session):
            self._counts[name] = self._counts.get(name, 0) + 1

    def remove(self, session: Session) -> None:
        """Count them no longer; before any of them changes."""
        for name in _shared_of(session):
            left = self._counts[name] - 1
            if left:
                self._counts[name] = left
            else:
                del self._counts[name]


def _shared_of(session: Session) -> list[tuple[str, str]]:
    return [(session.tenant, stint.filter) for stint in session.stints
            if stint.until == OPEN and stint.filter.startswith(SHARE)]
