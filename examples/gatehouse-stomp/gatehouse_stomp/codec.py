"""STOMP frames: a command, headers, an empty line, a body, NUL. Pure.

    SEND                        the command
    destination:/plant/temp     headers; the first of a name counts
    content-length:4            else the body ends at the first NUL
                                an empty line
    21.5 NUL                    the body
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from gatehouse.gateways.door_session import ClientFault

MAX_HEAD_BYTES: Final = 16 << 10
MAX_HEADERS: Final = 100
_ESCAPES: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_UNESCAPED: Final = {value: key for key, value in _ESCAPES.items()}
_SPECIAL: Final = re.compile(r"[\\\r\n:]")
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


class Frame(NamedTuple):
    """One frame of a client."""

    command: str
    headers: dict[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """A header that must be there. Raises ClientFault."""
        if name not in self.headers:
            raise ClientFault(f"{self.command} without the header {name}")
        return self.headers[name]


def decode(data: bytes, at: int, max_body_bytes: int) -> tuple[Frame | None, int]:
    """(the frame at this index or None where it is not all there, where the next one begins). Raises ClientFault."""
    while data[at:at + 1] in (b"\n", b"\r"):                       # a client's heart-beat, or the end of a line
        at += 1
    head, separator, end = _head_end(data, at)
    if not separator:
        if len(data) - at > MAX_HEAD_BYTES:
            raise ClientFault(f"a head has at most {MAX_HEAD_BYTES} bytes")
        return None, at
    command, headers = _decode_head(head)
    length = headers.get("content-length")
    if length is None:
        stop = data.find(b"\0", end)
    elif length.isascii() and length.isdigit() and len(length) < 12:
        stop = end + int(length)
    else:
        raise ClientFault("content-length is a number")
    if (stop if stop >= 0 else len(data)) - end > max_body_bytes:
        raise ClientFault(f"a body has at most {max_body_bytes} bytes")
    if stop < 0 or stop >= len(data):
        return None, at
    if data[stop]:
        raise ClientFault("a body that does not end with NUL")
    return Frame(command, headers, data[end:stop]), stop + 1


def _head_end(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    empty_line = _HEAD_END.search(data, at, at + MAX_HEAD_BYTES)
    return (b"", b"", at) if empty_line is None else (data[at:empty_line.start()], empty_line.group(), empty_line.end())


def _decode_head(head: bytes) -> tuple[str, dict[str, str]]:
    try:
        command, *lines = head.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ClientFault("a head that is not UTF-8") from None
    if len(lines) > MAX_HEADERS:
        raise ClientFault(f"a frame has at most {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ClientFault("a header without a colon")
        if command not in ("CONNECT", "STOMP"):                    # STOMP 1.2, value encoding: these escape nothing
            name, value = _unescape(name), _unescape(value)
        headers.setdefault(name, value)
    return command, headers


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match.group() not in _UNESCAPED:
            raise ClientFault(f"{match.group()} is no escape")
        return _UNESCAPED[match.group()]

    return _ESCAPED.sub(replaced, text) if "\\" in text else text


def encode(command: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> bytes:
    """One frame of the hub's. CONNECTED escapes nothing."""
    pairs = list(headers)
    if command != "CONNECTED":
        pairs = [(_escape(name), _escape(value)) for name, value in pairs]
    head = "".join(f"{name}:{value}\n" for name, value in [*pairs, ("content-length", str(len(body)))])
    return f"{command}\n{head}\n".encode() + body + b"\0"


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda match: _ESCAPES[match.group()], text)
