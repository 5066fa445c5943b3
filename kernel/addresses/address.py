"""Addresses: one name space for every door. What one may be, and where it is stored when no route says otherwise.

An address is text: levels joined by `/`, as in `plant/line1/temp`. An empty level is a level.

    address            topic      key           rule
    plant/line1/temp   plant      line1/temp    the first level is the topic, the rest is the key
    plant              plant      none
    machine 3/temp     refused                  the first level is no legal topic name; a route may give it a topic
    $anything          refused                  belongs to the hub; only a route may give it a topic

Rules kept here:
- A level cannot hold `/`, `+`, `#` or NUL; it holds them as %2F, %2B, %23 and %00 (capitals). `escape` and `unescape`
  are each other's inverse for every text: a text that already reads `%2B` becomes `%252B`, and all other uses of `%`
  stay as they are. So the number of levels never changes and every address can be turned back.
- Topic and key do not say every address (`plant/` has the key of `plant`); such an address travels in the message's
  `address` header. `kernel.addresses.routes` decides when, and when to believe it.
"""
from __future__ import annotations

import re
from typing import Final

from gatehouse.kernel.errors import InvalidAddress, KernelError, Unroutable

MAX_ADDRESS_BYTES: Final = 65535      # UTF-8; an MQTT string has a 16-bit length
MAX_LEVELS: Final = 512               # holds every 255-byte AMQP routing key; bounds the work of one match
MAX_TOPIC_CHARACTERS: Final = 249     # Kafka: the name plus "-" and a partition number must fit a file name

UNROUTED: Final = "unrouted"
"""The topic of what has no other: where a route says so, or a topic has gone. There the key is the whole address."""

ADDRESS_HEADER: Final = b"address"
"""Name of the header that carries an address which topic and key cannot express."""

KEY_ESCAPES: Final = "+#\0"
"""What a Kafka key can hold and an address cannot; `/` separates levels in both."""

LEVEL_ESCAPES: Final = "/+#\0"
"""What a door can hold inside one level and an address cannot."""

SHOWN_CHARACTERS: Final = 60           # of a name in the text of a refusal

TOPIC_NAME: Final = re.compile(rf"(?!\.{{1,2}}\Z)(?!__)[A-Za-z0-9._-]{{1,{MAX_TOPIC_CHARACTERS}}}")


def check_address(address: str) -> None:
    """Raises InvalidAddress if this text is no address: empty, too long, with a wildcard, NUL or a lone surrogate."""
    if "\0" in address or "+" in address or "#" in address:
        raise InvalidAddress("an address holds no NUL, '+' or '#'")
    check_size(address, "an address", InvalidAddress)


def check_size(text: str, what: str, refusal: type[KernelError]) -> None:
    """Raises `refusal` if this text, `what` it is meant to be, is empty, not UTF-8, too long or of too many levels."""
    if not text:
        raise refusal(f"{what} has at least one character")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise refusal(f"{what} is valid UTF-8") from None
    if size_bytes > MAX_ADDRESS_BYTES:
        raise refusal(f"{what} has at most {MAX_ADDRESS_BYTES} bytes, this one has {size_bytes}")
    if text.count("/") >= MAX_LEVELS:
        raise refusal(f"{what} has at most {MAX_LEVELS} levels")


def is_address(address: str) -> bool:
    """Whether `check_address` has nothing against it."""
    try:
        check_address(address)
    except InvalidAddress:
        return False
    return True


def is_topic_name(name: str) -> bool:
    """Whether this is a legal topic name: Kafka's rule, without names that begin with two underscores."""
    return TOPIC_NAME.fullmatch(name) is not None


def is_reserved(address: str) -> bool:
    """Whether this address belongs to the hub: its first level begins with `$`."""
    return address.startswith("$")


def levels_of(address: str) -> tuple[str, ...]:
    """`a//b` has three levels; never empty."""
    return tuple(address.split("/"))


def split_address(address: str) -> tuple[str, bytes | None]:
    """(topic, key) by the default rule, for an address that `check_address` has passed.

    Raises InvalidAddress for `$...`, which nobody's use creates; Unroutable where the first level can be no topic.
    """
    if is_reserved(address):
        raise InvalidAddress("addresses that begin with '$' belong to the hub")
    topic, slash, rest = address.partition("/")
    if topic == UNROUTED:
        raise Unroutable(f"the topic {UNROUTED!r} is for what a route sends there")
    if not is_topic_name(topic):
        raise Unroutable(f"the first level, {topic[:SHOWN_CHARACTERS]!r}, is no topic name (letters, digits, '.', '_', "
                         "'-'), and no route gives the address a topic")
    return topic, key_of_text(rest) if slash else None


def join_address(topic: str, key: bytes | None) -> str:
    """The address of a record by the default rule; total. A key that can be no part of an address is left out.

    In the topic `unrouted` the key is the whole address; `$...` is not believed there either.
    """
    text = text_of_key(key)
    if not text:
        return topic
    if topic == UNROUTED and not is_reserved(text) and is_address(text):
        return text
    address = f"{topic}/{text}"
    return address if is_address(address) else topic


def text_of_key(key: bytes | None) -> str:
    """A key as the part of an address: escaped; "" for a key that is null, empty or not UTF-8."""
    if not key:
        return ""
    try:
        return escape(key.decode(), KEY_ESCAPES)
    except UnicodeDecodeError:
        return ""


def key_of_text(text: str) -> bytes:
    """The key that reads as this part of an address; `text_of_key` turns it back."""
    return unescape(text, KEY_ESCAPES).encode()


def escape(text: str, characters: str) -> str:
    """Replaces these characters by their percent form, and doubles the escape of what reads like one."""
    if SUSPECT[characters].search(text) is None:         # nearly every text, at a third of the cost
        return text
    return ESCAPABLE[characters].sub(_escaped, text)


def unescape(text: str, characters: str) -> str:
    """The inverse of `escape`, for text that holds none of these characters."""
    if "%" not in text:
        return text
    return ESCAPED[characters].sub(_unescaped, text)


def _escaped(match: re.Match[str]) -> str:
    characters = match.group()
    return "%25" + characters[1:] if len(characters) > 1 else f"%{ord(characters):02X}"


def _unescaped(match: re.Match[str]) -> str:
    escaped = match.group()
    return "%" + escaped[3:] if escaped.startswith("%25") else chr(int(escaped[1:], 16))


def _codes(characters: str) -> str:
    return "%(?:25)*(?:" + "|".join(f"{ord(character):02X}" for character in characters) + ")"


SUSPECT: Final = {characters: re.compile(f"[%{characters}]") for characters in (KEY_ESCAPES, LEVEL_ESCAPES)}
ESCAPED: Final = {characters: re.compile(_codes(characters)) for characters in (KEY_ESCAPES, LEVEL_ESCAPES)}
ESCAPABLE: Final = {characters: re.compile(f"[{characters}]|{_codes(characters)}")
                    for characters in (KEY_ESCAPES, LEVEL_ESCAPES)}
