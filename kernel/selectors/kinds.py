"""What kind of value an operand is, as far as the text says, and the refusal of what cannot stand where it stands."""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.errors import InvalidSelector
from gatehouse.kernel.selectors.nodes import Arithmetic, Literal, Name, Negated, Node, Value

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
