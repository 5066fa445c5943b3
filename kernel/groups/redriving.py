"""Dead letters go back to where they came from: settled in their queue and stored there again in one frame.

The copy has the message's id, key, value and headers, with its history: should it die again, it is a dead letter with
one death more. Its attempts begin anew. It enters the queue that its way to the dead letters
began in, behind what is there; every reader of a topic sees it again.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.placing import QUEUE_PREFIX, Places
from gatehouse.kernel.errors import ExpiredReceipt, KernelError, UnknownPartition, UnknownTopic
from gatehouse.kernel.groups.core import Core
from gatehouse.kernel.groups.dead_lettering import SEAL, TO_ADDRESS, TO_QUEUE, read_deaths, seal_of
from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.groups.queues import Queues
from gatehouse.kernel.groups.settings import Queue
from gatehouse.kernel.message import Message, Placement, Record
from gatehouse.kernel.records.record import encode_headers
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.batch_builder import check

Gaps = Sequence[tuple[int, int]]
"""Where a queue was read and nothing is: first offset and the one behind, in order."""


class Redriving:
    """`refresh` finds who hears of a placement's messages; see `kernel.write.appending`."""

    def __init__(self, core: Core, queues: Queues, places: Places, topics: Topics, secret: bytes,
                 refresh: Callable[[Placement], None]) -> None:
        self._core = core
        self._queues = queues
        self._places = places
        self._topics = topics
        self._secret = secret
        self._refresh = refresh

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
                if check([message], self._refresh):
                    self._queues.max_lengths.refuse_full([message])
            except KernelError as error:
                results.append(error)
                continue
            pending_frame.builder.add_copies([message], [letter[6]], None)
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
            if earlier.get(SEAL) != seal_of(self._secret, message_id, earlier):
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
