"""The parts of a parsed condition, and which part may stand where. Pure.

    values       Literal, Name, Negated, Arithmetic
    conditions   Comparison, Between, Listed, Like, Absent, Not, AllOf, AnyOf; and a Name or a truth value alone

A chain such as `a AND b AND c` or `a + b - c` is one node, so that depth is the depth of brackets only.
"""
from __future__ import annotations

from typing import Final, NamedTuple

from gatehouse.kernel.errors import InvalidSelector
from gatehouse.kernel.selectors.like import LikePattern
from gatehouse.kernel.selectors.tokens import Number

# --- nodes --------------------------------------------------------------------------------------------------------

class Literal(NamedTuple):
    """A value that stands in the text: text as UTF-8, a number, or a truth value."""

    value: bytes | Number | bool


class Name(NamedTuple):
    """A header, or a part of the message; its slot among the values that a selector reads."""

    slot: int


class Negated(NamedTuple):
    """A number with the other sign."""

    operand: Value


class Arithmetic(NamedTuple):
    """Numbers from left to right: `first`, then each operator with what follows it."""

    first: Value
    rest: tuple[tuple[str, Value], ...]


class Comparison(NamedTuple):
    """`=`, `<>`, `<`, `<=`, `>` or `>=` of two values."""

    operator: str
    left: Value
    right: Value


class Between(NamedTuple):
    """low <= operand <= high, all numbers."""

    operand: Value
    low: Value
    high: Value


class Listed(NamedTuple):
    """Whether the value is one of these: all text, or all numbers."""

    operand: Value
    texts: frozenset[bytes]
    numbers: frozenset[Number]


class Like(NamedTuple):
    """Whether a text fits a pattern."""

    operand: Name
    pattern: LikePattern


class Absent(NamedTuple):
    """IS NULL."""

    operand: Name


class Not(NamedTuple):
    """The opposite; unknown stays unknown."""

    operand: Node


class AllOf(NamedTuple):
    """AND."""

    operands: tuple[Node, ...]


class AnyOf(NamedTuple):
    """OR."""

    operands: tuple[Node, ...]


Value = Literal | Name | Negated | Arithmetic
Node = Value | Comparison | Between | Listed | Like | Absent | Not | AllOf | AnyOf


# --- kinds of nodes -----------------------------------------------------------------------------------------------

# What kind of value an operand is, as far as the text says, and the refusal of what cannot stand where it stands.

A_NUMBER: Final = "a number"
A_TEXT: Final = "a text"
A_TRUTH_VALUE: Final = "TRUE or FALSE"


def kind_of(value: Value) -> str | None:
    """The kind of a value in words; None for a name, which may be anything."""
    if isinstance(value, Name):
        return None
    if isinstance(value, Literal):
        if isinstance(value.value, bytes):
            return A_TEXT
        return A_TRUTH_VALUE if isinstance(value.value, bool) else A_NUMBER
    return A_NUMBER


def condition_node(node: Node, position: int) -> Node:
    """The node, if it can be true or false: a condition, a name, TRUE or FALSE. Raises InvalidSelector."""
    if isinstance(node, (Literal, Negated, Arithmetic)) and kind_of(node) != A_TRUTH_VALUE:
        raise InvalidSelector(position, "a condition", shown(node))
    return node


def value_node(node: Node, position: int) -> Value:
    """The node, if it is a value. Raises InvalidSelector."""
    if not isinstance(node, (Literal, Name, Negated, Arithmetic)):
        raise InvalidSelector(position, "a name or a value", "a condition")
    return node


def number_node(node: Node, position: int) -> Value:
    """The node, if it is a number or a name. Raises InvalidSelector."""
    if not isinstance(node, (Literal, Name, Negated, Arithmetic)) or kind_of(node) not in (None, A_NUMBER):
        raise InvalidSelector(position, "a number or a name", shown(node))
    return node


def name_node(node: Node, position: int) -> Name:
    """The node, if it is a name. Raises InvalidSelector."""
    if not isinstance(node, Name):
        raise InvalidSelector(position, "a name", shown(node))
    return node


def shown(node: Node) -> str:
    """What a node is, for an error."""
    if isinstance(node, (Literal, Name, Negated, Arithmetic)):
        return kind_of(node) or "a name"
    return "a condition"
