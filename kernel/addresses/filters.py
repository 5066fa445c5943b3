"""Filters over the levels of addresses, and the one trie that matches MQTT filters and AMQP bindings.

A filter is a tuple of levels: a literal, ONE (`+`, any one level) or MANY (`#`, any number of levels, none included,
so that `plant/#` matches `plant`). MANY may stand anywhere; a door whose protocol wants it last checks that itself.

Rules: an empty level is a level. A filter that begins with ONE or MANY never matches an address whose first level
begins with `$`. No address level is ever ONE or MANY (`kernel.addresses.address` sees to that).

Matching walks the address once with the set of nodes that are still alive. Only a MANY with something after it stays
alive by itself; a trailing one is taken when reached. So plain filters cost one dictionary look-up per level and live
node, and any number of MANY in mid-filter costs at most (nodes of such filters) per level, never an exponential
search. Nothing recurses.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from gatehouse.kernel.addresses.address import check_size
from gatehouse.kernel.errors import InvalidFilter as InvalidFilter  # doors find it here, beside `parse_filter`

ONE: Final = "+"
MANY: Final = "#"

T = TypeVar("T")

FEW: Final = 4               # values of a node that are a tuple; more are a dictionary
SHARED_LEVELS: Final = 4_096
SHARED_CHARS: Final = 32     # longer levels are nobody's word
NO_CHILDREN: Final[dict[str, Any]] = {}

NOTHING_ELSE: Final[Mapping[str, tuple[str, ...]]] = {}


@lru_cache(maxsize=SHARED_LEVELS)
def _same(level: str) -> str:
    """The same text, as one object: a fleet has a million filters and a handful of words in them."""
    return level


def parse_filter(text: str) -> tuple[str, ...]:
    """The levels of a filter such as `plant/+/temp` or `plant/#`. Raises InvalidFilter.

    `+` and `#` must be a whole level; `#` may stand anywhere. Empty, over 65535 bytes of UTF-8, over MAX_LEVELS levels,
    NUL and lone surrogates are refused.
    """
    if "\0" in text:
        raise InvalidFilter("a filter holds no NUL")
    check_size(text, "a filter", InvalidFilter)
    levels = tuple([_same(level) if len(level) <= SHARED_CHARS else level for level in text.split("/")])
    for level in levels:
        if len(level) > 1 and (ONE in level or MANY in level):
            raise InvalidFilter(f"'+' and '#' stand alone between slashes, not as in '{level[:40]}'")
    return levels


def matches(pattern: tuple[str, ...], levels: tuple[str, ...]) -> bool:
    """Whether one filter matches one address, at a cost of at most len(pattern) * len(levels) comparisons."""
    if levels[0].startswith("$") and pattern[0] in (ONE, MANY):
        return False
    at = level = 0
    retry_at = retry_level = -1              # after the last MANY, and the first level that it has not swallowed
    while level < len(levels):
        if at < len(pattern) and pattern[at] == MANY:
            at += 1
            retry_at, retry_level = at, level
        elif at < len(pattern) and pattern[at] in (ONE, levels[level]):
            at += 1
            level += 1
        elif retry_at >= 0:                  # let that MANY swallow one level more
            retry_level += 1
            at, level = retry_at, retry_level
        else:
            return False
    while at < len(pattern) and pattern[at] == MANY:
        at += 1
    return at == len(pattern)


class Node(Generic[T]):
    """One level of the filters that share their beginning. There may be millions, most with one child or one value."""

    __slots__ = ("children", "is_many", "many", "one", "values")

    def __init__(self, is_many: bool) -> None:
        self.is_many = is_many
        self.children: dict[str, Node[T]] | tuple[str, Node[T]] = NO_CHILDREN    # one alone needs no dictionary
        self.one: Node[T] | None = None
        self.many: Node[T] | None = None
        self.values: tuple[T, ...] | dict[T, None] = ()

    def give(self, value: T) -> None:
        """One value more."""
        if isinstance(self.values, dict):
            self.values[value] = None
        elif len(self.values) < FEW:
            self.values += (value,)
        else:
            self.values = dict.fromkeys((*self.values, value))

    def take(self, value: T) -> None:
        """A value that is there goes."""
        if isinstance(self.values, dict):
            del self.values[value]
            if not self.values:
                self.values = ()
        else:
            self.values = tuple([other for other in self.values if other != value])

    def is_leaf(self) -> bool:
        return not self.children and self.one is None and self.many is None

    def literal(self, level: str) -> Node[T] | None:
        """The child for a level that is no wildcard."""
        children = self.children
        if isinstance(children, tuple):
            return children[1] if children[0] == level else None
        return children.get(level)

    def literals(self) -> Iterable[tuple[str, Node[T]]]:
        """Every child that is none of a wildcard, with its level."""
        children = self.children
        return (children,) if isinstance(children, tuple) else children.items()

    def child(self, level: str) -> Node[T] | None:
        if level == ONE:
            return self.one
        if level == MANY:
            return self.many
        return self.literal(level)

    def add_child(self, level: str) -> Node[T]:
        node: Node[T] = Node(level == MANY)
        if level == ONE:
            self.one = node
        elif level == MANY:
            self.many = node
        elif self.children is NO_CHILDREN:
            self.children = level, node
        elif isinstance(self.children, tuple):
            self.children = {self.children[0]: self.children[1], level: node}
        else:
            self.children[level] = node
        return node

    def remove_child(self, level: str) -> None:
        if level == ONE:
            self.one = None
        elif level == MANY:
            self.many = None
        elif isinstance(self.children, tuple):
            self.children = NO_CHILDREN
        else:
            del self.children[level]
            if not self.children:
                self.children = NO_CHILDREN


class FilterTrie(Generic[T]):
    """Values under filters. A value is hashable and stands at most once under one filter."""

    def __init__(self) -> None:
        self._root: Node[T] = Node(False)
        self._size = 0

    def __len__(self) -> int:
        """Number of (filter, value) pairs."""
        return self._size

    def insert(self, pattern: tuple[str, ...], value: T) -> bool:
        """False if the value stood under this filter already."""
        node = self._root
        for level in pattern:
            node = node.child(level) or node.add_child(level)
        if value in node.values:
            return False
        node.give(value)
        self._size += 1
        return True

    def remove(self, pattern: tuple[str, ...], value: T) -> bool:
        """False if the value did not stand under this filter. Levels that nothing needs any more are released."""
        path = [self._root]
        for level in pattern:
            node = path[-1].child(level)
            if node is None:
                return False
            path.append(node)
        if value not in path[-1].values:
            return False
        path[-1].take(value)
        self._size -= 1
        for depth in range(len(pattern), 0, -1):
            if path[depth].values or not path[depth].is_leaf():
                break
            path[depth - 1].remove_child(pattern[depth - 1])
        return True

    def match(self, levels: tuple[str, ...]) -> list[T]:
        """The values of every filter that matches this address; a value appears once per matching filter."""
        values: list[T] = []
        seen: set[Node[T]] = set()           # MANY nodes that have given their values
        alive: list[Node[T]] = []
        if not levels[0].startswith("$"):
            _enter(self._root, alive, set(), seen, values)
            return _walk(levels, 0, alive, seen, values)
        literal = self._root.literal(levels[0])
        if literal is not None:
            _enter(literal, alive, set(), seen, values)
        return _walk(levels, 1, alive, seen, values)

    def overlapping(self, pattern: tuple[str, ...], also: Mapping[str, tuple[str, ...]] = NOTHING_ELSE) -> Iterator[T]:
        """The values of every filter that shares an address with this one; a value may come more than once.

        `also` says which other levels of the trie's filters stand for a level of `pattern`, as a placeholder does.
        Costs at most (nodes of the trie) * len(pattern) steps, and far less where the pattern begins with literals.
        """
        tail = len(pattern)                  # from here on the pattern may match nothing more
        while tail and pattern[tail - 1] == MANY:
            tail -= 1
        seen: set[tuple[Node[T], int]] = set()
        stack = self._beginnings(pattern, also)
        while stack:
            node, at = place = stack.pop()
            if place in seen:
                continue
            seen.add(place)
            if at >= tail:
                yield from node.values
            if node.many is not None:
                stack.append((node.many, at))
            if at < len(pattern):
                stack.extend(_alongside(node, pattern[at], at, also))

    def _beginnings(self, pattern: tuple[str, ...], also: Mapping[str, tuple[str, ...]]) -> list[tuple[Node[T], int]]:
        """Where to begin: below the root where one side begins with `$`, which the other's wildcards do not match."""
        root = self._root
        if pattern[0].startswith("$"):
            own = root.literal(pattern[0])
            return [] if own is None else [(own, 1)]
        places: list[tuple[Node[T], int]] = []
        for at, level in enumerate(pattern):
            after = at if level == MANY else at + 1
            if root.many is not None:
                places.append((root.many, at))
            if root.one is not None:
                places.append((root.one, after))
            if level in (ONE, MANY):
                places += [(node, after) for name, node in root.literals() if not name.startswith("$")]
            elif not level.startswith("$"):
                names = (level, *also.get(level, ()))
                places += [(node, after) for node in map(root.literal, names) if node is not None]
            if level != MANY:                # which may take nothing, so that the next level begins as well
                break
        return places

    def pairs(self) -> Iterator[tuple[tuple[str, ...], T]]:
        """Every (filter, value), in no particular order."""
        stack: list[tuple[tuple[str, ...], Node[T]]] = [((), self._root)]
        while stack:
            pattern, node = stack.pop()
            for value in node.values:
                yield pattern, value
            stack.extend(((*pattern, level), child) for level, child in node.literals())
            if node.one is not None:
                stack.append(((*pattern, ONE), node.one))
            if node.many is not None:
                stack.append(((*pattern, MANY), node.many))


def _alongside(node: Node[T], level: str, at: int, also: Mapping[str, tuple[str, ...]]
               ) -> Iterator[tuple[Node[T], int]]:
    """Where a filter's node and the level of a pattern lead together."""
    if node.is_many or level == MANY:
        yield node, at + 1                   # the one takes the other's level, or nothing more
    if level == ONE or level == MANY:
        after = at + (level == ONE)
        for _, child in node.literals():
            yield child, after
        if node.one is not None:
            yield node.one, after
        return
    for name in (level, *also.get(level, ())):
        named = node.literal(name)
        if named is not None:
            yield named, at + 1
    if node.one is not None:
        yield node.one, at + 1


def _walk(levels: tuple[str, ...], start: int, alive: list[Node[T]], seen: set[Node[T]], values: list[T]) -> list[T]:
    """Takes the levels from `start` on; what is alive at the end matches. Returns `values`."""
    for level in levels[start:]:
        if not alive:
            return values
        after: list[Node[T]] = []
        loops: set[Node[T]] = set()          # MANY nodes that are in `after`
        for node in alive:
            if node.is_many and node not in loops:
                loops.add(node)
                after.append(node)
            child = node.literal(level)
            if child is not None:
                _enter(child, after, loops, seen, values)
            if node.one is not None:
                _enter(node.one, after, loops, seen, values)
        alive = after
    for node in alive:
        if node.values and not node.is_many:
            values.extend(node.values)
    return values


def _enter(node: Node[T], alive: list[Node[T]], loops: set[Node[T]], seen: set[Node[T]], values: list[T]) -> None:
    """Makes a node alive, and with it the MANY after it, which may take no level at all."""
    alive.append(node)
    many = node.many
    while many is not None:
        if many not in seen:                 # a filter that ends here matches whatever follows
            seen.add(many)
            values.extend(many.values)
        if many not in loops and not many.is_leaf():
            loops.add(many)
            alive.append(many)
        many = many.many
