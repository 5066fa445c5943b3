"""Regular expressions of topics that members want, matched by the hub in bounded time. Pure.

    text ──parsed──► program ──run on a name, all ways at once──► does the whole name match?

The syntax is RE2's, as far as it stands below. A name is never tried twice: the program's possible positions after each
character are one state, states are kept, and a pattern has an allowance of work beyond that. So no expression is slow
on some names, as those are that a matcher tries in turn (`(a*)*b`); what is refused says what it is.

    x  .  \\d \\w \\s \\D \\W \\S  \\.  \\Q...\\E  [a-z]  [^a-z]      one character
    xy  x|y  (x)  (?:x)  (?P<name>x)                            in order, either, together
    x*  x+  x?  x{n}  x{n,}  x{n,m}                             again; also with `?` behind, which says the same here
    ^  $  (?i) at the beginning                                  edges, and letters of either case
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.errors import InvalidPattern

MAX_LENGTH: Final = 1_000
"""Characters of an expression."""

MAX_PROGRAM: Final = 1_000
"""Steps of its program: `x{100}` is a hundred."""

MAX_DEPTH: Final = 50
"""Brackets in brackets."""

MAX_STATES: Final = 500
"""That are kept; beyond that they are made again."""

ALLOWANCE: Final = 500_000
"""Steps of the program that are looked at to match all names that are asked about at once: some 100 ms."""

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
"""What names of topics consist of."""

BITS: Final = {character: 1 << number for number, character in enumerate(ALPHABET)}
ANY: Final = (1 << len(ALPHABET)) - 1


def _bits(characters: str) -> int:
    return sum([BITS[each] for each in dict.fromkeys(characters) if each in BITS])


DIGITS: Final = _bits("0123456789")
WORD: Final = ANY & ~_bits(".-")
CLASSES: Final = {"d": DIGITS, "D": ANY & ~DIGITS, "w": WORD, "W": ANY & ~WORD, "s": 0, "S": ANY}
CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

CHARACTER: Final = 0       # (mask): one character of these
SPLIT: Final = 1           # (one way, other way)
BEGIN: Final = 2           # only where the name begins
END: Final = 3             # only where it ends
MATCH: Final = 4

Step = tuple[int, int, int]
Node = tuple[str, object, object]
"""What an expression consists of: ("character", mask, None), ("begin"|"end"|"empty", None, None),
("both"|"either", [nodes], None), ("again", node, (least, most or None))."""


# decision 184: in bounded time, whatever a client writes
class TopicPattern:
    """A compiled expression. Raises InvalidPattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._program = _PatternCompiler().compile(_PatternParser(text).parse())
        self._states: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._accepting: dict[frozenset[int], bool] = {}
        self._allowance = 0
        self._allow()
        self._first = self._closed([0], is_begin=True)

    def matching(self, names: list[str]) -> set[str]:
        """Which of the names match as a whole. Raises InvalidPattern where it takes too much work to say."""
        self._allow()
        return {name for name in names if self._matches(name)}

    def _allow(self) -> None:
        self._allowance = ALLOWANCE

    def _matches(self, name: str) -> bool:
        state = self._first
        for character in name:
            following = self._states.get(state)
            if following is None:
                if len(self._states) >= MAX_STATES:
                    self._states.clear()
                    self._accepting.clear()
                following = self._states[state] = {}
            after = following.get(character)
            if after is None:
                after = following[character] = self._after(state, BITS.get(character, 0))
            if not after:
                return False
            state = after
        accepts = self._accepting.get(state)
        if accepts is None:
            if len(self._accepting) >= MAX_STATES:
                self._accepting.clear()
            ends = self._closed(state, is_end=True)
            accepts = self._accepting[state] = any(self._program[at][0] == MATCH for at in ends)
        return accepts

    def _after(self, state: frozenset[int], bit: int) -> frozenset[int]:
        self._work(len(state))
        program = self._program
        return self._closed([at + 1 for at in state if program[at][0] == CHARACTER and program[at][1] & bit])

    def _closed(self, begin: list[int] | frozenset[int], *, is_begin: bool = False, is_end: bool = False
                ) -> frozenset[int]:
        """All positions that are reached from these without a character."""
        program, reached, left = self._program, set(begin), list(begin)
        while left:
            kind, first, second = program[left.pop()]
            for following in (first, second) if kind == SPLIT else (first,) if kind == BEGIN and is_begin \
                    or kind == END and is_end else ():
                if following not in reached:
                    reached.add(following)
                    left.append(following)
        self._work(len(reached))
        return frozenset(reached)

    def _work(self, steps: int) -> None:
        self._allowance -= steps
        if self._allowance < 0:
            raise InvalidPattern("this regular expression takes too much work to match")


class _PatternCompiler:
    def __init__(self) -> None:
        self._program: list[Step] = []
        self._added = 0                                  # nodes, those that take no step included

    def compile(self, node: Node) -> list[Step]:
        self._add(node)
        self._put(MATCH)
        return self._program

    def _put(self, kind: int, first: int = 0, second: int = 0) -> int:
        if len(self._program) >= MAX_PROGRAM:
            raise InvalidPattern(f"this regular expression is too large: at most {MAX_PROGRAM} steps")
        self._program.append((kind, first, second))
        return len(self._program) - 1

    def _jump(self) -> int:
        return self._put(SPLIT)

    def _lead(self, at: int, first: int, second: int | None = None) -> None:
        self._program[at] = (SPLIT, first, first if second is None else second)

    def _add(self, node: Node) -> None:
        self._added += 1
        if self._added > 10 * MAX_PROGRAM:
            raise InvalidPattern("this regular expression repeats too much")
        kind, what, bounds = node
        if kind == "character":
            assert isinstance(what, int)
            self._put(CHARACTER, what)
        elif kind in ("begin", "end"):
            self._put(BEGIN if kind == "begin" else END, len(self._program) + 1)
        elif kind == "both":
            assert isinstance(what, list)
            for each in what:
                self._add(each)
        elif kind == "either":
            assert isinstance(what, list)
            self._either(what)
        elif kind == "again":
            assert isinstance(what, tuple) and isinstance(bounds, tuple)
            self._again(what, *bounds)

    def _either(self, ways: list[Node]) -> None:
        ends = []
        for way in ways[:-1]:
            split = self._jump()
            self._add(way)
            ends.append(self._jump())
            self._lead(split, split + 1, len(self._program))
        self._add(ways[-1])
        for end in ends:
            self._lead(end, len(self._program))

    def _again(self, node: Node, least: int, most: int | None) -> None:
        for _ in range(least):
            self._add(node)
        if most is None:
            split = self._jump()
            self._add(node)
            self._lead(self._jump(), split)
            self._lead(split, split + 1, len(self._program))
            return
        splits = []
        for _ in range(most - least):
            splits.append(self._jump())
            self._add(node)
        for split in splits:
            self._lead(split, split + 1, len(self._program))


class _PatternParser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidPattern(f"a regular expression has at most {MAX_LENGTH} characters")
        self._text = text
        self._at = 0
        self._any_case = False
        self._depth = 0

    def parse(self) -> Node:
        if self._take("(?i)"):
            self._any_case = True
        node = self._ways()
        if self._at < len(self._text):
            raise self._error("a closing bracket without an opening one")
        return node

    def _error(self, what: str) -> InvalidPattern:
        return InvalidPattern(f"{what}, at character {self._at + 1} of the regular expression")

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._error("something is missing at the end")
        self._at += 1
        return self._text[self._at - 1]

    def _ways(self) -> Node:
        ways = [self._sequence()]
        while self._take("|"):
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else ("either", ways, None)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts += self._repeated()
        return "both", parts, None

    def _repeated(self) -> list[Node]:
        if self._take("\\Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at:] if end < 0 else self._text[self._at:end]
            self._at += len(quoted) + (0 if end < 0 else 2)
            return [self._character(each) for each in quoted]
        node = self._one()
        bounds = self._bounds()
        if bounds is None:
            return [node]
        self._take("?")
        if self._at < len(self._text) and self._text[self._at] in "*+?{":
            raise self._error("what is repeated is repeated once more: put it into brackets")
        return [("again", node, bounds)]

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(sign):
                return least, most
        if not self._take("{"):
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at:max(end, self._at)].partition(",")
        if not (low.isdecimal() and (not high or high.isdecimal())) or len(low) > 4 or len(high) > 4:
            raise self._error("a number of repetitions is expected")
        begin, until = int(low), int(high) if high else None if comma else int(low)
        if until is not None and until < begin or max(begin, until or 0) > MAX_PROGRAM:
            raise self._error("so many repetitions are not offered")
        self._at = end + 1
        return begin, until

    def _one(self) -> Node:
        character = self._next()
        if character == "(":
            return self._bracket()
        if character == "[":
            return "character", self._set(), None
        if character == ".":
            return "character", ANY, None
        if character in "^$":
            return "begin" if character == "^" else "end", None, None
        if character in "*+?{":
            raise self._error("there is nothing to repeat")
        if character == "\\":
            escaped = self._escaped()
            return ("character", escaped, None) if isinstance(escaped, int) else self._character(escaped)
        return self._character(character)

    def _character(self, character: str) -> Node:
        return "character", _bits(character + (character.swapcase() if self._any_case else "")), None

    def _escaped(self) -> int | str:
        """A class's mask, or a character that stands for itself."""
        character = self._next()
        if character in CLASSES:
            return CLASSES[character]
        if character in CONTROLS:
            return CONTROLS[character]
        if character.isalnum():
            raise self._error(f"\\{character} is not offered")
        return character

    def _bracket(self) -> Node:
        if self._take("?:"):
            pass
        elif self._take("?P<") or self._text.startswith("?<", self._at) and self._text[self._at + 2:self._at + 3] \
                not in ("=", "!", "") and self._take("?<"):
            end = self._text.find(">", self._at)
            if end < 0 or not self._text[self._at:end].isidentifier():
                raise self._error("a group's name is expected")
            self._at = end + 1
        elif self._take("?"):
            raise self._error("looking around, conditions and flags inside are not offered")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"at most {MAX_DEPTH} brackets in brackets")
        node = self._ways()
        self._depth -= 1
        if not self._take(")"):
            raise self._error("a closing bracket is missing")
        return node

    def _set(self) -> int:
        negated = self._take("^")
        mask, is_first = 0, True
        while is_first or not self._take("]"):
            is_first = False
            if self._text.startswith("[:", self._at):
                raise self._error("named classes are not offered")
            low = self._escaped() if (character := self._next()) == "\\" else character
            if isinstance(low, int):
                mask |= low
                continue
            if not self._text.startswith("-", self._at) or self._text[self._at + 1:self._at + 2] in ("]", ""):
                mask |= self._between(low, low)
                continue
            self._at += 1
            high = self._escaped() if (character := self._next()) == "\\" else character
            if isinstance(high, int) or high < low:
                raise self._error("a range that ends before it begins")
            mask |= self._between(low, high)
        return ANY & ~mask if negated else mask

    def _between(self, low: str, high: str) -> int:
        members = [each for each in ALPHABET if low <= each <= high]
        if self._any_case:
            members += [each.swapcase() for each in members]
        return _bits("".join(members))
