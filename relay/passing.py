"""Which addresses a link lets pass, and what they are called on the other side. Pure.

A filter is one of addresses: levels, `+` for one, `#` at the end for all that follow. No filter: nothing passes. What
belongs to a hub itself (`$...`) never does. A rename leads from one filter that ends with `/#` to another; the first
that matches holds.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gatehouse.kernel.addresses.address import is_address, is_reserved, levels_of
from gatehouse.kernel.addresses.filters import MANY, matches, parse_filter
from gatehouse.kernel.addresses.routes import RouteEntry
from gatehouse.kernel.errors import InvalidFilter

TAIL: Final = "/" + MANY
MAX_REMEMBERED: Final = 65_536


class Filters:
    """Some filters; remembers what it has judged."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises InvalidFilter."""
        self.texts: Final = tuple(texts)
        self._patterns = [parse_filter(text) for text in self.texts]
        self._judged: dict[str, bool] = {}

    def match(self, address: str) -> bool:
        """Whether one of them does."""
        judged = self._judged.get(address)
        if judged is None:
            judged = not is_reserved(address) and any(
                matches(pattern, levels_of(address)) for pattern in self._patterns)
            if len(self._judged) >= MAX_REMEMBERED:
                self._judged.clear()
            self._judged[address] = judged
        return judged

    def covers(self, first_level: str) -> bool:
        """Whether every address that begins with this level matches."""
        return any(pattern in ((MANY,), (first_level, MANY)) for pattern in self._patterns)

    def may_match(self, first_level: str) -> bool:
        """Whether an address that begins with this level can match."""
        return any(pattern[0] in (MANY, "+", first_level) for pattern in self._patterns)

    def may_lie_in(self, topic: str, routes: Iterable[RouteEntry]) -> bool:
        """Whether a message with an address that matches can be stored in this topic: by its first level, or by one of
        these routes."""
        return self.may_match(topic) or any(
            _may_lead_to(route, topic) and self._may_match_route(route) for route in routes)

    def _may_match_route(self, route: RouteEntry) -> bool:
        level = route.filter.partition("/")[0]
        return bool(self._patterns) if level[:1] in (MANY, "+", "{") else self.may_match(level)


def _may_lead_to(route: RouteEntry, topic: str) -> bool:
    beginning, capture, _ = route.topic.partition("{")
    return topic.startswith(beginning) if capture else topic == beginning


class Renames:
    """What addresses are called on the other side: pairs of filters, the first that matches holds."""

    def __init__(self, pairs: Sequence[tuple[str, str]] = ()) -> None:
        """Raises ValueError that says what is wrong with one."""
        self._pairs = [(self._stem(source), self._stem(target)) for source, target in pairs]
        targets = [target for _, target in self._pairs]
        for number, target in enumerate(targets):
            for other in targets[:number]:
                if (target + "/").startswith(other + "/") or (other + "/").startswith(target + "/"):
                    raise ValueError(f"two renames lead to {target}{TAIL} and {other}{TAIL}: addresses would collide")

    @staticmethod
    def _stem(text: str) -> str:
        stem = text.removesuffix(TAIL)
        try:
            levels = parse_filter(text)
        except InvalidFilter as error:
            raise ValueError(str(error)) from None
        if stem == text or is_reserved(stem) or {"+", MANY, "..", "."} & set(levels[:-1]) or not is_address(stem):
            raise ValueError(f"{text!r} is no side of a rename: levels without wildcards, no `$` in front, no `..`, "
                             f"and {TAIL} at the end")
        return stem

    def rename(self, address: str) -> str:
        """What an address is called on the other side."""
        for source, target in self._pairs:
            if address == source or address.startswith(source + "/"):
                return target + address[len(source):]
        return address

    @property
    def any(self) -> bool:
        return bool(self._pairs)
