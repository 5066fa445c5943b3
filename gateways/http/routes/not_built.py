"""Calls that the interface names and this hub does not have yet: refused by name, so that nobody takes a 404 for a
typo."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.http.declaring import Declared, declare
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered

NOT_BUILT: Final[tuple[tuple[str, str, str], ...]] = ()
"""(method, pattern, what it would be)."""


def _refusing(what: str) -> Declared:
    """The handler of one such call; in no document."""
    @declare("hub", answers=(), public=True)
    async def refuse(door: Door, call: Call) -> Answered:
        raise Refusal("not_built", f"{what}: not built yet")
    return refuse


ROUTES: Routes = tuple((method, pattern, _refusing(what)) for method, pattern, what in NOT_BUILT)
