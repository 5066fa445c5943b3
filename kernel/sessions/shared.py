"""How many sessions have each shared filter: a queue behind one is kept for those that sleep, and a group over a topic
is made with the topic. Pure."""
from __future__ import annotations

from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.sessions.session import Session
from gatehouse.kernel.sessions.session_records import OPEN


class SharedFilters:  # decision 280
    """By tenant and `$share/GROUP/FILTER`, of the sessions that were added."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._names: dict[tuple[str, str], set[str]] = {}      # of groups, by tenant and topic, see `names_over`

    def has(self, tenant: str, filter_text: str) -> bool:
        """Whether a session has this filter."""
        return (tenant, filter_text) in self._counts

    def names_over(self, tenant: str, topic: str) -> list[str]:  # decision 346
        """The groups of which a session has the filter that is this whole topic, `$share/GROUP/TOPIC/#`."""
        return sorted(self._names.get((tenant, topic), ()))

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
        before = self._counts.get(name, 0)
        count = before + change
        if count:
            self._counts[name] = count
        else:
            self._counts.pop(name, None)
        if bool(before) != bool(count):
            self._note_name(tenant, filter_text, is_had=count > 0)

    def _note_name(self, tenant: str, filter_text: str, *, is_had: bool) -> None:
        group, _, rest = filter_text.removeprefix(SHARE).partition("/")
        topic, _, tail = rest.partition("/")
        if tail != "#":
            return
        names = self._names.setdefault((tenant, topic), set())
        if is_had:
            names.add(group)
        else:
            names.discard(group)
            if not names:
                del self._names[tenant, topic]
