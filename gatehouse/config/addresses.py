"""`HOST:PORT`, as the configuration and the command line say it. Pure."""
from __future__ import annotations

from typing import Final

EVERYWHERE: Final = {"", "*", "0.0.0.0", "::"}


def split_address(text: str) -> tuple[str, int]:
    """Host ("": everywhere) and port. Raises ValueError that says what it should look like."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, [{host}]:{port}")
    return "" if host == "*" else host, int(port)
