"""What one client's filters choose of what comes live: by a selector, or by how far the filter's history has been sent.

Made with the first filter that has either; other clients pay nothing. A message goes out with the highest QoS of the
filters that take it, or not at all.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.mqtt import mapping
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter
from gatehouse.kernel.message import TRANSIENT

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.history import History
    from gatehouse.gateways.mqtt.subscriptions import GrantedFilter
    from gatehouse.gateways.switchboard import HeardAddress
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Record
    from gatehouse.kernel.selectors.selector import Selector

KNOWN_MAX: Final = 4096                # addresses of which it is remembered which filters match
NO_FILTERS: Final[frozenset[str]] = frozenset()

Portion = tuple[int, int, int]
"""Messages from the first number up to the second, with this QoS."""


class Chooser(NamedTuple):
    """One filter that matches an address."""

    filter: str
    qos: int
    selector: Selector | None
    history: History | None

    def takes(self, address: HeardAddress, offset: int, message: Message) -> bool:
        """Whether the filter wants a message that comes live."""
        _, value, headers, attributes, timestamp_ms = message
        if self.history is not None and not self.history.takes(address.partition_id, offset,
                                                               attributes & TRANSIENT != 0):
            return False
        return self.selector is None or self.selector.matches_encoded(
            headers, address.key, address.address, address.topic, timestamp_ms, value)


class Choosing:
    """One client's. `by_filter` is what it has subscribed to."""

    def __init__(self, by_filter: dict[str, GrantedFilter]) -> None:
        self._by_filter = by_filter
        self._selectors: dict[str, Selector] = {}
        self._histories: dict[str, History] = {}
        self._known: dict[str, list[Chooser]] = {}

    # ---- filters

    def choose(self, topic_filter: str, selector: Selector | None, history: History | None) -> None:
        """A filter came, or came again."""
        self.forget(topic_filter)
        if selector is not None:
            self._selectors[topic_filter] = selector
        if history is not None:
            self._histories[topic_filter] = history

    def forget(self, topic_filter: str) -> None:
        """A filter has gone."""
        self._selectors.pop(topic_filter, None)
        history = self._histories.pop(topic_filter, None)
        if history is not None:
            history.end()

    def look_again(self) -> None:
        """Filters have come or gone."""
        self._known.clear()

    def wants_retained(self, topic_filter: str, address: str, topic: str, record: Record) -> bool:
        """Whether a filter takes a retained value."""
        selector = self._selectors.get(topic_filter)
        return selector is None or selector.matches(record[4], record[2], address, topic, record[1], record[3])

    # ---- histories

    def begin(self) -> None:
        """SUBACK has left: histories may be sent."""
        for history in list(self._histories.values()):
            history.begin()

    def pump(self) -> None:
        """Socket or window have room."""
        for name, history in list(self._histories.items()):
            history.pump()
            if history.is_durable and history.settle():
                del self._histories[name]                      # all of it is done with
                self._known.clear()

    def on_answered(self, packet_id: int) -> None:
        """The client is done with what has this packet id."""
        for history in self._histories.values():
            history.on_answered(packet_id)

    def end(self) -> None:
        """The connection is over."""
        for history in self._histories.values():
            history.settle()
            history.end()
        self._histories.clear()

    # ---- what comes live

    def portions(self, address: HeardAddress, messages: list[Message], offset: int, granted: int) -> list[Portion]:
        """What is sent of these messages, the first of which is at `offset`."""
        choosers = self._known.get(address.address)
        if choosers is None:
            choosers = self._choosers(address.address)
        if all(chooser.selector is None and chooser.history is None for chooser in choosers):
            return [(0, len(messages), granted)]
        portions: list[Portion] = []
        for at, message in enumerate(messages):
            qos = max([chooser.qos for chooser in choosers if chooser.takes(address, offset + at, message)], default=-1)
            if qos < 0:
                continue
            if portions and portions[-1][1] == at and portions[-1][2] == qos:
                portions[-1] = portions[-1][0], at + 1, qos
            else:
                portions.append((at, at + 1, qos))
        return portions

    def has_selector(self, address: str) -> bool:
        """Whether a filter that matches an address has a selector."""
        choosers = self._known.get(address) or self._choosers(address)
        return any(chooser.selector is not None for chooser in choosers)

    def not_for(self, address: HeardAddress, message: Message) -> frozenset[str]:
        """The filters that match the address, and whose selectors do not take the message."""
        _, value, headers, _, timestamp_ms = message
        choosers = self._known.get(address.address) or self._choosers(address.address)
        return frozenset([chooser.filter for chooser in choosers
                          if chooser.selector is not None and not chooser.selector.matches_encoded(
                              headers, address.key, address.address, address.topic, timestamp_ms, value)])

    def _choosers(self, address: str) -> list[Chooser]:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        levels = levels_of(address)
        choosers = self._known[address] = [
            Chooser(name, granted.qos, self._selectors.get(name), self._histories.get(name))
            for name, granted in self._by_filter.items()
            if not name.startswith(mapping.RESERVED) and matches(parse_filter(name), levels)]
        return choosers
