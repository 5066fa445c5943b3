"""Who asks, for the audit topic."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.http.door import NAME

if TYPE_CHECKING:
    from gatehouse.gateways.http.request import Call


def author(call: Call, name: str) -> Author:
    """This user, by this request's connection."""
    return Author(name, NAME, call.session.peer)
