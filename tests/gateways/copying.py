"""A pytest plugin: every door's port copies whatever crosses it, both ways, as a border between processes would.

    python -m pytest -p tests.gateways.copying tests/gateways/mqtt

Numbers, bytes, texts, values and errors go through pickle. Call-backs stay, and what they are called with is copied.
Something that only works because both sides hold the same object fails here: a copy is equal and never the same.
"""
from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from gatehouse.gateways import contract
from gatehouse.gateways.switchboard import Switchboard
from gatehouse.kernel.api import DoorSide, Heard
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


def _copying_switchboard(ports: Any, transactions: Any, door: str = "") -> Switchboard:
    return Switchboard(CopyingPorts(ports), transactions, door)


contract.Switchboard = _copying_switchboard                   # type: ignore[misc, assignment]


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """Nothing is proved where nothing has crossed."""
    assert exitstatus or crossed[0] > 1000, "the doors under test have no port"
