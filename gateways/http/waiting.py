"""A call that waits, as admission sees it: it is woken when its principal ends or its rights change."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gatehouse.gateways.admission.errors import NotAuthenticated

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.principal import Principal


class Guest:
    """Admission's `RegisteredSession` of one call. `check` is to be asked after every wait."""

    def __init__(self, wake: Callable[[], None], require: Callable[[], object]) -> None:
        self._wake = wake
        self._require = require
        self._ended = ""

    def on_principal_ended(self, reason: str) -> None:
        self._ended = reason
        self._wake()

    def on_rights_changed(self) -> None:
        self._wake()

    def check(self) -> None:
        """Raises NotAuthenticated, or what `require` raises."""
        if self._ended:
            raise NotAuthenticated(f"the login has ended while the call waited: {self._ended}")
        self._require()


@contextmanager
def registered(admission: Admission, door: str, principal: Principal, wake: Callable[[], None],
           require: Callable[[], object]) -> Iterator[Guest]:
    """A registration for as long as the call waits. `require` raises where the right to what is waited for is gone."""
    guest = Guest(wake, require)
    registration = admission.register(principal, door, guest)
    try:
        yield guest
    finally:
        registration.leave()
