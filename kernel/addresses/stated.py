"""The header `address`: what a stored record says of where it was published. The last one counts, and it is the hub's.

Topic and key say the address of most records, and their records have no such header. A sender may call a header of its
own so; it is kept, and the hub's is put behind it, or the message would be read back at an address that its sender
perhaps may not publish to. (A Kafka producer's batches stay as they are: it takes the right to all of a topic to send
one, and a header that leads to another topic is not believed.)
"""
from __future__ import annotations

from typing import Any, Final

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.message import Headers, Placement
from gatehouse.kernel.records.record import add_header, encode_header, named_headers, varint

STATED: Final = varint(len(ADDRESS_HEADER)) + ADDRESS_HEADER
"""What encoded headers hold if one is called so, and perhaps if none is."""


def stated_in(headers: Headers) -> bytes | None:
    """What a record says of its address."""
    return next((value for name, value in reversed(headers) if name == ADDRESS_HEADER), None)


# decision 64: the hub's is put behind the sender's
def stated(message: tuple[Any, bytes | None, bytes, int, int], placement: Placement
           ) -> tuple[Any, bytes | None, bytes, int, int]:
    """A sender's message to a placement that says nothing else of its address than the hub does."""
    where, value, headers, attributes, timestamp_ms = message
    said = named_headers(headers, (ADDRESS_HEADER,))
    address = placement.address.encode()
    if not said or said[-1][1] == address:
        return message
    return where, value, add_header(headers, encode_header(ADDRESS_HEADER, address)), attributes, timestamp_ms
