"""One group for everybody who takes from the same filter under the same name, whichever door they come by.

`$share/GROUP/FILTER` is the group's name on every door that has no word of its own for it. A filter that is a whole
topic (`orders/#`) makes the leased group over that topic; any other makes a queue of that name, to which the
filter is bound: how often it hands out a message, and when again, the settings of the group say. A topic that does not
exist yet is waited for: subscribing creates nothing. Who has such a filter in a session need not be there when the
topic comes: its group is made with it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.errors import InvalidFilter, KernelError, UnknownTopic
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import Queue, QueueSettings
from gatehouse.kernel.groups.handing_out import HoldLimit, Member, Membership
from gatehouse.kernel.message import NOBODY, Origin
from gatehouse.kernel.state.topics import Topic, Topics

if TYPE_CHECKING:
    from gatehouse.kernel.groups.calls import Groups

SHARE: Final = "$share/"
UNUSED_MS: Final = 24 * 3_600_000
"""A filter's queue that nobody has taken from for so long is deleted, with what is in it."""


def parse_share(text: str) -> tuple[str, str]:  # decision 26
    """Group and filter of `$share/GROUP/FILTER`. Raises InvalidFilter."""
    group, _, filter_text = text.removeprefix(SHARE).partition("/")
    if not text.startswith(SHARE) or not group or not filter_text or "+" in group or "#" in group:
        raise InvalidFilter(f"{text[:100]!r} is not $share/GROUP/FILTER, with a group's name without wildcards")
    parse_filter(filter_text)
    return group, filter_text


def shared_name(queue: Queue) -> str:
    """The group of a queue that a shared filter made; "" of any other."""
    if queue.settings.door or not queue.name.startswith(SHARE):
        return ""
    return queue.name.removeprefix(SHARE).partition("/")[0]


class Sharing:
    """Joins members to the groups behind shared filters."""

    def __init__(self, groups: Groups, topics: Topics, routes: Routes) -> None:
        self._groups = groups
        self._topics = topics
        self._routes = routes
        self._waiting: dict[tuple[str, str], list[Shared]] = {}        # by tenant and topic
        self._names_over: Callable[[str, str], Iterable[str]] = lambda _tenant, _topic: ()

    def ask(self, names_over: Callable[[str, str], Iterable[str]]) -> None:
        """Which groups sessions have filters of that are a whole topic: `names_over(tenant, topic)`."""
        self._names_over = names_over

    # decision 26
    def join(self, text: str, member: Member, credit: int, *, keeps: bool = True, tenant: str = "/",
             hold: HoldLimit | None = None, taker: Origin = NOBODY) -> Shared:
        """A place in the group of `$share/GROUP/FILTER`. Raises InvalidFilter, InvalidGroup, AssignedGroup, Stopping.

        A group that nobody has used before begins with what comes from now on.
        """
        name, filter_text = parse_share(text)
        shared = Shared(self, tenant, name, self.topic_of(filter_text) or "", member, credit, keeps, hold, taker)
        try:
            shared.take_place(self.group(text, tenant))
        except UnknownTopic:
            self._groups.require_leasable(shared.name, tenant)
            self.expect(shared)
        return shared

    def expect(self, shared: Shared) -> None:
        """It has a place when its topic is made."""
        self._waiting.setdefault((shared.tenant, shared.topic), []).append(shared)

    def group(self, text: str, tenant: str) -> LeasedGroup:
        """The group of `$share/GROUP/FILTER`. Raises UnknownTopic where its topic does not exist yet, and as `join`."""
        name, filter_text = parse_share(text)
        topic = self.topic_of(filter_text)
        if topic is None:
            self._groups.claim(name, tenant)
            return self._groups.queue_group(self._bound_queue(text, filter_text, tenant))
        existing = self._topics.get(topic, tenant)
        if existing is None:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return self._groups.over(name, existing, "latest")

    def topic_of(self, filter_text: str) -> str | None:
        """The topic that is exactly what the filter matches; None where there is no such one."""
        name, _, rest = filter_text.partition("/")
        return name if rest == "#" and is_topic_name(name) and not self._routes.any else None

    def _bound_queue(self, text: str, filter_text: str, tenant: str) -> Queue:
        queue = self._groups.queue(text, tenant)
        if queue is None:
            queue = self._groups.declare_queue(text, QueueSettings(expires_ms=UNUSED_MS), tenant)
            self._groups.bind(filter_text, queue)
        return queue

    def on_topic(self, topic: Topic) -> None:
        """A topic was made: who waited for it has a place in its group now, and the groups of those who sleep are there
        before its first message. What a group refuses is not the fault of who made the topic."""
        for shared in self._waiting.pop((topic.tenant, topic.name), ()):
            try:
                shared.take_place(self._groups.over(shared.name, topic, "latest"))
            except KernelError:
                shared.give_up()
        if self.topic_of(f"{topic.name}/#") is not None:
            for name in self._names_over(topic.tenant, topic.name):  # decision 346
                with suppress(KernelError):
                    self._groups.over(name, topic, "latest")

    def forget(self, shared: Shared) -> None:
        """It waits no longer."""
        key = (shared.tenant, shared.topic)
        waiting = self._waiting.get(key, [])
        if shared in waiting:
            waiting.remove(shared)
            if not waiting:
                del self._waiting[key]


class Shared:
    """One member's place in a shared group; like a `Membership`, and there before the group may be."""

    def __init__(self, sharing: Sharing, tenant: str, name: str, topic: str, member: Member, credit: int, keeps: bool,
                 hold: HoldLimit | None, taker: Origin) -> None:
        self._sharing = sharing
        self._taker = taker
        self._hold = hold
        self.tenant = tenant
        self.name = name
        self.topic = topic
        """That its filter is; "" where a queue is behind it."""

        self.group: LeasedGroup | None = None
        self._member = member
        self._credit = credit
        self._keeps = keeps
        self._membership: Membership | None = None

    def take_place(self, group: LeasedGroup) -> None:
        """The group is there."""
        self.group = group
        self._membership = group.join(self._member, self._credit, keeps=self._keeps, hold=self._hold,
                                      taker=self._taker)

    def give_up(self) -> None:
        """There will be no place: the name has become an assigned group's."""
        self._member.on_gone()

    @property
    def credit(self) -> int:
        """See `Membership.credit`."""
        return self._credit if self._membership is None else self._membership.credit

    @property
    def untold(self) -> int:
        """How many it was handed of which it has not been told."""
        return 0 if self._membership is None else self._membership.untold

    def add_credit(self, count: int) -> None:
        """See `Membership.add_credit`."""
        if self._membership is None:
            self._credit += count
        else:
            self._membership.add_credit(count)

    def wait(self, credit: int) -> bool:
        """See `api.SharedPort.wait`."""
        if not self.topic or self.group is None:
            return False
        self.group = self._membership = None
        self._credit = credit
        self._sharing.expect(self)
        return True

    def retire(self) -> None:
        """See `Membership.retire`."""
        if self._membership is None:
            self._sharing.forget(self)
        else:
            self._membership.retire()

    def leave(self, delay_ms: int | None = 0) -> None:
        """See `Membership.leave`."""
        if self._membership is None:
            self._sharing.forget(self)
        else:
            self._membership.leave(delay_ms)
