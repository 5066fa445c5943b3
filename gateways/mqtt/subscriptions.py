"""The filters of one client: which it may have, what it has, what MQTT 5 says of each, what they choose of what comes.

Overlapping filters give one copy, with the highest QoS and all their subscription identifiers (3.3.4). What they say
together of an address is found once for each, and forgotten when a filter comes or goes.

With the first filter that has a selector, or a history, a `Choosing` is made; other clients pay nothing. A message goes
out with the highest QoS of the filters that take it, or not at all.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.mqtt import mapping, packets, properties, reasons
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.history import Begin, FilterWish, History, begin_of, owed_of
from gatehouse.gateways.mqtt.properties import encode_property
from gatehouse.gateways.mqtt.shares import Shares
from gatehouse.gateways.properties.envelope import SELECTOR_NAMES
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.audience import Audience
from gatehouse.kernel.addresses.filters import matches, parse_filter
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.message import TRANSIENT
from gatehouse.kernel.selectors.selector import Selector, parse_selector
from gatehouse.kernel.sessions.session_values import Subscribed

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.door_side import HeardAddress
    from gatehouse.gateways.mqtt.config import MqttConfig
    from gatehouse.gateways.mqtt.durable import DurableSession
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.gateways.mqtt.properties import Properties
    from gatehouse.gateways.mqtt.system import System
    from gatehouse.gateways.mqtt.transacting import Transacting
    from gatehouse.kernel.api import HubPort, Message
    from gatehouse.kernel.message import Record

RETAIN_HANDLING_SHIFT: Final = 4
SHOWN_CHARACTERS: Final = 100          # of a filter, to its client
HEARD_MAX: Final = 4096                # addresses of which it is remembered what the filters say
KNOWN_MAX: Final = 4096                # addresses of which it is remembered which filters match
NO_FILTERS: Final[frozenset[str]] = frozenset()

Portion = tuple[int, int, int]
"""Messages from the first number up to the second, with this QoS."""


class GrantedFilter(NamedTuple):
    """A filter that a client has, as it was granted."""

    qos: int
    """Granted."""

    options: int
    """As they came, without QoS."""

    identifier: int
    """0: none."""


class Wishes(NamedTuple):
    """What user properties of a SUBSCRIBE ask for, of all its filters."""

    begin: str | None = None
    selector: str | None = None

    @classmethod
    def of(cls, given: Properties) -> Wishes:
        return cls(given.user_value("from"), given.user_value("selector"))


NO_WISHES: Final = Wishes()


class Heard(NamedTuple):
    """What the filters say of one address."""

    identifiers: bytes
    """Properties, encoded."""

    as_published: bool
    """Whether RETAIN is handed on."""

    no_local: frozenset[str] = NO_FILTERS
    """The filters that leave out what the client has published itself."""

    own_qos: int = -1
    """The highest QoS of the others; -1: there are none."""


class Subscriptions:
    """One client's. `transact` gives what is about transactions, `system` what is about the hub's own figures, `count`
    counts an event."""

    def __init__(self, guard: Guard, outbox: Outbox, kernel: HubPort, config: MqttConfig, level: int,
                 transact: Callable[[], Transacting], system: Callable[[], System], count: Callable[[str], None]
                 ) -> None:
        self.by_filter: dict[str, GrantedFilter] = {}
        self._dressed = 0                                      # filters with what `is_plain` is about
        self._no_local = 0
        self._reasons_given: list[str] = []
        self.durable: DurableSession | None = None             # has the filters, too
        self._guard = guard
        self._outbox = outbox
        self._kernel = kernel
        self._config = config
        self._level = level
        self._transact = transact
        self._system = system
        self._count = count
        self._heard: dict[str, Heard] = {}
        self._audience: Audience[str] = Audience()

    @property
    def is_plain(self) -> bool:
        """Whether no filter has an identifier, no-local, or RETAIN as published."""
        return not self._dressed

    @property
    def has_no_local(self) -> bool:
        """Whether a filter leaves out what the client publishes itself."""
        return self._no_local > 0

    def keep_in(self, durable: DurableSession | None) -> None:
        """Filters outlive the connection there, if anywhere."""
        self.durable = durable

    # --- SUBSCRIBE ---------------------------------------------------------------------------------------------------

    def grant(self, raw: bytes, options: int, identifier: int, wishes: Wishes = NO_WISHES) -> int:
        """Subscribe to one filter; returns what SUBACK says of it. Raises ProtocolError."""
        since, topic_filter = mapping.split_from(mapping.decode_filter(raw))
        begin = None
        if since or wishes.begin is not None:
            begin = begin_of(since or wishes.begin or "", offsets=not since)
            if begin is None:
                return self._refuse("invalid_from", reasons.IMPLEMENTATION, "from: earliest, a time, or an offset")
        refused = self._why_not(topic_filter, options, identifier, begin is not None or wishes.selector is not None)
        if refused is not None:
            return self._refuse(*refused)
        granted = min(options & 3, self._config.max_qos)
        subscribed = subscribed_of(topic_filter, granted, options, identifier, wishes.selector or "")
        try:
            selector = selector_of(subscribed)
            if not self.may_have(topic_filter):
                return self._refuse("denied", reasons.NOT_AUTHORIZED)
            self._hear(topic_filter, granted, identifier)
            if self.durable is not None:
                self.durable.subscribe(subscribed)
            self._choose(subscribed, selector, begin)
        except KernelError as error:
            return self._refuse(error.code, reasons.reason_of(error.code), str(error))
        self._note(topic_filter, GrantedFilter(granted, options & ~3, identifier))
        if not topic_filter.startswith(mapping.RESERVED) and not self._guard.may_consume(topic_filter):
            self._say("in_part", f"{topic_filter[:SHOWN_CHARACTERS]!r} is granted in part: what may not be read of it "
                      "is not sent")
        return granted

    def resume(self, subscribed: Subscribed) -> None:
        """A filter of a session that was there before: heard again, if its client may have it."""
        try:
            if subscribed.filter.startswith(mapping.RESERVED) and not self.may_have(subscribed.filter):
                if self._outbox.durable is not None:
                    self._outbox.durable.unsubscribe(subscribed.filter)
                raise Denied("it is the door's own, and the session has not judged it")
            self._hear(subscribed.filter, subscribed.qos, subscribed.identifier)
            self._choose(subscribed, selector_of(subscribed), None, resumed=True)
        except (KernelError, Denied):
            self._count("subscribe_not_resumed")
            self._guard.note_untold("subscribe_not_resumed", f"{subscribed.filter!r} may not be had any more")
            return
        self._note(subscribed.filter, GrantedFilter(subscribed.qos, options_of(subscribed), subscribed.identifier))

    def _hear(self, topic_filter: str, granted: int, identifier: int) -> None:
        """Be told of what matches, or of what is a member's. Raises KernelError, Denied."""
        if topic_filter.startswith(SHARE):
            self._shares().subscribe(topic_filter, granted, identifier)
        elif topic_filter.startswith(mapping.TXN):
            self._transact().subscribe(topic_filter, granted)
        elif topic_filter.startswith(mapping.SYSTEM):
            self._system().subscribe(topic_filter, granted)
        else:
            self._guard.subscribe(topic_filter, self._outbox, granted, partly=True)

    def _choose(self, subscribed: Subscribed, selector: Selector | None, begin: Begin | None, *,
                resumed: bool = False) -> None:
        """A selector, a history; what there was of the filter before is over. Raises Denied, Stopping."""
        name, outbox = subscribed.filter, self._outbox
        durable = self._outbox.durable if subscribed.qos or self._outbox.durable_has_all else None
        owed = durable.histories().get(name) if resumed and durable is not None else None
        if selector is None and begin is None and not owed:
            if outbox.choosing is not None:
                outbox.choosing.forget(name)
            return
        history = None
        if begin is not None or owed:
            stored = self._guard.history(name, partly=True)
            if durable is not None and owed is None:
                owed = owed_of(stored, begin or Begin(0))
                durable.begin_history(name, owed)
            history = History(outbox, stored, FilterWish(name, subscribed.qos, subscribed.identifier,
                                                    subscribed.retain_as_published, selector), begin, owed)
        if outbox.choosing is None:
            outbox.choosing = Choosing(self.by_filter)
        outbox.choosing.choose(name, selector, history)

    def _why_not(self, topic_filter: str, options: int, identifier: int, chooses: bool) -> tuple[str, int] | None:
        """Why a filter cannot be had, whoever asks: an event to count, and a reason code. Raises ProtocolError."""
        config = self._config
        shared = topic_filter.startswith(SHARE)
        if shared and options & packets.NO_LOCAL:
            raise ProtocolError("[MQTT5-3.8.3-4] no-local on a shared subscription")
        if not topic_filter:
            return "invalid_from", reasons.BAD_FILTER
        if chooses and topic_filter.startswith(mapping.RESERVED):
            return "no_choice", reasons.IMPLEMENTATION
        system = topic_filter.startswith(mapping.SYSTEM) and config.sys_interval_s and self._guard.tenant == "/"
        if topic_filter.startswith(mapping.RESERVED) and not (shared or system
                                                              or topic_filter.startswith(mapping.TXN)):
            return "reserved", reasons.NOT_AUTHORIZED
        if topic_filter not in self.by_filter and len(self.by_filter) >= config.max_subscriptions:
            return "too_many", reasons.QUOTA
        if shared and not config.shared_available:
            return "no_shared", reasons.NO_SHARED
        if not config.wildcards_available and ("+" in topic_filter or "#" in topic_filter):
            return "no_wildcards", reasons.NO_WILDCARDS
        if identifier and not config.identifiers_available:
            return "no_identifiers", reasons.NO_IDS
        return None

    def reasons_given(self) -> str:
        """Why filters were refused, or granted in part, since the last call, for the client; "" where none was."""
        reasons_given, self._reasons_given = self._reasons_given, []
        return "; ".join(dict.fromkeys(reasons_given))

    def _say(self, what: str, text: str, logged: str = "") -> None:
        """Tell the client, or the log where it cannot be."""
        self._count("subscribe_" + what)
        self._reasons_given.append(text)
        if self._level < packets.MQTT5 and what != "denied":
            self._guard.note_untold("subscribe_" + what, logged or text)

    def _refuse(self, why: str, reason: int, text: str = "") -> int:
        text = text or why.replace("_", " ")
        self._say(why, text, f"a filter is refused: {text}")
        return reason if self._level == packets.MQTT5 else packets.SUBACK_REFUSED

    def may_have(self, topic_filter: str) -> bool:
        """Whether the client has the right to a filter, or to a part of one, as rights are now. Raises
        InvalidFilter."""
        if topic_filter.startswith(mapping.TXN):
            return self._transact().may_subscribe(topic_filter)
        if not topic_filter.startswith(SHARE):
            return self._guard.may_consume_some(topic_filter)
        return self._guard.groups.may_share(topic_filter)

    def _shares(self) -> Shares:
        shares = self._outbox.shares
        if shares is None:
            shares = Shares(self._kernel, self._outbox, self._guard.tenant)
            self._outbox.take_part_by(shares)
        return shares

    def _note(self, topic_filter: str, subscription: GrantedFilter) -> None:
        before = self.by_filter.get(topic_filter)
        if before is not None:
            self._count_options(topic_filter, before, -1)
        self._count_options(topic_filter, subscription, 1)
        self.by_filter[topic_filter] = subscription
        if not topic_filter.startswith(mapping.RESERVED) and self._level == packets.MQTT5:
            self._audience.add(parse_filter(topic_filter), topic_filter, subscription.qos)
        self._look_again()

    def _count_options(self, topic_filter: str, subscription: GrantedFilter, change: int) -> None:
        """A filter comes or goes: a client may have thousands, so none looks at all."""
        if not topic_filter.startswith(mapping.RESERVED):
            options = subscription.options
            if subscription.identifier or options & (packets.NO_LOCAL | packets.RETAIN_AS_PUBLISHED):
                self._dressed += change
            if options & packets.NO_LOCAL:
                self._no_local += change

    def _look_again(self) -> None:
        self._heard.clear()
        if self._outbox.choosing is not None:
            self._outbox.choosing.look_again()

    # --- UNSUBSCRIBE -------------------------------------------------------------------------------------------------

    def end(self, topic_filter: str) -> bool:
        """False where the client has no such filter."""
        _, topic_filter = mapping.split_from(topic_filter)
        subscription = self.by_filter.pop(topic_filter, None)
        if subscription is None:
            return False
        self._count_options(topic_filter, subscription, -1)
        if topic_filter.startswith(SHARE):
            self._shares().unsubscribe(topic_filter)
        elif topic_filter.startswith(mapping.TXN):
            self._transact().unsubscribe(topic_filter)
        elif topic_filter.startswith(mapping.SYSTEM):
            self._system().unsubscribe(topic_filter)
        else:
            self._guard.unsubscribe(topic_filter, self._outbox)
            self._outbox.forget_filter(topic_filter)
            if self._level == packets.MQTT5:
                self._audience.remove(parse_filter(topic_filter), topic_filter)
        if self._outbox.choosing is not None:
            self._outbox.choosing.forget(topic_filter)
        if self.durable is not None:
            self.durable.unsubscribe(topic_filter)
        self._look_again()
        return True

    def end_all(self) -> None:
        """The connection is over."""
        self.durable = None
        for topic_filter in list(self.by_filter):
            self.end(topic_filter)

    # --- deliveries --------------------------------------------------------------------------------------------------

    def heard(self, address: str, but: frozenset[str] = NO_FILTERS) -> Heard:  # decision 171
        """What the filters that match an address say of it; `but`: those that do not want the message."""
        if but:
            return self._judge(address, but)
        heard = self._heard.get(address)
        if heard is None:
            if len(self._heard) >= HEARD_MAX:
                self._heard.clear()
            heard = self._heard[address] = self._judge(address, but)
        return heard

    def _judge(self, address: str, but: frozenset[str]) -> Heard:
        matching = {name: self.by_filter[name] for name, _ in self._audience.match(address) if name not in but}
        return Heard(b"".join([encode_property(properties.SUBSCRIPTION_ID, each.identifier)
                               for each in matching.values() if each.identifier]),
                     any(each.options & packets.RETAIN_AS_PUBLISHED for each in matching.values()),
                     frozenset([name for name, each in matching.items() if each.options & packets.NO_LOCAL]),
                     max([each.qos for each in matching.values() if not each.options & packets.NO_LOCAL], default=-1))


def selector_of(subscribed: Subscribed) -> Selector | None:
    """Raises InvalidSelector."""
    return parse_selector(subscribed.selector, SELECTOR_NAMES) if subscribed.selector else None


def subscribed_of(topic_filter: str, qos: int, options: int, identifier: int, selector: str = "") -> Subscribed:
    """A filter as a durable session keeps it."""
    return Subscribed(topic_filter, qos, bool(options & packets.NO_LOCAL), bool(options & packets.RETAIN_AS_PUBLISHED),
                      (options & packets.RETAIN_HANDLING) >> RETAIN_HANDLING_SHIFT, identifier, selector)


def options_of(subscribed: Subscribed) -> int:
    """Its options as they came, without QoS."""
    return ((packets.NO_LOCAL if subscribed.no_local else 0)
            | (packets.RETAIN_AS_PUBLISHED if subscribed.retain_as_published else 0)
            | subscribed.retain_handling << RETAIN_HANDLING_SHIFT)


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
        return any(chooser.selector is not None for chooser in self._choosers(address))

    def not_for(self, address: HeardAddress, message: Message) -> frozenset[str]:
        """The filters that match the address, and whose selectors do not take the message."""
        _, value, headers, _, timestamp_ms = message
        choosers = self._choosers(address.address)
        return frozenset([chooser.filter for chooser in choosers
                          if chooser.selector is not None and not chooser.selector.matches_encoded(
                              headers, address.key, address.address, address.topic, timestamp_ms, value)])

    def _choosers(self, address: str) -> list[Chooser]:
        """The filters that match an address."""
        choosers = self._known.get(address)
        if choosers is not None:
            return choosers
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        levels = levels_of(address)
        choosers = self._known[address] = [
            Chooser(name, granted.qos, self._selectors.get(name), self._histories.get(name))
            for name, granted in self._by_filter.items()
            if not name.startswith(mapping.RESERVED) and matches(parse_filter(name), levels)]
        return choosers
