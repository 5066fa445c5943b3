"""The door's end of its port: which session an answer or a delivery is for. One per door, made with `Services.door`.

    guard ──► switchboard ──► port          submissions get numbers, filters are counted
    session ◄── switchboard ◄── port        once per flush: each session is called once for all of it

The port knows a filter once, however many sessions have it: what matches an address is found here, and remembered until
a subscription that could matter has come or gone. Work that grows with sessions is done in steps, which the port takes
as the loop has time.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, cast

from gatehouse.gateways.gathering import Gathered, Gathering
from gatehouse.kernel.addresses.audience import Audience
from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.api import Heard, KernelPort, Message, Ports
from gatehouse.kernel.message import FirstLevel, Place, Stored

if TYPE_CHECKING:
    from gatehouse.transactions.api import HalfMessages

STEP_MESSAGES: Final = 64              # counted for each who gets them, handed over before the clock is read
STEP_PAIRS: Final = 1024               # of stretch and session are made before that: 0.2 ms
STEP_OWNERS: Final = 16                # told of their submissions before that: 0.2 to 0.4 ms
HEARD_MAX: Final = 65_536              # addresses whose sessions are remembered; forgotten all at once beyond that


class HeardAddress:
    """An address that sessions of this door hear, as its messages are delivered. Theirs to read."""

    __slots__ = ("address", "first_level", "key", "partition", "partition_id", "sessions", "tenant", "topic", "version")

    def __init__(self, place: Place, first_level: FirstLevel) -> None:
        self.tenant = place.tenant
        self.address = place.address
        self.sessions: tuple[tuple[LiveListener, int], ...] = ()       # with the highest options of their filters
        self.first_level = first_level
        self.version = -1
        self.move(place)

    def move(self, place: Place) -> None:
        """Its messages are stored there now."""
        self.topic = place.topic
        self.partition = place.partition               # number within the topic
        self.partition_id = place.partition_id
        self.key = place.key


Delivery = tuple[HeardAddress, "list[Message]", int, int]
"""(address, messages, offset of the first, options of the session's filter); the offsets are consecutive."""


class LiveListener(Protocol):
    """Who is told of new messages the moment they are durable."""

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """What of a flush matches its filters, in append order: called once, or more often where much comes at once.
        Must not block or raise."""


class Submitter(Protocol):
    """Who told the kernel something and wants to know when it is durable."""

    def on_stored(self, stored: list[Stored]) -> None:
        """Its submissions of one flush, in order. Must not block or raise."""


class Switchboard:
    """See the module's text. `port` is for guards; what it has here it has by numbers of sessions' own."""

    def __init__(self, ports: Ports, transactions: HalfMessages | None, door: str = "") -> None:
        self.door = door                       # its name, for journeys
        self.port: KernelPort = ports.port(self)
        self.gathering: Gathering = Gathering(self)
        self._transactions = transactions      # None in tests that need none
        self._last = 0
        self._submitted: dict[int, tuple[Submitter, object]] = {}
        self._audiences: dict[str, Audience[LiveListener]] = {}
        self._counts: dict[tuple[str, str], int] = {}          # sessions with a filter, by tenant and filter
        self._heard: dict[tuple[str, str], HeardAddress] = {}
        self._topics: dict[int, tuple[str, str]] = {}          # tenant and topic of each partition that was heard

    @property
    def transactions(self) -> HalfMessages:
        """Half messages."""
        assert self._transactions is not None, "every hub has transactions"
        return self._transactions

    # ---- submissions

    def submit(self, owner: Submitter | None, token: object) -> int:
        """A number for what is told next; `take_back` where it was refused. 0: nobody wants an answer."""
        if owner is None:
            return 0
        self._last += 1
        self._submitted[self._last] = owner, token
        return self._last

    def take_back(self, number: int) -> None:
        """Nothing will be answered."""
        self._submitted.pop(number, None)

    @contextmanager
    def submission(self, owner: Submitter | None, token: object) -> Iterator[int]:
        """A number under which `owner` is answered, unless what is told with it is refused."""
        number = self.submit(owner, token)
        try:
            yield number
        except Exception:
            self.take_back(number)
            raise

    def on_answers(self, answers: list[Stored]) -> Iterator[None]:
        """See `api.DoorSide`."""
        by_owner: dict[Submitter, list[Stored]] = {}
        submitted = self._submitted
        for answer in answers:
            owner, answer.token = submitted.pop(cast(int, answer.token))
            mine = by_owner.get(owner)
            if mine is None:
                by_owner[owner] = [answer]
            else:
                mine.append(answer)
        for count, (owner, stored) in enumerate(by_owner.items()):
            if count and count % STEP_OWNERS == 0:
                yield
            if isinstance(owner, Gathered):
                for _ in owner.answer(stored[0], self):
                    yield
                continue
            try:
                owner.on_stored(stored)
            except Exception as fault:         # one session's bug must not cost the others their answers
                self.port.note_fault(fault)

    # ---- live subscribers  # decision 146

    def subscribe(self, filter_text: str, listener: LiveListener, options: int, tenant: str) -> None:
        """Raises InvalidFilter. Subscribing again replaces the options."""
        pattern = parse_filter(filter_text)
        audience = self._audiences.get(tenant)
        if audience is None:
            audience = self._audiences[tenant] = Audience()
        if audience.add(pattern, listener, options):
            key = (tenant, filter_text)
            count = self._counts.get(key, 0)
            if not count:
                self.port.subscribe(filter_text, tenant)
            self._counts[key] = count + 1

    def unsubscribe(self, filter_text: str, listener: LiveListener, tenant: str) -> None:
        """Undo `subscribe`, where there was one. Raises InvalidFilter."""
        audience = self._audiences.get(tenant)
        if audience is None or not audience.remove(parse_filter(filter_text), listener):
            return
        key = (tenant, filter_text)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self.port.unsubscribe(filter_text, tenant)

    def __len__(self) -> int:
        """How many filters sessions have."""
        return sum(self._counts.values())

    def topic_of(self, partition_id: int, tenant: str) -> str | None:
        """The topic of a partition of which something was delivered, whether or not it is still there."""
        of, topic = self._topics.get(partition_id, ("", ""))
        return topic if of == tenant else None

    def hearers(self, place: Place) -> tuple[str, int]:
        """See `api.DoorSide`."""
        return self.door, len(self._hearing(place).sessions)

    def on_delivery(self, heard: list[Heard]) -> Iterator[None]:
        """See `api.DoorSide`."""
        by_session: dict[LiveListener, list[Delivery]] = {}
        count = pairs = 0
        heard_before = self._heard
        for place, messages, first_offset in heard:
            address = heard_before.get(place[:2])
            if address is None or address.version != address.first_level.version or address.partition_id != place[4]:
                address = self._hearing(place)
            count += len(messages)
            delivery: Delivery | None = None
            for session, options in address.sessions:
                if delivery is None or delivery[3] != options:
                    delivery = (address, messages, first_offset, options)
                mine = by_session.get(session)
                if mine is None:
                    by_session[session] = [delivery]
                else:
                    mine.append(delivery)
            pairs += 1 + len(address.sessions)
            if pairs >= STEP_PAIRS:
                pairs = 0
                yield
        step = max(1, STEP_MESSAGES // max(1, count))
        for number, (session, deliveries) in enumerate(by_session.items()):
            if number and not number % step:
                yield
            try:
                session.on_delivery(deliveries)
            except Exception as fault:         # one session's bug must not cost the others their messages
                self.port.note_fault(fault)
        if self.door and by_session:
            self.port.note_delivered(self.door, count)

    def _hearing(self, place: Place) -> HeardAddress:
        """Who hears an address, looked up again where that may have changed."""
        key = (place.tenant, place.address)
        address = self._heard.get(key)
        if address is None:
            if len(self._heard) >= HEARD_MAX:
                self._heard.clear()
            audience = self._audiences.get(place.tenant)
            if audience is None:               # the last one has gone, and the kernel was told after this flush
                audience = self._audiences[place.tenant] = Audience()
            address = self._heard[key] = HeardAddress(place, audience.first_level(place.address.partition("/")[0]))
            self._topics[place.partition_id] = place.tenant, place.topic
        elif address.partition_id != place.partition_id:
            address.move(place)
            self._topics[place.partition_id] = place.tenant, place.topic
        if address.version != address.first_level.version:
            best: dict[LiveListener, int] = {}
            for session, options in self._audiences[place.tenant].match(place.address):
                if options >= best.get(session, options):
                    best[session] = options
            address.sessions = tuple(best.items())
            address.version = address.first_level.version
        return address
