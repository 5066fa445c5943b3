"""Dead letters: a message that a group gives up goes to its dead-letter queue, in the frame that settles it.

The copy keeps the message's id, key, value and headers, and has one header more, `dead-letter`: why, from where, after
how many attempts, when, and what has happened to it before. A group over a topic, or behind a shared filter, has a
queue for them, `$dead-letters/GROUP`; any other queue says itself where they go: `queue:NAME`,
`address:ADDRESS`, or in words of the door that declared it (`$dead-letters/QUEUE` while that is not open).

A sender can write such a header, too, and a producer's batches are stored as they come. So each death has a seal that
only this hub can make, for this message alone; what sends letters back along their history looks at it.

On request they go back to where they came from: settled in their queue and stored there again in one frame. The copy
has the message's id, key, value and headers, with its history: should it die again, it is a dead letter with one death
more. Its attempts begin anew. It enters the queue that its way to the dead letters began in, behind what is there;
every reader of a topic sees it again.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.placing import QUEUE_PREFIX, Places
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import ExpiredReceipt, KernelError, Stopping, UnknownPartition, UnknownTopic
from gatehouse.kernel.groups.definitions import QueueDefinitions
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import DEAD_LETTER_PREFIX, Queue, QueueSettings
from gatehouse.kernel.groups.policy import ATTEMPTS, EXPIRED, OVERFLOW, REJECTED, Policy
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.message import RETAIN, Headers, Leased, Message, Placement, Record
from gatehouse.kernel.records.batch import encode_headers, read_headers
from gatehouse.kernel.records.headers import EXPIRES_HEADER
from gatehouse.kernel.retention.holders import Stretch
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.pending_frame import check

if TYPE_CHECKING:
    from gatehouse.kernel.groups.handing_out import Prefetcher, Verdict
    from gatehouse.kernel.groups.leasing import Core
    from gatehouse.kernel.groups.queues import Queues

HEADER: Final = b"dead-letter"
SEAL: Final = "seal"
SEAL_BYTES: Final = 12
MAX_HISTORY: Final = 20                 # deaths that a message remembers: the first, and the newest
TO_QUEUE: Final = "queue:"
TO_ADDRESS: Final = "address:"
REFUSED: Final = (REJECTED, ATTEMPTS)   # reasons that a consumer had a part in
NESTED_MAX: Final = 4                   # a death, its transaction, that one's checks, a check

_DEATH: Final = {"reason": str, "topic": str, "partition": int, "offset": int, "attempts": int, "at_ms": int,
                 "address": str}

Gaps = Sequence[Stretch]
"""Where a queue was read and nothing is: first offset and the one behind, in order."""

Route = Callable[["Queue", Leased, str], "list[Message] | None"]
"""A door's own: the messages that a dead letter of a queue becomes, for this reason; none to drop it. None: the
queue is not of this door."""


class DeadLetters:
    """Makes the dead letters of every group. Doors' routes say where those of a queue go where only a door can
    tell. `identity` signs deaths."""

    def __init__(self, core: Core, places: Places, topics: Topics, subscriptions: Subscriptions,
                 definitions: QueueDefinitions, identity: Identity) -> None:
        self._core = core
        self._places = places
        self._topics = topics
        self._subscriptions = subscriptions
        self._definitions = definitions
        self._identity = identity
        self._routes: list[Route] = []

    def add_route(self, route: Route) -> None:
        """Ask this one too."""
        self._routes.append(route)

    def keep(self, group: LeasedGroup, messages: list[Leased], reason: str) -> None:
        """Copies of these go into the pending frame. Raises Stopping, with nothing done."""
        pending_frame = self._core.open_frame()
        for message in messages:
            copies = self._copies(group, message, reason)
            if copies:
                copies = self._places.choose(copies)
                pending_frame.builder.add_copies(copies, [message[3]] * len(copies), None)

    def _copies(self, group: LeasedGroup, message: Leased, reason: str) -> list[Message]:
        if group.queue is not None and group.queue.settings.dead_letter and self._routes \
                and not group.queue.settings.dead_letter.startswith((TO_QUEUE, TO_ADDRESS)):
            answers = (route(group.queue, message, reason) for route in self._routes)
            return next((copies for copies in answers if copies is not None), [])
        placement = self._of_queue(group.queue, message, reason) if group.queue is not None and not group.shared \
            else self._of_group(group, message)
        if placement is None:
            return []
        encoded = with_death(message, self.describe(group, message, reason), keeps_address=placement.queue is not None)
        return [(placement, message[6], encoded, message[8] & ~RETAIN, message[4])]

    def _of_group(self, group: LeasedGroup, message: Leased) -> Placement | None:
        if not group.settings.dead_letters:
            return None
        return self.place(self.own_queue(group.shared or group.name, group.tenant), message[5])

    def own_queue(self, name: str, tenant: str) -> Queue:
        """For the dead letters of what has this name, whatever settings somebody has given it. Raises Stopping."""
        existing = self._definitions.get(tenant, DEAD_LETTER_PREFIX + name)
        return existing or self._definitions.add(tenant, DEAD_LETTER_PREFIX + name, QueueSettings())

    def place(self, queue: Queue, key: bytes | None) -> Placement:
        """There, for a dead letter with this key."""
        return self._places.place_queue(queue, 0, key)

    def _of_queue(self, queue: Queue, message: Leased, reason: str) -> Placement | None:  # decision 35
        """Where a queue's settings say; None to drop it: nowhere, a place that is not there, or in a circle."""
        to, places = queue.settings.dead_letter, self._places
        try:
            if to.startswith(TO_QUEUE):
                placement = places.place_again(queue.tenant, to.removeprefix(TO_QUEUE), 0, message[5])
            elif to.startswith(TO_ADDRESS):
                placement = places.place(to.removeprefix(TO_ADDRESS), queue.tenant, True)
                if isinstance(placement.queue, Queue):                # which keeps the key that the message has
                    placement = self.place(placement.queue, message[5])
                self._subscriptions.refresh(placement)
            elif to or reason == OVERFLOW and queue.settings.overflow == "dead-letter":  # decision 333: no door's route
                placement = self.place(self.own_queue(queue.name, queue.tenant), message[5])
            else:
                return None
        except Stopping:
            raise
        except KernelError:
            return None
        circles = placement.address in _passed(message, QUEUE_PREFIX + queue.name, reason)
        return None if circles else placement

    def describe(self, group: LeasedGroup, message: Leased, reason: str) -> dict[str, Any]:
        """What a dead letter says about its death."""
        topic_partition = self._topics.of_partition(message[0][0])
        topic = topic_partition[0].name if topic_partition is not None else ""
        headers, _ = read_headers(message[7], 0)
        address = QUEUE_PREFIX + group.queue.name if group.queue is not None \
            else self._places.routes.address_of(topic, message[5], headers)
        death = {"reason": reason, "group": group.shared or group.name, "topic": topic,
                 "partition": topic_partition[1] if topic_partition else 0, "offset": message[1],
                 "attempts": message[2], "at_ms": self._core.wall_ms(), "address": address}
        return {**death, SEAL: seal_of(self._identity.secret, message[3], death)}


class DeadLettering(Policy):
    """A group's: what was handed out too often is given up, and what is given up is kept as a dead letter."""

    def __init__(self, letters: DeadLetters, group: LeasedGroup) -> None:
        self._letters = letters
        self._group = group

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        most = self._group.settings.max_attempts
        if not most or not prefetcher.cursor.may_have_tries:
            return messages
        again: list[Leased] = []
        for message in messages:
            if message[2] > most:
                verdict.give_up(message, ATTEMPTS)
            else:
                again.append(message)
        return again

    def on_given_up(self, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        self._letters.keep(self._group, messages, reason)


def seal_of(secret: bytes, message_id: int, death: dict[str, Any]) -> str:  # decision 36
    """Says that a death of this message is the hub's own word. Copies keep their id; a restored hub has another
    secret."""
    content = json.dumps([message_id, *[death[name] for name in _DEATH]]).encode()
    return blake2b(content, key=secret, digest_size=SEAL_BYTES, person=b"death").hexdigest()


def _passed(message: Leased, address: str, reason: str) -> set[str]:
    """Where a message has died since a consumer refused it last, this death included: it does not go there again by
    itself, or it would go in circles for ever."""
    passed = {address} if reason not in REFUSED else set()
    for death in reversed(deaths_of(message[7])) if passed else ():
        if death["reason"] in REFUSED:
            break
        passed.add(death["address"])
    return passed


def deaths_of(headers_encoded: bytes) -> list[dict[str, Any]]:
    """The deaths a message has died, oldest first."""
    return read_deaths(read_headers(headers_encoded, 0)[0]) if HEADER in headers_encoded else []


def read_deaths(headers: Headers) -> list[dict[str, Any]]:
    """The deaths that these decoded headers tell of, oldest first."""
    for name, value in headers:
        if name == HEADER and value is not None:
            return _read(value)
    return []


def _read(value: bytes) -> list[dict[str, Any]]:
    """Deaths that are whole, and can be shown: a sender may have made some up."""
    try:
        read = json.loads(value, parse_int=_whole, parse_float=_whole, parse_constant=_whole)
        json.dumps(read, ensure_ascii=False).encode()        # half of a surrogate pair is in no UTF-8
    except (ValueError, RecursionError):
        return []
    if not isinstance(read, list):
        return []
    for death in read:
        if isinstance(death, dict) and "queue" in death:     # what a partition is called in logs from before
            death["partition"] = death.pop("queue")
    return [death for death in read if _is_death(death)]


def _whole(text: str) -> int:
    """No number of a death has a fraction, or more than 64 bits."""
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("more than 64 bits")
    return number


def _is_death(read: Any) -> bool:
    return isinstance(read, dict) and all(type(read.get(name)) is kind for name, kind in _DEATH.items()) \
        and _is_flat(read, NESTED_MAX)


def _is_flat(read: Any, levels: int) -> bool:
    inside = read.values() if isinstance(read, dict) else read if isinstance(read, list) else None
    return inside is None or levels > 0 and all(_is_flat(child, levels - 1) for child in inside)


def with_death(message: Leased, death: dict[str, Any], *, keeps_address: bool = True) -> bytes:
    """The message's encoded headers, with one more death. What made it expire has done so: it goes, or the copy would
    expire where it is kept. `keeps_address`: it goes where nothing else says its address."""
    gone = set()
    if death["reason"] == EXPIRED:
        gone.add(EXPIRES_HEADER)
    if not keeps_address:
        gone.add(ADDRESS_HEADER)
    headers, _ = read_headers(message[7], 0)
    return with_history([header for header in headers if header[0] not in gone], [*deaths_of(message[7]), death])


def with_history(headers: list[tuple[bytes, bytes | None]], deaths: list[dict[str, Any]]) -> bytes:
    """Encoded headers that tell of these deaths, oldest first."""
    deaths = [*deaths[:1], *deaths[1:][1 - MAX_HISTORY:]]
    others = [header for header in headers if header[0] != HEADER]
    return encode_headers([*others, (HEADER, json.dumps(deaths).encode())])


class Redriving:
    """Sends back what queues of dead letters hold."""

    def __init__(self, core: Core, queues: Queues, places: Places, topics: Topics, identity: Identity
                 ) -> None:
        self._core = core
        self._queues = queues
        self._places = places
        self._topics = topics
        self._identity = identity

    def redrive(self, queue: Queue, letters: list[Record], gaps: Gaps = ()) -> list[KernelError | None]:  # decision 30
        """Send these records of a dead-letter queue back. Answers for each why it stays. Raises Stopping."""
        group = self._queues.group_of(queue)
        prefetcher = group.prefetchers[queue.first_partition_id]
        pending_frame = self._core.open_frame()
        results: list[KernelError | None] = []
        gone: list[int] = []
        for letter in letters:
            try:
                self._check_free(prefetcher, letter[0])
                message = self._message(queue.tenant, letter)
                if check([message], self._places.refresh):
                    [message] = self._places.choose([message])
                    self._queues.max_lengths.refuse_full([message])
            except KernelError as error:
                results.append(error)
                continue
            pending_frame.builder.add_copies([message], [letter[6]], None)
            if self._core.recorder is not None:
                self._core.recorder.on_redriven(letter, message[0], queue.name)
            gone.append(letter[0])
            results.append(None)
        if gone:
            group.settle_anywhere(prefetcher, gone, gaps)
        return results

    @staticmethod
    def _check_free(prefetcher: Prefetcher, offset: int) -> None:
        if prefetcher.cursor.is_settled(offset):
            raise ExpiredReceipt("this dead letter is gone already")
        if prefetcher.cursor.is_leased(offset):
            raise ExpiredReceipt("somebody has this dead letter leased")

    def _message(self, tenant: str, letter: Record) -> Message:
        offset, timestamp_ms, key, value, headers, attributes, message_id = letter
        deaths = read_deaths(headers)
        if not deaths or not deaths[-1]["address"]:
            raise UnknownTopic(f"the dead letter at {offset} does not say where it came from")
        placement = self._place(tenant, self._origin(tenant, message_id, deaths), key)
        if placement.address_header:                 # it is added anew
            headers = tuple(header for header in headers if header[0] != ADDRESS_HEADER)
        return placement, value, encode_headers(headers), attributes, timestamp_ms

    # decision 64: only as far as queues say today
    def _origin(self, tenant: str, message_id: int, deaths: list[dict[str, Any]]) -> dict[str, Any]:  # decision 36
        """The death that the letter's way began with: the last, or one that led to it by what queues say of their dead
        letters. Earlier ones without a seal are its sender's making, who perhaps may not publish where they say."""
        definitions = self._queues.definitions
        origin = deaths[-1]
        for earlier in reversed(deaths[:-1]):
            queue = definitions.get(tenant, earlier["address"].removeprefix(QUEUE_PREFIX))
            to = origin["address"]
            leads = TO_QUEUE + to.removeprefix(QUEUE_PREFIX) if to.startswith(QUEUE_PREFIX) else TO_ADDRESS + to
            if earlier.get(SEAL) != seal_of(self._identity.secret, message_id, earlier):
                break
            if queue is None or not earlier["address"].startswith(QUEUE_PREFIX) or queue.settings.dead_letter != leads:
                break
            origin = earlier
        return origin

    def _place(self, tenant: str, death: dict[str, Any], key: bytes | None) -> Placement:
        places = self._places
        if death["address"].startswith(QUEUE_PREFIX):
            return places.place_again(tenant, death["address"].removeprefix(QUEUE_PREFIX), 0, key)
        self._topics.require(death["topic"], tenant)
        partition = death["partition"] if death["partition"] >= 0 else None         # it never was in one: its key's
        try:
            return places.place_in(death["topic"], key, partition, tenant, False)
        except UnknownPartition:                # the topic was made anew, with fewer partitions
            return places.place_in(death["topic"], key, None, tenant, False)
