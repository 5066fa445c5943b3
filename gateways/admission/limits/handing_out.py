"""What one guard hands out: charged for each delivery, held back while a limit of it is overdrawn. Pure.

A door asks `room` before it writes messages and tells `take` afterwards. Where there is no room it keeps what is to be
delivered as it does for a peer that does not read, and goes on at `until_ms`.

Who takes from an overdrawn limit stands behind those who took before. That shares turns out and not messages, and a
door that gives out a stored batch whole takes a hundred turns' worth at once: so who took waits until everybody who
takes could have had as much, unless nobody takes any more.
"""
# decision 239: what goes out is held back as from a peer that does not read; decision 308: turns are weighed
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gatehouse.gateways.admission.limits.book import LimitBook
from gatehouse.gateways.admission.limits.bucket import LONGEST_WAIT_MS
from gatehouse.gateways.admission.limits.limit import OUT
from gatehouse.gateways.admission.limits.meter import LOOK_AGAIN_MS, NO_BOUND, Meter, charge_all

IDLE_MS: Final = 100
"""Where something is left and nobody has taken for so long, nobody else wants it."""

ADDRESSES_MAX: Final = 4096
"""Addresses whose meters are remembered; forgotten all at once beyond that."""


class Turn:
    """When who hands out may take again from some meters. `taker`: what tells him from others."""

    __slots__ = ("_behind", "_looked_ms", "_taken", "_taker", "_until_ms")

    def __init__(self, taker: int) -> None:
        self._taker = taker
        self._until_ms = 0
        self._behind: Meter | None = None    # that this waits at
        self._looked_ms = 0                  # when that was looked at last, and what had been taken from it by then
        self._taken = 0

    def wait_ms(self, now_ms: int) -> int:
        """For how many ms nothing more is to be taken."""
        if self._until_ms and (now_ms >= self._until_ms or self._is_alone(now_ms)):
            self._until_ms = 0
        return max(0, self._until_ms - now_ms)

    def _is_alone(self, now_ms: int) -> bool:
        """Whether nobody took for a while though something is there."""
        meter = self._behind
        if meter is None or now_ms - self._looked_ms < IDLE_MS:
            return False
        if meter.messages_taken == self._taken and not meter.wait_ms(now_ms):
            return True
        meter.share(self._taker, now_ms)
        self._taken, self._looked_ms = meter.messages_taken, now_ms
        return False

    def take(self, meters: tuple[Meter, ...], messages: int, size_bytes: int, now_ms: int) -> int:
        """So much was handed out. Returns for how many ms nothing more is to be."""
        wait_ms = charge_all(meters, messages, size_bytes, 1, now_ms)
        if wait_ms:
            meter = self._behind = max(meters, key=lambda each: each.wait_ms(now_ms))
            sharing = meter.share(self._taker, now_ms)
            turn_ms = min(meter.worth_ms(messages, size_bytes) * sharing, LONGEST_WAIT_MS) if sharing > 1 else 0
            self._until_ms = max(self._until_ms, now_ms + wait_ms, now_ms + turn_ms)
            self._taken, self._looked_ms = meter.messages_taken, now_ms
        return wait_ms


class HandingOut:
    """What one guard's deliveries are charged to. Nothing is looked up while no limit speaks of what goes out."""

    def __init__(self, book: LimitBook, now_ms: Callable[[], int], door: str) -> None:
        self._book = book
        self._now_ms = now_ms
        self._door = door
        self._user = self._tenant = self._client_id = ""
        self._groups: Iterable[str] = ()
        self._version = -1
        self._meters: tuple[Meter, ...] = ()
        self._of_address: dict[tuple[str, str], tuple[Meter, ...]] = {}
        self._turn = Turn(id(self))          # at what is charged for everything
        self._turns: dict[tuple[str, str], Turn] = {}    # at what is charged besides for a topic, or for consumers

    def renew(self, user: str, groups: Iterable[str], tenant: str, client_id: str) -> None:
        """Who is given messages."""
        self._user, self._groups, self._tenant, self._client_id = user, groups, tenant, client_id
        self._version = -1

    def wait_ms(self, topic: str | None = None, consumers: str = "") -> int:
        """For how many ms nothing more is to be handed out: 0, it may be. To be asked again after that, a second at the
        latest, as limits change. Who knows what he is going to hand out says of which topic it is, "" of none, or to
        whom; None: whatever was handed out before."""
        if self._version != self._book.version:
            self._resolve()
        now_ms = self._now_ms()
        wait_ms = self._turn.wait_ms(now_ms)
        if self._turns:
            owed_ms = {of: turn.wait_ms(now_ms) for of, turn in self._turns.items()}
            self._turns = {of: turn for of, turn in self._turns.items() if owed_ms[of]}
            own = owed_ms.values() if topic is None else (owed_ms.get((topic, ""), 0), owed_ms.get(("", consumers), 0))
            wait_ms = max(wait_ms, *own)
        return min(wait_ms, LOOK_AGAIN_MS)

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes of them, may be handed out at once: (0, 0) while it is waited."""
        if self.wait_ms():
            return 0, 0
        now_ms = self._now_ms()
        messages = size_bytes = NO_BOUND
        for meter in self._meters:
            room = meter.room(now_ms)
            messages, size_bytes = min(messages, room[0]), min(size_bytes, room[1])
        return messages, size_bytes

    def take(self, messages: int, size_bytes: int, topic: str = "", address: str = "", consumers: str = "") -> int:
        """So much was handed out, of an address of a topic, or to a group of consumers. Returns for how many ms nothing
        more is to be."""
        if self._version != self._book.version:
            self._resolve()
        now_ms = self._now_ms()
        wait_ms = self._turn.take(self._meters, messages, size_bytes, now_ms)
        own: list[tuple[tuple[str, str], tuple[Meter, ...]]] = []
        if topic and self._book.places_out:
            own.append(((topic, ""), self._meters_of(topic, address)))
        if consumers:
            own.append((("", consumers), self._book.of_consumers(self._tenant, consumers, now_ms)))
        for of, meters in own:
            turn = self._turns.get(of) or Turn(id(self))
            owed_ms = turn.take(meters, messages, size_bytes, now_ms)
            if owed_ms:
                self._turns[of] = turn
                wait_ms = max(wait_ms, owed_ms)
        return wait_ms

    def _meters_of(self, topic: str, address: str) -> tuple[Meter, ...]:
        meters = self._of_address.get((topic, address))
        if meters is None:
            if len(self._of_address) >= ADDRESSES_MAX:
                self._of_address.clear()
            now_ms = self._now_ms()
            meters = self._book.of_place(OUT, self._tenant, topic, address, now_ms) if address \
                else self._book.of_topic(OUT, self._tenant, topic, now_ms)
            self._of_address[topic, address] = meters
        return meters

    def _resolve(self) -> None:
        self._version = self._book.version
        self._meters = self._book.of_connection(OUT, self._door, self._user, self._groups, self._tenant,
                                                self._client_id, self._now_ms())
        self._of_address.clear()
        self._turn = Turn(id(self))
        self._turns.clear()
