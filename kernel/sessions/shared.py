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
        """A session is there with the filters that it has."""
        self._count_all(session, 1)

    def remove(self, session: Session) -> None:
        """It is not there any more."""
        self._count_all(session, -1)

    def _count_all(self, session: Session, change: int) -> None:
        for stint in session.stints:
            if stint.until == OPEN and stint.filter.startswith(SHARE):
                self.count(session.tenant, stint.filter, change)

    def count(self, tenant: str, filter_text: str, change: int) -> None:
        """So many more sessions, or fewer, have this filter."""
        name = tenant, filter_text
        count = self._counts.get(name, 0) + change
        if count:
            self._counts[name] = count
        else:
            self._counts.pop(name, None)
