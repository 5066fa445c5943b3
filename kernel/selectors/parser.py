"""The grammar of a condition, and the types that it holds operands to.

    or          := and (OR and)*
    and         := not (AND not)*
    not         := NOT not | test
    test        := sum [ comparator sum
                       | [NOT] BETWEEN sum AND sum
                       | [NOT] IN ( literal (, literal)* )
                       | [NOT] LIKE 'pattern' [ESCAPE 'c']
                       | IS [NOT] NULL ]
    sum         := product ((+ | -) product)*
    product     := sign ((* | /) sign)*
    sign        := (+ | -) sign | primary
    primary     := literal | name | ( or )

Brackets hold conditions and sums alike, so what an operand may be is decided by its type. A name may be anything: its
value is only known with the message. What could never be true for its types (`price > '3'`) is refused here, not
silently never true.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.errors import InvalidSelector
from gatehouse.kernel.selectors.like import parse_like
from gatehouse.kernel.selectors.nodes import (
    A_NUMBER,
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
    condition_node,
    kind_of,
    name_node,
    number_node,
    shown,
    value_node,
)
from gatehouse.kernel.selectors.tokens import (
    END,
    MAX_NUMERAL_CHARS,
    NAME,
    NUMBER,
    QUOTED,
    TEXT,
    WORD,
    Token,
    number_of,
    tokens_of,
)

MAX_DEPTH: Final = 32
"""How deep brackets, NOT and signs may stand in each other."""

MAX_TERMS: Final = 256
"""Names and literals of a condition, tags of a list, headers of a list."""

ORDERINGS: Final = ("<", "<=", ">", ">=")

Source = tuple[str, bool]
"""What a slot is filled from: the name as written, and whether it stood in double quotes."""


def parse_condition(text: str) -> tuple[Node, list[Source]]:
    """The condition in a text, and what fills its slots. Raises InvalidSelector."""
    parser = _Parser(tokens_of(text))
    node = parser.whole()
    return node, list(parser.slots)


class _Parser:
    """One pass over the tokens, without a step back."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._terms = 0
        self.slots: dict[Source, int] = {}

    # --- tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def _accept(self, *words: str) -> str:
        """The next token's word if it is one of these, which is then taken; else an empty text."""
        token = self._next
        if token.kind == WORD and token.text in words:
            self._at += 1
            return token.text
        return ""

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._refused(word)

    def _refused(self, expected: str) -> InvalidSelector:
        token = self._next
        return InvalidSelector(token.position, expected, "the end" if token.kind == END else repr(token.text))

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidSelector(self._next.position, f"at most {MAX_DEPTH} brackets, NOT and signs in each other")

    # --- conditions

    def whole(self) -> Node:
        """The condition that the whole text is."""
        position = self._next.position
        node = self._or()
        if self._next.kind != END:
            raise self._refused("AND, OR or the end")
        return condition_node(node, position)

    def _or(self) -> Node:
        operands = self._joined("OR", self._and)
        return operands[0] if len(operands) == 1 else AnyOf(tuple(operands))

    def _and(self) -> Node:
        operands = self._joined("AND", self._not)
        return operands[0] if len(operands) == 1 else AllOf(tuple(operands))

    def _joined(self, word: str, operand: Callable[[], Node]) -> list[Node]:
        """What stands between these words; conditions, if there is more than one."""
        position = self._next.position
        operands = [operand()]
        while self._accept(word):
            operands[-1] = condition_node(operands[-1], position)
            position = self._next.position
            operands.append(operand())
        if len(operands) > 1:
            operands[-1] = condition_node(operands[-1], position)
        return operands

    def _not(self) -> Node:
        if not self._accept("NOT"):
            return self._test()
        self._deeper()
        position = self._next.position
        node = Not(condition_node(self._not(), position))
        self._depth -= 1
        return node

    def _test(self) -> Node:
        position = self._next.position
        left = self._sum()
        operator = self._accept("=", "<>", *ORDERINGS)
        if operator:
            return self._comparison(operator, left, position)
        if self._accept("IS"):
            negated = self._accept("NOT")
            self._expect("NULL")
            return _negated(Absent(name_node(left, position)), negated)
        negated = self._accept("NOT")
        if self._accept("BETWEEN"):
            return _negated(self._between(left, position), negated)
        if self._accept("IN"):
            return _negated(self._listed(left, position), negated)
        if self._accept("LIKE"):
            return _negated(self._like(name_node(left, position)), negated)
        if negated:
            raise self._refused("BETWEEN, IN or LIKE")
        return left

    # decision 52: what can never be true is refused
    def _comparison(self, operator: str, left: Node, position: int) -> Node:
        right_position = self._next.position
        first, second = value_node(left, position), value_node(self._sum(), right_position)
        kinds = kind_of(first), kind_of(second)
        for node, kind, at in ((first, kinds[0], position), (second, kinds[1], right_position)):
            if operator in ORDERINGS and kind not in (None, A_NUMBER):
                raise InvalidSelector(at, f"a number: only numbers are compared by {operator}", shown(node))
        if None not in kinds and kinds[0] != kinds[1]:
            raise InvalidSelector(right_position, f"{kinds[0]}, as what it is compared with", shown(second))
        return Comparison(operator, first, second)

    def _between(self, left: Node, position: int) -> Node:
        operand = number_node(left, position)
        position = self._next.position
        low = number_node(self._sum(), position)
        self._expect("AND")
        position = self._next.position
        return Between(operand, low, number_node(self._sum(), position))

    def _listed(self, left: Node, position: int) -> Node:
        operand = value_node(left, position)
        self._expect("(")
        items = [self._item(None)]
        kind = kind_of(items[0])
        if kind_of(operand) not in (None, kind):
            raise InvalidSelector(position, f"a name, or {kind} as those in the list", shown(operand))
        while self._accept(","):
            items.append(self._item(kind))
        self._expect(")")
        values = [item.value for item in items]
        return Listed(operand, frozenset(value for value in values if isinstance(value, bytes)),
                      frozenset(value for value in values if not isinstance(value, bytes)))

    def _item(self, kind: str | None) -> Literal:
        """One literal of a list; `kind` is that of its first."""
        position = self._next.position
        sign = self._accept("-", "+")
        if self._next.kind not in ((NUMBER,) if sign else (NUMBER, TEXT)):
            raise self._refused("a number" if sign else "a text in single quotes or a number")
        item = self._literal()
        if kind is not None and kind_of(item) != kind:
            raise InvalidSelector(position, f"{kind}, as the first of the list", shown(item))
        if sign == "-" and not isinstance(item.value, bytes):
            return Literal(-item.value)
        return item

    def _like(self, operand: Name) -> Node:
        position = self._next.position
        pattern = self._quoted_text("a pattern in single quotes")
        escape = ""
        if self._accept("ESCAPE"):
            token = self._next
            escape = self._quoted_text("a character in single quotes")
            if len(escape) != 1:
                raise InvalidSelector(token.position, "one character in single quotes", repr(escape))
        return Like(operand, parse_like(pattern, escape, position))

    def _quoted_text(self, expected: str) -> str:
        if self._next.kind != TEXT:
            raise self._refused(expected)
        self._count()
        return self._take().text

    # --- values

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chain(("*", "/"), self._sign)

    def _chain(self, operators: tuple[str, str], operand: Callable[[], Node]) -> Node:
        position = self._next.position
        first = operand()
        rest: list[tuple[str, Value]] = []
        while operator := self._accept(*operators):
            if not rest:
                first = number_node(first, position)
            position = self._next.position
            rest.append((operator, number_node(operand(), position)))
        return Arithmetic(number_node(first, position), tuple(rest)) if rest else first

    def _sign(self) -> Node:
        sign = self._accept("-", "+")
        if not sign:
            return self._primary()
        self._deeper()
        position = self._next.position
        operand = number_node(self._sign(), position)
        self._depth -= 1
        return Negated(operand) if sign == "-" else Arithmetic(operand, ())

    def _primary(self) -> Node:
        token = self._next
        if self._accept("("):
            self._deeper()
            node = self._or()
            self._expect(")")
            self._depth -= 1
            return node
        if self._accept("TRUE", "FALSE"):
            self._count()
            return Literal(token.text == "TRUE")
        if token.kind in (NUMBER, TEXT):
            return self._literal()
        if token.kind in (NAME, QUOTED):
            self._count()
            self._take()
            return Name(self.slots.setdefault((token.text, token.kind == QUOTED), len(self.slots)))
        raise self._refused("a name or a value")

    def _literal(self) -> Literal:
        self._count()
        token = self._take()
        if token.kind == TEXT:
            return Literal(token.text.encode())
        number = number_of(token.text.encode())
        if number is None:
            raise InvalidSelector(token.position, f"a number of at most {MAX_NUMERAL_CHARS} characters and 1.8e308",
                                  token.text[:MAX_NUMERAL_CHARS])
        return Literal(number)

    def _count(self) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise InvalidSelector(self._next.position, f"the end: a selector has at most {MAX_TERMS} names and values")


def _negated(node: Node, negated: str) -> Node:
    return Not(node) if negated else node
