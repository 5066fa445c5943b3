"""The parts of a parsed condition.

    values       Literal, Name, Negated, Arithmetic
    conditions   Comparison, Between, Listed, Like, Absent, Not, AllOf, AnyOf; and a Name or a truth value alone

A chain such as `a AND b AND c` or `a + b - c` is one node, so that depth is the depth of brackets only.
"""
from __future__ import annotations

from typing import NamedTuple

from gatehouse.kernel.selectors.like import LikePattern
from gatehouse.kernel.selectors.numerals import Number


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
