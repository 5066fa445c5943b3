"""How HTTP spells an address: a path, percent-encoded, or a query. Pure."""
from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from gatehouse.gateways.addresses import Place, Spelling
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, check_address, escape, unescape
from gatehouse.kernel.errors import InvalidAddress

PUBLISH_PATH: Final = "/v1/publish/"
ESCAPED_SLASH: Final = re.compile("%2F", re.I)
QUERY_SAFE: Final = "/:@!$*,;()"
PATH_SAFE: Final = "!$&'()*,;=:@"       # RFC 3986, 3.3: pchar, without '+', which some read as a space


def http_path(address: str) -> str:
    """The address as a path, percent-encoded, to come after `/v1/publish/`.

    Many clients fold the segments `.` and `..` before they send them; such an address is said by `?key=` instead.
    """
    return "/".join(quote(unescape(level, LEVEL_ESCAPES), safe=PATH_SAFE) for level in address.split("/"))


def address_of_http(path: str) -> str:
    """The address of a raw path after `/v1/publish/`, not yet percent-decoded. Raises InvalidAddress."""
    try:
        levels = [escape(unquote_to_bytes(segment).decode(), LEVEL_ESCAPES) for segment in path.split("/")]
    except UnicodeError:
        raise InvalidAddress("a path is percent-encoded UTF-8") from None
    address = "/".join(levels)
    check_address(address)
    return address


def http_target(address: str) -> str:
    """Where one message is posted to this address: as a path, or in the query what a path may not say."""
    path = http_path(address)
    if ESCAPED_SLASH.search(path.partition("/")[0]):
        return f"/v1/publish?address={quote(address, safe=QUERY_SAFE)}"
    return f"/v1/publish/{path}"


def check_http_path(path: str) -> None:
    """Raises InvalidAddress for a raw path after `/v1/publish/` that hardly is what its sender means: a wildcard, or a
    whole address that a client has escaped as if it were one level."""
    if "+" in path or "#" in path:
        raise InvalidAddress("an address to publish to holds no wildcard; a '+' or '#' that is part of a level is "
                             "written %2B or %23")
    if ESCAPED_SLASH.search(path.partition("/")[0]):
        raise InvalidAddress("the first level holds an escaped slash: write the slashes of an address as they are, or "
                             "say it in the query, as in POST /v1/publish?address=plant/line1/temp")


def http_topic_target(topic: str, key: bytes | None) -> str:
    """The other path that publishes there: by topic and, in the query, key."""
    target = f"/v1/topics/{topic}/messages"
    return target if key is None else f"{target}?key={quote(key, safe=QUERY_SAFE)}"


# --- for people -------------------------------------------------------------------------------------------------------

def _read(text: str) -> str:
    """A path, with or without `/v1/publish/` before it."""
    path = text.removeprefix(PUBLISH_PATH)
    check_http_path(path)
    return address_of_http(path)


def _targets(place: Place) -> list[str]:
    targets = [http_target(place.address)]
    if place.topic is not None and not place.needs_header:
        targets.append(http_topic_target(place.topic, place.key))
    return targets


SPELLING: Final = Spelling("HTTP", _read, _targets, _targets)
