"""Who asks, for the audit topic."""
from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.http.door import NAME

if TYPE_CHECKING:
    from aiohttp import web

    from gatehouse.gateways.http.server import DoorProtocol


def author(request: web.Request, name: str) -> Author:
    """This user, by this request's connection."""
    return Author(name, NAME, cast("DoorProtocol", request.protocol).peer)
