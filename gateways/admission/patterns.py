"""Patterns of rights: which addresses, topics and groups a rule speaks of. Pure.

    address        levels with `+` (one) and `#` (any number, none included), `#` anywhere: `plant/+/temp`, `plant/#`
    topic, group,
    client         a name, or the beginning of names followed by `*`: `orders`, `orders.*`, `*`

`{user}` and `{client_id}` stand for whoever asks. Two questions are asked of an address pattern and a filter:

    covers     every address of the filter is one of the pattern's: an allow must cover what is wanted
    overlaps   some address is both the filter's and the pattern's: a deny that overlaps what is wanted forbids it

As everywhere, a leading wildcard matches no address that begins with `$`, and an address has at least one level.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, escape
from gatehouse.kernel.addresses.filters import MANY, ONE, parse_filter
from gatehouse.kernel.errors import InvalidFilter

USER: Final = "{user}"
CLIENT_ID: Final = "{client_id}"
ANY_NAME: Final = "*"
MAX_NAME_CHARACTERS: Final = 255      # of a topic's or group's pattern

Levels = tuple[str, ...]


class InvalidPattern(ValueError):
    """A pattern that means nothing; the text says why."""


def parse_address_pattern(text: str) -> Levels:
    """The levels of an address pattern, placeholders still in it. Raises InvalidPattern."""
    try:
        return parse_filter(text)
    except InvalidFilter as error:
        raise InvalidPattern(f"{text[:80]!r} is no pattern of addresses: {error}") from None


def check_name_pattern(text: str) -> None:
    """Raises InvalidPattern for a text that is no name and no beginning of names followed by `*`."""
    if not text or len(text) > MAX_NAME_CHARACTERS or "\0" in text:
        raise InvalidPattern(f"a name's pattern has 1 to {MAX_NAME_CHARACTERS} characters and no NUL")
    if ANY_NAME in text[:-1]:
        raise InvalidPattern(f"{text[:80]!r}: '*' stands at the end, for whatever follows")


def speaks_of_client(text: str) -> bool:
    return CLIENT_ID in text


def escaped(value: str) -> str:
    """A user's name or client id as a level: what would mean something else in a pattern is percent-encoded.

    So is a leading `$`: whoever chooses a client id must not get at the hub's own addresses.
    """
    text = escape(value, LEVEL_ESCAPES).replace("*", "%2A")
    return "%24" + text[1:] if text.startswith("$") else text


def fill_levels(levels: Levels, user: str, client_id: str | None) -> Levels:
    """The levels for one user and client. An unknown client id is any level: right for a deny, never for an allow."""
    return tuple([_fill_level(level, user, client_id) for level in levels])


def _fill_level(level: str, user: str, client_id: str | None) -> str:
    if "{" not in level:
        return level
    if client_id is None and CLIENT_ID in level:
        return ONE
    return _filled(level, user, client_id)


def fill_name(text: str, user: str, client_id: str | None) -> str:
    """The pattern of a topic or group for one user and client: from an unknown client id on, any name fits."""
    if "{" not in text:
        return text
    if client_id is None and CLIENT_ID in text:
        text = text.partition(CLIENT_ID)[0] + ANY_NAME
    return _filled(text, user, client_id)


def _filled(text: str, user: str, client_id: str | None) -> str:
    """Fill in both placeholders at once: a user who is called `{client_id}` stays one."""
    parts = text.split(USER)
    if client_id is not None:
        parts = [part.replace(CLIENT_ID, escaped(client_id)) for part in parts]
    return escaped(user).join(parts)


# --- address patterns against filters --------------------------------------------------------------------------------

FRESH: Final = "\0"
"""A level that no pattern names: stands for "whatever is here" when a filter is asked about."""


def sample(wanted: Levels) -> Levels:
    """An address of the filter that a covering pattern must match, with levels that no pattern names as wildcards."""
    return tuple([FRESH if level in (ONE, MANY) else level for level in wanted])


def covers(pattern: Levels, wanted: Levels) -> bool:  # decision 80
    """Whether every address that `wanted` matches is matched by `pattern`.

    Each wildcard run of the pattern either is a fixed number of levels or takes any stretch of `wanted` that is long
    enough; so `wanted` is walked like an address, in which a `#` can be taken by such a run alone. Costs at most
    len(pattern) * len(wanted) ** 2 steps.
    """
    if wanted[0].startswith("$") and pattern[0] in (ONE, MANY):
        return False
    if set(wanted) == {MANY}:
        wanted = (ONE, MANY)             # an address has a level
    ends = {0}                           # how much of `wanted` the pattern may have taken so far
    for piece in _pieces(pattern):
        ends = _after(piece, wanted, ends)
        if not ends:
            return False
    return len(wanted) in ends


def _pieces(pattern: Levels) -> list[str | tuple[int, bool]]:
    """Literals, and wildcard runs as (levels at least, whether more may follow)."""
    pieces: list[str | tuple[int, bool]] = []
    levels, more = 0, False
    for level in pattern:
        if level in (ONE, MANY):
            levels, more = levels + (level == ONE), more or level == MANY
            continue
        if levels or more:
            pieces.append((levels, more))
            levels, more = 0, False
        pieces.append(level)
    if levels or more:
        pieces.append((levels, more))
    return pieces


def _after(piece: str | tuple[int, bool], wanted: Levels, starts: set[int]) -> set[int]:
    """The positions in `wanted` that can be reached once this piece has taken its part."""
    if isinstance(piece, str):
        return {start + 1 for start in starts if start < len(wanted) and wanted[start] == piece}
    levels, more = piece
    if not more:
        return {start + levels for start in starts
                if start + levels <= len(wanted) and MANY not in wanted[start:start + levels]}
    ends: set[int] = set()
    for start in starts:
        taken = 0
        if not levels:
            ends.add(start)
        for at in range(start, len(wanted)):
            taken += wanted[at] != MANY
            if taken >= levels:
                ends.add(at + 1)
    return ends


def overlaps(first: Levels, second: Levels) -> bool:  # decision 80
    """Whether some address is matched by both. Costs at most len(first) * len(second) steps."""
    if _own(first) and second[0] in (ONE, MANY) or _own(second) and first[0] in (ONE, MANY):
        return False
    seen: set[tuple[int, int]] = set()
    open_: list[tuple[int, int]] = [(0, 0)]
    while open_:
        at = open_.pop()
        if at in seen:
            continue
        seen.add(at)
        index, other = at
        if index == len(first) and other == len(second):
            return True
        open_.extend(_steps(first, index, second, other))
    return False


def _own(levels: Levels) -> bool:
    """Whether the pattern begins with one of the hub's own first levels."""
    return levels[0].startswith("$")


def _steps(first: Levels, index: int, second: Levels, other: int) -> list[tuple[int, int]]:
    """The steps from here on: a `#` takes nothing more, or one level of the other side; or two levels that can be the
    same."""
    steps = []
    left = first[index] if index < len(first) else None
    right = second[other] if other < len(second) else None
    if left == MANY:
        steps.append((index + 1, other))
        if right is not None:
            steps.append((index, other + 1))
    if right == MANY:
        steps.append((index, other + 1))
        if left is not None:
            steps.append((index + 1, other))
    if left is not None and right is not None and MANY not in (left, right) and (left == right or ONE in (left, right)):
        steps.append((index + 1, other + 1))
    return steps
