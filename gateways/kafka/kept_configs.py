"""Settings that this door keeps in the hub, a JSON object for each thing that has any: they hold once they are durable.

What is on its way to the disk is what the next change begins from, so two changes that come together are both made. A
change that the disk refuses leaves everything as it was.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.message import Stored, tell

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.kernel.message import Owner

Name = tuple[str, str]
"""(tenant, name)"""

NOTHING: Final[Mapping[str, str]] = {}


class Change(NamedTuple):
    """The token of settings on their way to the disk, and who else is to be told."""

    name: Name
    configs: Mapping[str, str]
    owner: Owner | None
    token: object


class KeptConfigs:
    """The settings in one space of definitions, by tenant and name."""

    def __init__(self, services: Services, space: str) -> None:
        self._kernel = services.kernel
        self._space = space
        self._of: dict[Name, Mapping[str, str]] = {}
        self._coming: dict[Name, list[Change]] = {}
        self._first: set[Name] = set()       # those that have nothing yet, and will have

    def load(self, name: Name, value: bytes) -> None:
        """What the hub had when the door opened."""
        self._of[name] = json.loads(value)

    def get(self, name: Name) -> Mapping[str, str]:
        """What holds."""
        return self._of.get(name, NOTHING)

    def latest(self, name: Name) -> Mapping[str, str]:
        """What will hold when everything that was changed is durable."""
        coming = self._coming.get(name)
        return coming[-1].configs if coming else self.get(name)

    def names(self) -> set[Name]:
        """All that have settings, or will have."""
        return {*self._of, *self._first}

    def __len__(self) -> int:
        """How many `names` there are."""
        return len(self._of) + len(self._first)

    def put(self, name: Name, configs: Mapping[str, str], owner: Owner | None = None, token: object = None) -> None:
        """Set these, and no others; the owner is told when they hold. Raises Stopping."""
        change = Change(name, dict(configs), owner, token)
        value = json.dumps(change.configs).encode() if configs else None
        self._kernel.put_definition(self._space, name[1], value, name[0], self, change)
        self._coming.setdefault(name, []).append(change)
        self._look(name)

    def on_stored(self, stored: list[Stored]) -> Iterator[None] | None:
        """Changes are durable, or are not; they come in their order."""
        for answer in stored:
            change = answer.token
            assert isinstance(change, Change), "nothing else is told"
            coming = self._coming[change.name]
            assert coming[0] is change, "in their order"
            del coming[0]
            if not coming:
                del self._coming[change.name]
            if answer.error is None:
                self._of.pop(change.name, None)
                if change.configs:
                    self._of[change.name] = change.configs
            self._look(change.name)
            if change.owner is not None:
                tell(change.owner, [Stored(change.token, answer.error, answer.append_ms, answer.positions)])
        return None

    def _look(self, name: Name) -> None:
        """Whether it will have its first settings, after something has changed."""
        if name not in self._of and self.latest(name):
            self._first.add(name)
        else:
            self._first.discard(name)
