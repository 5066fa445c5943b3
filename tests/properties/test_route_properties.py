"""Whatever the routes: every address goes to a topic and key and, with its header where it needs one, back."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, reject
from hypothesis import strategies as st

from gatehouse.kernel.addresses.address import ADDRESS_HEADER, check_address, is_topic_name
from gatehouse.kernel.addresses.filters import matches, parse_filter
from gatehouse.kernel.addresses.routes import InvalidRoutes, Routed, RouteEntry, Routes
from gatehouse.kernel.errors import InvalidAddress, Unroutable
from tests.properties.strategies import any_addresses, raw_texts

values = st.sampled_from(["a", "b", "", "1", "a-b", "%2B", "%", "25", "2B", "$a", "x y", "unrouted"])
separators = st.sampled_from(["/", "-/", "/a", "%/", "/+/"])


@st.composite
def entries(draw: st.DrawFn) -> RouteEntry:
    """A route that can be turned back: its key is the address, or holds every capture with a '/' between each two."""
    levels = draw(st.lists(st.sampled_from(["a", "b", "", "{x}", "{y}", "$a"]), min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        levels.append("#")
    if levels == [""]:
        levels = ["a"]
    captures = ["{rest}" if level == "#" else level for level in levels if level[:1] in ("{", "#")]
    in_topic = draw(st.sampled_from([name for name in captures if name != "{rest}"] or [""]))
    topic = draw(st.sampled_from(["a", "b", "t", in_topic or "t", "t-" + in_topic]))
    needed = [name for name in draw(st.permutations(captures)) if name not in topic]
    key = draw(st.sampled_from(["", "", "k", "%", "+"]))
    for index, name in enumerate(needed):
        key += (draw(separators) if index else "") + name
    if draw(st.booleans()):
        key = "{address}"
    return RouteEntry("/".join(levels), topic, key, draw(st.sampled_from(["", *captures])))


route_lists = st.lists(entries(), max_size=3).map(Routes)
short_addresses = st.lists(values, min_size=1, max_size=5).map("/".join).filter(bool)


@st.composite
def addresses_for(draw: st.DrawFn, entry: RouteEntry) -> str:
    """An address that this route's filter matches."""
    levels = [draw(values) if level.startswith("{") else level for level in entry.filter.split("/")]
    if levels[-1] == "#":
        levels[-1:] = draw(st.lists(values, max_size=3))
    return "/".join(levels)


@given(st.lists(entries(), max_size=3), st.data())
def test_every_address_comes_back(some: list[RouteEntry], data: Any) -> None:
    routes = Routes(some)
    matching = [addresses_for(entry) for entry in some]
    address = data.draw(st.one_of(short_addresses, any_addresses, *matching))
    assume(address)
    routed = routed_if_stored(routes, address)
    assert is_topic_name(routed.topic)
    headers = ((ADDRESS_HEADER, address.encode()),) if routed.needs_header else ()
    assert routes.address_of(routed.topic, routed.key, headers) == address


@given(entries(), st.data())
def test_alone_a_route_is_turned_back_without_the_header(entry: RouteEntry, data: Any) -> None:
    """The exceptions are an empty key, and a '#' that matched one empty level instead of none."""
    routes = Routes([entry])
    address = data.draw(addresses_for(entry))
    assume(address and matches_any([entry], address))
    routed = routed_if_stored(routes, address)
    assert routed.route is not None
    if routed.key and not (entry.filter.endswith("#") and address.endswith("/")):
        assert not routed.needs_header


@given(entries(), st.one_of(short_addresses, any_addresses))
def test_a_route_matches_what_its_filter_matches(entry: RouteEntry, address: str) -> None:
    route = Routes([entry])._routes[0]
    assert (route.captures(address) is not None) == matches_any([entry], address)


@given(route_lists, st.sampled_from(["a", "t", "t-1", "unrouted"]),
       st.one_of(st.none(), st.binary(max_size=8), raw_texts.map(str.encode), short_addresses.map(str.encode)),
       st.one_of(st.none(), st.binary(max_size=8), short_addresses.map(str.encode)))
def test_every_record_has_an_address_whatever_its_header(
        routes: Routes, topic: str, key: bytes | None, header: bytes | None) -> None:
    check_address(routes.address_of(topic, key, ((ADDRESS_HEADER, header),)))


template_texts = st.lists(st.sampled_from(["{x}", "{y}", "{rest}", "{address}", "/", "a", "{", "}", "+", "\0"]),
                          max_size=4).map("".join)


@given(st.lists(st.sampled_from(["a", "{x}", "{y}", "+", "#", "{", "x}", "\0"]), max_size=3).map("/".join),
       template_texts, template_texts, template_texts)
def test_any_configuration_is_compiled_or_refused_by_name(filter_: str, topic: str, key: str,
                                                          partition_key: str) -> None:
    try:
        Routes([RouteEntry(filter_, topic, key, partition_key)])
    except InvalidRoutes as error:
        assert all(str(problem).startswith("routes[0].") for problem in error.problems)


def routed_if_stored(routes: Routes, address: str) -> Routed:
    """The result; a `$...` that is refused, and what has no topic, is another test's matter."""
    try:
        return routes.route(address)
    except Unroutable:
        reject()
    except InvalidAddress:
        assert address.startswith("$")
        reject()


def matches_any(some: list[RouteEntry], address: str) -> bool:
    filters = [entry.filter.replace("{x}", "+").replace("{y}", "+") for entry in some]
    return any(matches(parse_filter(text), tuple(address.split("/"))) for text in filters)
