"""How AMQP spells an address: an exchange and a routing key. Pure.

- In a routing key a `.` is %2E, and a `%` before two hex digits is %25. A key that was not written so (`50%41`)
  is read as if it had been.
- An exchange's name is one level whatever is in it; its dots stay. The default exchange writes the queue it names:
  `$queue/NAME`.
- What an exchange and routing key cannot say carries `x-address`, believed only if it is spelled just so.
"""
from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from gatehouse.gateways.addresses import QUEUE_LEVEL, Place, Spelling
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, check_address, escape, is_address, unescape
from gatehouse.kernel.addresses.filters import MANY, ONE

TOPIC_EXCHANGE: Final = "amq.topic"
DEFAULT_EXCHANGE: Final = ""
MAX_SHORTSTR_BYTES: Final = 255         # AMQP 0-9-1, 4.2.5.3: a short string has one length octet
CUT_HASH_BYTES: Final = 8

WORD_ESCAPES: Final = re.compile(r"[/+#\0]|%((?:25)*)([0-9A-Fa-f]{2})?")
LEVEL_SPECIALS: Final = re.compile(r"\.|%((?:25)*)([0-9A-Fa-f]{2})?")
HELD_BY_WORDS: Final = {"2F": "/", "2B": "+", "23": "#"}


class AmqpName(NamedTuple):
    """Where an AMQP client finds an address."""

    exchange: str
    routing_key: str
    """At most 255 bytes of UTF-8."""

    x_address: str | None
    """The value of the header `x-address`, where exchange and routing key do not say it all."""


def amqp_whole(address: str) -> AmqpName:
    """The address on `amq.topic`."""
    return _amqp_name(TOPIC_EXCHANGE, routing_key_of(address), address)


def amqp_by_exchange(address: str) -> AmqpName | None:
    """The address on the exchange that its first level names; None where there can be no such exchange."""
    first, slash, rest = address.partition("/")
    if first == QUEUE_LEVEL and slash and "/" not in rest:
        queue = unescape(rest, LEVEL_ESCAPES)
        return AmqpName(DEFAULT_EXCHANGE, queue, None) if _fits(queue) else None
    exchange = unescape(first, LEVEL_ESCAPES)
    if exchange in (DEFAULT_EXCHANGE, TOPIC_EXCHANGE) or not _fits(exchange):
        return None
    return _amqp_name(exchange, routing_key_of(rest) if slash else "", address)


def address_of_amqp(exchange: str, routing_key: str, x_address: str | None = None) -> str:
    """The address of what was published there. Raises InvalidAddress for lone surrogates, and nothing else.

    `x_address` is that header's value; it is believed if it is spelled as this exchange and routing key.
    """
    if x_address and is_address(x_address):
        for spelled in (amqp_whole(x_address), amqp_by_exchange(x_address)):
            if spelled is not None and spelled[:2] == (exchange, routing_key):
                return x_address
    if exchange == DEFAULT_EXCHANGE:
        address = f"{QUEUE_LEVEL}/{escape(routing_key, LEVEL_ESCAPES)}"
    elif exchange == TOPIC_EXCHANGE and routing_key:
        address = "/".join(level_of_word(word) for word in routing_key.split("."))
    else:
        levels = [level_of_word(word) for word in routing_key.split(".")] if routing_key else []
        address = "/".join([escape(exchange, LEVEL_ESCAPES), *levels])
    check_address(address)
    return address


def filter_of_binding(exchange: str, pattern: str) -> tuple[str, ...]:
    """The filter that matches the addresses of a binding on a topic exchange: `*` is ONE, `#` is MANY."""
    levels = [_level_of_pattern(word) for word in pattern.split(".")] if pattern else []
    if exchange == TOPIC_EXCHANGE and levels:
        return tuple(levels)
    return (escape(exchange, LEVEL_ESCAPES), *levels)


def routing_key_of(text: str) -> str:
    """Levels of an address as the words of a routing key, however long it becomes."""
    return ".".join(word_of_level(level) for level in text.split("/"))


def word_of_level(level: str) -> str:
    """A level of an address as a word of a routing key; `level_of_word` turns it back."""
    return LEVEL_SPECIALS.sub(_word_part, level) if "." in level or "%" in level else level


def level_of_word(word: str) -> str:
    """A word of a routing key as a level of an address. Total; several spellings of a word may be one level."""
    return WORD_ESCAPES.sub(_level_part, word)


def _word_part(match: re.Match[str]) -> str:
    text, depth, code = match.group(), match.group(1), match.group(2)
    if text == ".":
        return "%2E"
    if code in HELD_BY_WORDS:                  # %2F is a slash here; %252F means the text %2F and is written so in both
        return text if depth else HELD_BY_WORDS[code]
    return text if text == "%" else "%25" + text[1:]


def _level_part(match: re.Match[str]) -> str:
    text, depth, code = match.group(), match.group(1), match.group(2)
    if text in LEVEL_ESCAPES:
        return escape(text, LEVEL_ESCAPES)
    if code in HELD_BY_WORDS:
        return text if depth else "%25" + code
    if code is None:                           # a '%' with no two hex digits after it but, perhaps, some 25
        return "%" + text[3:] if len(depth) > 2 else text
    if depth:
        return "%" + text[3:]
    return "." if code == "2E" else text


def _level_of_pattern(word: str) -> str:
    if word == "*":
        return ONE
    return MANY if word == "#" else level_of_word(word)


def _amqp_name(exchange: str, routing_key: str, address: str) -> AmqpName:
    if _fits(routing_key):
        return AmqpName(exchange, routing_key, None if address_of_amqp(exchange, routing_key) == address else address)
    mark = "~" + blake2b(routing_key.encode(), digest_size=CUT_HASH_BYTES).hexdigest()
    kept = routing_key.encode()[:MAX_SHORTSTR_BYTES - len(mark)].decode(errors="ignore")     # never half a character
    return AmqpName(exchange, kept + mark, address)


def _fits(text: str) -> bool:
    return len(text.encode()) <= MAX_SHORTSTR_BYTES


# --- for people -------------------------------------------------------------------------------------------------------

def _read(text: str) -> str:
    """`EXCHANGE/ROUTING.KEY`; without a slash the key on `amq.topic`."""
    exchange, slash, routing_key = text.partition("/")
    return address_of_amqp(exchange, routing_key) if slash else address_of_amqp(TOPIC_EXCHANGE, text)


def _names(place: Place) -> list[AmqpName]:
    return [name for name in (amqp_whole(place.address), amqp_by_exchange(place.address)) if name is not None]


def _line(name: AmqpName) -> str:
    exchange = f"exchange {name.exchange}" if name.exchange else "the default exchange"
    more = "" if name.x_address is None else ", the address in the header x-address"
    return f"{exchange}, routing key '{name.routing_key}'{more}"


def _document(place: Place) -> list[dict[str, Any]]:
    return [name._asdict() for name in _names(place)]


SPELLING: Final = Spelling("AMQP", _read, lambda place: [_line(name) for name in _names(place)], _document)
