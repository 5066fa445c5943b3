"""What of a message STOMP carries, and how its clients write an address. Pure."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.addresses import Spelling
from gatehouse.gateways.properties.envelope import Column, Shape, header_cell
from gatehouse.kernel.addresses.address import check_address

FRAME_HEADERS = frozenset(("destination", "receipt", "content-length", "transaction", "subscription", "message-id",
                           "ack"))
"""What a frame says of itself, and no message has."""


def show_header(name: str, value: bytes | None) -> tuple[str, Any] | None:
    """A user's header. Null, bytes that are no text and names of the frame's own cannot be carried."""
    try:
        return None if value is None or name in FRAME_HEADERS else (name, value.decode())
    except UnicodeDecodeError:
        return None


STOMP = Column("stomp", "STOMP 1.2", {
    "id": (header_cell("id"),),
    "key": (header_cell("key"),),
    "content-type": (header_cell("content-type"),),
    "content-encoding": (header_cell("content-encoding"),),
    "correlation-id": (header_cell("correlation-id"),),
    "reply-to": (header_cell("reply-to", Shape.ADDRESS),),
    "expires-at": (header_cell("expires-at"),),
    "timestamp": (header_cell("timestamp"),),
    "priority": (header_cell("priority"),),
    "retain": (header_cell("retain"),),
    "traceparent": (header_cell("traceparent"),),
}, show_header=show_header, header_limits="values are UTF-8 text and not null; no names of the frame's own headers")


def address_of(destination: str) -> str:
    """The address of a destination. Raises InvalidAddress."""
    address = destination.removeprefix("/")
    check_address(address)
    return address


SPELLING = Spelling("STOMP", address_of, lambda place: ["/" + place.address],
                    lambda place: {"destination": "/" + place.address})
