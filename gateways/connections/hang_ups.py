"""Whether a peer has hung up, asked of the system: the event loop does not hear it of a peer that is not read."""
from __future__ import annotations

import asyncio
import select
from typing import Final

# Linux tells of a peer that sends no more, even where it has sent something before that was not read yet; elsewhere
# only a reset is seen.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer of a transport has hung up; False where the system cannot tell."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return transport.is_closing()
    poll = select.poll()
    poll.register(sock.fileno(), _HUNG_UP)
    return bool(poll.poll(0))
