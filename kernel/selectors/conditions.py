"""Nodes to closures: each takes the values of the selector's slots and answers a number, a text or a truth value.

None is NULL for a value and *unknown* for a condition. Three-valued logic, as SQL-92 8.12 has it:

    AND      true if all are true, false if any is false, else unknown
    OR       true if any is true, false if all are false, else unknown
    NOT      the opposite; unknown stays unknown

A test of a NULL is unknown, but for IS NULL. A value that is not of the kind that a test compares, such as the text
`hot` with a number, counts as NULL there. So does a sum that has no result: a division by zero, a float out of range.
"""
from __future__ import annotations

from collections.abc import Callable
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any, Final

from gatehouse.kernel.selectors.like import MAX_LIKE_BYTES
from gatehouse.kernel.selectors.nodes import (
    Absent,
    AllOf,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    Like,
    Listed,
    Literal,
    Name,
    Negated,
    Node,
    Not,
    Value,
)
from gatehouse.kernel.selectors.tokens import LARGEST, Number, boolean_of, number_of

Slots = list[bytes | None]
"""The values that a selector reads of one message; None where there is none, or null."""

Condition = Callable[[Slots], bool | None]
NumberReader = Callable[[Slots], Number | None]
TextReader = Callable[[Slots], bytes | None]

COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
COMPUTE: Final[dict[str, Callable[[Any, Any], Number]]] = {"+": add, "-": sub, "*": mul, "/": truediv}


# decision 52: closures, no Python made from the text
def compile_condition(node: Node) -> Condition:
    """The closure of a condition that the parser has checked."""
    if isinstance(node, AllOf):
        return _all_of([compile_condition(operand) for operand in node.operands])
    if isinstance(node, AnyOf):
        return _any_of([compile_condition(operand) for operand in node.operands])
    if isinstance(node, Not):
        return _not(compile_condition(node.operand))
    if isinstance(node, Comparison):
        return _comparison(node)
    if isinstance(node, Between):
        return _between(_number(node.operand), _number(node.low), _number(node.high))
    if isinstance(node, Listed):
        return _listed(node)
    if isinstance(node, Like):
        return _like(node)
    if isinstance(node, Absent):
        return _absent(node.operand.slot)
    return _truth_value(node)


# --- logic --------------------------------------------------------------------------------------------------------

def _all_of(operands: list[Condition]) -> Condition:
    def test(slots: Slots) -> bool | None:
        answer: bool | None = True
        for operand in operands:
            truth = operand(slots)
            if truth is False:
                return False
            if truth is None:
                answer = None
        return answer
    return test


def _any_of(operands: list[Condition]) -> Condition:
    def test(slots: Slots) -> bool | None:
        answer: bool | None = False
        for operand in operands:
            truth = operand(slots)
            if truth:
                return True
            if truth is None:
                answer = None
        return answer
    return test


def _not(operand: Condition) -> Condition:
    def test(slots: Slots) -> bool | None:
        truth = operand(slots)
        return None if truth is None else not truth
    return test


def _truth_value(node: Value) -> Condition:
    if isinstance(node, Name):
        slot = node.slot
        return lambda slots: boolean_of(slots[slot])
    assert isinstance(node, Literal) and isinstance(node.value, bool), "the parser lets nothing else through"
    value = node.value
    return lambda slots: value


# --- tests --------------------------------------------------------------------------------------------------------

def _comparison(node: Comparison) -> Condition:
    left, right, compare = node.left, node.right, COMPARE[node.operator]
    if isinstance(left, Literal) and isinstance(right, Name):
        left, right, compare = right, left, COMPARE[_TURNED[node.operator]]
    if isinstance(left, Name) and isinstance(right, Literal):
        return _with_literal(left.slot, compare, right.value)
    if isinstance(left, Name) and isinstance(right, Name):
        return _of_names(left.slot, compare, right.slot, node.operator in ("=", "<>"))
    if isinstance(left, Literal) and isinstance(right, Literal):
        answer = compare(left.value, right.value)
        return lambda slots: answer
    return _of_numbers(_number(left), compare, _number(right))


_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator that says the same with its sides exchanged."""


def _with_literal(slot: int, compare: Callable[[Any, Any], bool], literal: bytes | Number | bool) -> Condition:
    """The common case: one header and a value that stands in the text."""
    read: Callable[[bytes | None], Any] = number_of
    if isinstance(literal, bytes):
        def test_text(slots: Slots) -> bool | None:
            value = slots[slot]
            return None if value is None else compare(value, literal)
        return test_text
    if isinstance(literal, bool):
        read = boolean_of

    def test(slots: Slots) -> bool | None:
        value = read(slots[slot])
        return None if value is None else compare(value, literal)
    return test


def _of_names(left: int, compare: Callable[[Any, Any], bool], right: int, texts_too: bool) -> Condition:
    """Two headers: as numbers where both are, else as texts where the operator is one of texts."""
    def test(slots: Slots) -> bool | None:
        first, second = slots[left], slots[right]
        if first is None or second is None:
            return None
        number, other = number_of(first), number_of(second)
        if number is not None and other is not None:
            return compare(number, other)
        return compare(first, second) if texts_too else None
    return test


def _of_numbers(left: NumberReader, compare: Callable[[Any, Any], bool], right: NumberReader) -> Condition:
    def test(slots: Slots) -> bool | None:
        first, second = left(slots), right(slots)
        return None if first is None or second is None else compare(first, second)
    return test


def _between(operand: NumberReader, low: NumberReader, high: NumberReader) -> Condition:
    return _all_of([_of_numbers(operand, ge, low), _of_numbers(operand, le, high)])


def _listed(node: Listed) -> Condition:
    if node.texts:
        texts, text = node.texts, _text(node.operand)

        def test_text(slots: Slots) -> bool | None:
            value = text(slots)
            return None if value is None else value in texts
        return test_text
    numbers, number = node.numbers, _number(node.operand)

    def test(slots: Slots) -> bool | None:
        value = number(slots)
        return None if value is None else value in numbers
    return test


def _like(node: Like) -> Condition:
    slot, fits = node.operand.slot, node.pattern.fits

    def test(slots: Slots) -> bool | None:
        value = slots[slot]
        if value is None or len(value) > MAX_LIKE_BYTES:
            return None
        try:
            return fits(value.decode())
        except UnicodeDecodeError:
            return None
    return test


def _absent(slot: int) -> Condition:
    return lambda slots: slots[slot] is None


# --- values -------------------------------------------------------------------------------------------------------

def _text(node: Value) -> TextReader:
    if isinstance(node, Name):
        slot = node.slot
        return lambda slots: slots[slot]
    assert isinstance(node, Literal) and isinstance(node.value, bytes), "the parser lets nothing else through"
    value = node.value
    return lambda slots: value


def _number(node: Value) -> NumberReader:
    if isinstance(node, Name):
        slot = node.slot
        return lambda slots: number_of(slots[slot])
    if isinstance(node, Negated):
        return _negative(_number(node.operand))
    if isinstance(node, Arithmetic):
        return _sum(_number(node.first), [(COMPUTE[operator], _number(operand)) for operator, operand in node.rest])
    assert not isinstance(node.value, (bytes, bool)), "the parser lets nothing else through"
    value = node.value
    return lambda slots: value


def _negative(operand: NumberReader) -> NumberReader:
    def read(slots: Slots) -> Number | None:
        value = operand(slots)
        return None if value is None else -value
    return read


def _sum(first: NumberReader, rest: list[tuple[Callable[[Any, Any], Number], NumberReader]]) -> NumberReader:
    def read(slots: Slots) -> Number | None:
        total = first(slots)
        for compute, operand in rest:
            value = operand(slots)
            if total is None or value is None:
                return None
            try:
                total = compute(total, value)
            except (ZeroDivisionError, OverflowError):
                return None
            if not -LARGEST <= total <= LARGEST:
                return None
        return total
    return read
