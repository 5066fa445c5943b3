"""What a reload does to doors' listeners, and what the log says of it."""
from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from gatehouse.config.config import Door
from gatehouse.gateways.contract import CONTRACT, GatewaySpec, Listen
from gatehouse.gateways.tls.tls import TlsFault, TlsSettings
from gatehouse.serve import relisten

PLAIN, OTHER = Listen("127.0.0.1", 1), Listen("127.0.0.1", 2)
SESSION: Any = print
TLS = Listen("127.0.0.1", 1, TlsSettings("c", "k"))


class Running:
    """A door that is open."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[Listen, ...]] = []

    async def relisten(self, listens: Sequence[Listen]) -> tuple[list[str], list[str]]:
        self.asked.append(tuple(listens))
        if self.error is not None:
            raise self.error
        return (["127.0.0.1:2"], []) if OTHER in listens else ([], [])

    def addresses(self) -> list[str]:
        return []


def door(*listen: Listen) -> Door:
    return Door(GatewaySpec(name="mqtt", contract=CONTRACT, door=1, config=dict, default_listen=(), session=SESSION),
                listen, None)


def run(running: object, old: Door, new: Door, caplog: pytest.LogCaptureFixture) -> tuple[tuple[Listen, ...], str]:
    """Where the door listens then, and every line that is said, refusals among them."""
    caplog.set_level(logging.INFO)
    refused: list[str] = []
    found, = asyncio.run(relisten({"mqtt": running}, [old], [new], refused.append))
    return found.listen, "\n".join([*refused, *(record.getMessage() for record in caplog.records)])


@pytest.mark.parametrize(("new", "said"), [
    ((PLAIN, OTHER), "reload: gateways.mqtt listens on 127.0.0.1:2"),
    ((TLS,), "reload: gateways.mqtt uses its TLS files as they are now for new connections"),
    ((Listen("127.0.0.1", 1, advertise="h:1"),), "reload: gateways.mqtt.listen changed and is in effect for new "
                                                 "connections"),
])
def test_what_changed_is_taken_over_and_said(new: tuple[Listen, ...], said: str,
                                             caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    assert run(running, door(PLAIN), door(*new), caplog) == (new, said)
    assert running.asked == [new]


def test_files_may_have_changed_where_the_table_has_not(caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    run(running, door(TLS), door(TLS), caplog)
    assert running.asked == [(TLS,)]


def test_nothing_to_do_without_tls(caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    assert run(running, door(PLAIN), door(PLAIN), caplog) == ((PLAIN,), "") and running.asked == []


@pytest.mark.parametrize(("error", "said"), [
    (TlsFault("key", "k is not the key of c"),
     "gateways.mqtt.tls.key: k is not the key of c; it goes on with what it had"),
    (OSError(errno.EADDRINUSE, "taken"), "gateways.mqtt cannot listen on 127.0.0.1:1, 127.0.0.1:2: "
                                         "Address already in use; it goes on as it was"),
])
def test_what_fails_leaves_everything_as_it_was(error: Exception, said: str, caplog: pytest.LogCaptureFixture) -> None:
    assert run(Running(error), door(TLS), door(TLS, OTHER), caplog) == ((TLS,), said)


def test_a_door_that_the_new_configuration_lacks_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    running: Any = Running()
    found, = asyncio.run(relisten({"mqtt": running}, [door(PLAIN)], [], pytest.fail))
    assert found.listen == (PLAIN,) and running.asked == []
