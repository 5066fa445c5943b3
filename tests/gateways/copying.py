"""A pytest plugin: every door's port copies whatever crosses it, both ways, as a border between processes would.

    python -m pytest -p tests.gateways.copying tests/gateways/mqtt

Numbers, bytes, texts, values and errors go through pickle. Call-backs stay, and what they are called with is copied.
Something that only works because both sides hold the same object fails here: a copy is equal and never the same.

Leased groups, memberships and shared filters are handles (decision 149): the doors' side has a stand-in for each, by
which methods are called with copies, and members are told copies. A budget is the one object that both sides have.
"""
from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from gatehouse.gateways import contract
from gatehouse.gateways.door_side import Switchboard
from gatehouse.kernel.api import DoorSide, Heard
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.handing_out import Budget, HoldLimit, Membership
from gatehouse.kernel.groups.sharing import Shared
from gatehouse.kernel.message import Fetched, Piece, Place, Stored

copyreg.pickle(Stored, lambda stored: (Stored, (stored.token, stored.error, stored.append_ms, stored.positions)))
copyreg.pickle(Piece, lambda piece: (Piece, (piece.first_offset, piece.count, piece.whole, piece.data, piece.append_ms,
                                             piece.max_timestamp_ms, piece.first_id)))


def _fetched(next_offset: int, *fields: Any) -> Fetched:
    fetched = Fetched(*fields)
    fetched.next_offset = next_offset
    return fetched


copyreg.pickle(Fetched, lambda fetched: (_fetched, (
    fetched.next_offset, fetched.partition_id, fetched.error, fetched.log_start_offset, fetched.high_watermark,
    fetched.pieces)))
"""Compiled classes that are values: pickle does not see what they hold."""

crossed: list[int] = [0]
"""How many values have been copied."""


def copy(value: Any) -> Any:
    """The value as the other side gets it."""
    crossed[0] += 1
    return pickle.loads(pickle.dumps(value))


def across(value: Any) -> Any:
    """An argument: a call-back is called with copies, all else is one."""
    if not callable(value):
        return copy(value)

    def call_back(*arguments: Any) -> Any:
        return value(*[copy(argument) for argument in arguments])

    return call_back


class CopyingDoor:
    """A door as its port sees it."""

    def __init__(self, door: DoorSide) -> None:
        self._door = door

    def on_answers(self, answers: list[Stored]) -> Iterator[None]:
        return self._door.on_answers(copy(answers))

    def on_delivery(self, heard: list[Heard]) -> Iterator[None]:
        return self._door.on_delivery(copy(heard))

    def hearers(self, place: Place) -> tuple[str, int]:
        door, count = self._door.hearers(copy(place))
        return door, count


class CopyingPort:
    """A port as its door sees it."""

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if name == "groups":                 # a part of the port, with calls of its own
            return CopyingPort(attribute)
        return self._call(attribute) if callable(attribute) else copy(attribute)

    @staticmethod
    def _call(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return copy(method(*[across(argument) for argument in arguments]))
            except Exception as error:
                raise copy(error) from None

        return call


class CopyingPorts:
    """Opens ports that copy."""

    def __init__(self, ports: Any) -> None:
        self._ports = ports

    def port(self, door: DoorSide) -> Any:
        return CopyingPort(self._ports.port(CopyingDoor(door)))


class MemberSide:
    """A member, or the owner of something that was told, as the kernel sees it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def on_leased(self, messages: Any) -> None:
        self._inner.on_leased(copy(messages))

    def on_gone(self) -> None:
        self._inner.on_gone()

    def on_stored(self, stored: list[Stored]) -> Any:
        tokens = [answer.token for answer in stored]          # a token is the door's own, and never looked at
        answers = [Stored(token, copy(answer.error), answer.append_ms, copy(answer.positions))
                   for token, answer in zip(tokens, stored, strict=True)]
        return self._inner.on_stored(answers)


handles: list[int] = [0]
"""How many groups and memberships were handed over as handles."""


class Handled:
    """A group, a membership or a shared filter, as a door holds it: methods and plain values, and nothing else."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        handles[0] += 1

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        return called(attribute) if callable(attribute) else outward(attribute)


def outward(value: Any) -> Any:
    """What a group's call returns."""
    return Handled(value) if isinstance(value, (LeasedGroup, Membership, Shared)) else copy(value)


def inward(value: Any) -> Any:
    """What a group's call is given."""
    if isinstance(value, Handled):
        return value._inner
    if isinstance(value, HoldLimit):
        return HoldLimit(value.after_ms, value.on_overdue, None if value.take_back is None else across(value.take_back))
    if isinstance(value, Budget):
        return value
    if hasattr(value, "on_leased") or hasattr(value, "on_stored"):
        return MemberSide(value)
    return across(value)


def called(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a group, or of all groups, as a door calls it."""
    def call(*arguments: Any, **named: Any) -> Any:
        token = {"token": named.pop("token")} if "token" in named else {}
        try:
            return outward(method(*[inward(argument) for argument in arguments],
                                  **{name: inward(argument) for name, argument in named.items()}, **token))
        except Exception as error:
            raise copy(error) from None

    return call


class CopyingGroups:
    """`GroupsPort` as doors see it."""

    AS_IT_IS = {"bind_chooser", "unbind_chooser", "follow_circuits"}          # called back with placements

    def __init__(self, groups: Any) -> None:
        self._groups = groups

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._groups, name)
        return attribute if name in self.AS_IT_IS or not callable(attribute) else called(attribute)


class CopyingHub:
    """`HubPort` as doors see it: its groups copy, and all else is as it is."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub

    def __getattr__(self, name: str) -> Any:
        return CopyingGroups(self._hub.groups) if name == "groups" else getattr(self._hub, name)


def _open_services(services: Any, before: Callable[[Any], None] = contract.Services.__post_init__) -> None:
    before(services)
    services.kernel = CopyingHub(services.kernel)


contract.Services.__post_init__ = _open_services              # type: ignore[method-assign]


def _copying_switchboard(ports: Any, transactions: Any, door: str = "") -> Switchboard:
    return Switchboard(CopyingPorts(ports), transactions, door)


contract.Switchboard = _copying_switchboard                   # type: ignore[misc, assignment]


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """Nothing is proved where nothing has crossed."""
    assert exitstatus or crossed[0] > 1000, "the doors under test have no port"
    assert exitstatus or handles[0], "and hold no group"
