"""Templates of a route's topic, key and partition_key: literal text with `{name}` in it, rendered and undone.

    fleet-{vehicle}/{rest}   ->   literal "fleet-", capture vehicle, literal "/", capture rest

A capture of one level holds no `/`; the captures `{rest}` and `{address}` may. Undoing is a single pass without
backtracking into choices, and is only offered where the text determines every capture (`is_separable`): between two
captures stands a literal with a `/`, and at most one capture may itself hold one. All text here is address text (see
`kernel.addresses.address.escape`).
"""
from __future__ import annotations

import re
from typing import Final

from gatehouse.kernel.addresses.address import KEY_ESCAPES, escape

REST: Final = "rest"
"""What a trailing `#` matched, without the slash before it; empty where it matched no level."""

ADDRESS: Final = "address"
"""The whole address."""

PART: Final = re.compile(r"\{([^{}]*)\}|([^{}]+)|([{}])")


class InvalidTemplate(ValueError):
    """A template that cannot be read; the text says what is wrong with it."""


class Template:
    """One template. `parts` are (is_capture, name or literal) in order."""

    def __init__(self, text: str, captures: frozenset[str]) -> None:
        """Raises InvalidTemplate for a stray brace and for a name that is not in `captures`."""
        self.text = text
        self.parts: list[tuple[bool, str]] = []
        for name, literal, brace in PART.findall(text):
            if literal:
                self.parts.append((False, escape(literal, KEY_ESCAPES)))
            elif brace or name not in captures:
                raise InvalidTemplate(_complaint(brace, name, captures))
            else:
                self.parts.append((True, name))
        self.beginning: Final = "" if not self.parts or self.parts[0][0] else self.parts[0][1]
        """What every text that this renders to begins with."""

        self.names: Final = [name for is_capture, name in self.parts if is_capture]
        self._pattern: Final = re.compile("".join(_regex(*part) for part in self.parts), re.DOTALL)

    def render(self, captures: dict[str, str]) -> str:
        return "".join(captures[text] if is_capture else text for is_capture, text in self.parts)

    def undo(self, text: str) -> dict[str, str] | None:
        """The captures that render to this text, or None. Not separable: one of the possible answers."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        captures: dict[str, str] = {}
        for name, value in zip(self.names, match.groups(), strict=True):
            if captures.setdefault(name, value) != value:
                return None
        return captures

    def is_separable(self) -> bool:
        """Whether each text that this renders to determines every capture in it."""
        if len(self.names) <= 1:
            return True
        wide = [name for name in self.names if name in (REST, ADDRESS)]
        captures = [index for index, (is_capture, _) in enumerate(self.parts) if is_capture]
        between = [self.parts[after - 1] for after in captures[1:]]
        return len(wide) <= 1 and all(not is_capture and "/" in text for is_capture, text in between)


def _regex(is_capture: bool, text: str) -> str:
    if not is_capture:
        return re.escape(text)
    return "(.*)" if text in (REST, ADDRESS) else "([^/]*)"


def _complaint(brace: str, name: str, captures: frozenset[str]) -> str:
    if brace:
        return f"has a '{brace}' that belongs to no {{name}}"
    names = ", ".join("{" + capture + "}" for capture in sorted(captures))
    return f"has {{{name}}}, which nothing captures; there are {names}"
