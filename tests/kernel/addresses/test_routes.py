"""Routes by example: what they decide, the way back, and what is refused when the configuration loads."""
from __future__ import annotations

import pytest

from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.routes import InvalidRoutes, RouteEntry, Routes
from gatehouse.kernel.errors import InvalidAddress, Unroutable

FLEET = RouteEntry("fleet/{vehicle}/gps/#", "positions", "{address}", "{vehicle}")


def test_the_documented_example() -> None:
    routes = Routes([FLEET])
    routed = routes.route("fleet/7/gps/lat")
    assert (routed.topic, routed.key, routed.partition_key) == ("positions", b"fleet/7/gps/lat", b"7")
    assert routed.partition(4) == partition_for(b"7", 4)
    assert routed.route is not None and routed.route.entry is FLEET
    assert not routed.needs_header
    assert routes.address_of("positions", b"fleet/7/gps/lat") == "fleet/7/gps/lat"


def test_everything_else_follows_the_default_rule() -> None:
    routed = Routes([FLEET]).route("fleet/7/speed")
    assert routed == ("fleet", b"7/speed", b"7/speed", False, None)


def test_a_keyless_address_is_hashed_itself() -> None:
    assert Routes().route("plant").partition_key == b"plant"


def test_the_first_match_wins() -> None:
    routes = Routes([RouteEntry("a/b", "one"), RouteEntry("a/+", "two"), RouteEntry("#", "three")])
    assert [routes.route(address).topic for address in ("a/b", "a/c", "a", "b")] == ["one", "two", "three", "three"]


@pytest.mark.parametrize(("entry", "address", "topic", "key"), [
    (RouteEntry("a/{x}/{y}", "t", "{y}/{x}"), "a/1/2", "t", b"2/1"),
    (RouteEntry("a/{x}/#", "t", "{x}:/{rest}"), "a/1/2/3", "t", b"1:/2/3"),
    (RouteEntry("a/{x}/#", "{x}", "{rest}"), "a/1/2/3", "1", b"2/3"),
    (RouteEntry("a/{x}/{y}", "t-{x}", "{y}"), "a/1/2", "t-1", b"2"),
    (RouteEntry("a/{x}/+/#", "t-{x}", "{address}"), "a/1/2/3", "t-1", b"a/1/2/3"),
    (RouteEntry("$queue/{name}", "orders", "{name}"), "$queue/x", "orders", b"x"),
    (RouteEntry("a/{x}", "t", "+{x}"), "a/%2B", "t", b"++"),
    (RouteEntry("a/{x}", "t-{x}", "{x}{x}"), "a/1", "t-1", b"11"),              # the topic tells
    (RouteEntry("a/{x}/{y}", "{x}-{y}", "{x}/{y}"), "a/1-2/3", "1-2-3", b"1-2/3"),   # the key tells
    (RouteEntry("a/{x}", "t", "%25{x}"), "a/2B", "t", b"%2B"),
])
def test_templates_and_the_way_back(entry: RouteEntry, address: str, topic: str, key: bytes) -> None:
    routes = Routes([entry])
    routed = routes.route(address)
    assert (routed.topic, routed.key, routed.needs_header) == (topic, key, False)
    assert routes.address_of(topic, key) == address


def test_hub_addresses_match_no_leading_wildcard() -> None:
    routes = Routes([RouteEntry("#", "all"), RouteEntry("{x}/y", "some")])
    with pytest.raises(InvalidAddress):
        routes.route("$SYS/y")


def test_a_hub_address_is_stored_only_in_a_topic_that_a_route_gives_it() -> None:
    routes = Routes([RouteEntry("$queue/{name}", "{name}", "{address}")])
    assert routes.route("$queue/orders")[:2] == ("orders", b"$queue/orders")
    for address in ("$queue/no topic", "$queue/unrouted", "$other/orders"):
        with pytest.raises(InvalidAddress):
            routes.route(address)


UNROUTED = RouteEntry("#", "unrouted")
ILLEGAL = ("a/b c/d", "a//d", "a/unrouted/d", "machine 3/temp", "/x", "unrouted/x")


@pytest.mark.parametrize("address", ILLEGAL)
def test_what_leads_to_no_topic_is_unroutable(address: str) -> None:
    with pytest.raises(Unroutable):
        Routes([RouteEntry("a/{x}/#", "{x}", "{rest}")]).route(address)


@pytest.mark.parametrize("entries", [(UNROUTED, RouteEntry("a/{x}/#", "{x}", "{rest}")),
                                     (RouteEntry("a/{x}/#", "{x}", "{rest}"), UNROUTED)])
def test_a_route_to_unrouted_takes_what_has_no_topic_otherwise(entries: tuple[RouteEntry, ...]) -> None:
    routes = Routes(entries)
    for address in ILLEGAL:
        routed = routes.route(address)
        assert (routed.topic, routed.key, routed.needs_header) == ("unrouted", address.encode(), False)
        assert routed.route is not None and routed.route.entry is UNROUTED
    assert (routes.route("a/t/1").topic, routes.route("plant/1").topic) == ("t", "plant")
    assert routes.entries == entries, "as they were given"


def test_a_route_to_unrouted_takes_what_its_filter_matches() -> None:
    routes = Routes([RouteEntry("/#", "unrouted", partition_key="{rest}")])
    assert routes.route("/home/temp")[:3] == ("unrouted", b"/home/temp", b"home/temp")
    for address in ("machine 3/temp", "$queue/x"):
        with pytest.raises(InvalidAddress):
            routes.route(address)


def test_an_address_that_topic_and_key_cannot_express_needs_the_header() -> None:
    routed = Routes().route("plant/")
    assert (routed.topic, routed.key, routed.needs_header) == ("plant", b"", True)
    assert Routes().address_of("plant", b"", ((b"address", b"plant/"),)) == "plant/"


def test_two_routes_that_write_the_same_key_are_told_apart_by_the_header() -> None:
    routes = Routes([RouteEntry("a/{x}", "t", "{x}"), RouteEntry("b/{x}", "t", "{x}")])
    first, second = routes.route("a/1"), routes.route("b/1")
    assert first[:2] == second[:2] == ("t", b"1")
    assert (first.needs_header, second.needs_header) == (False, True)
    assert routes.address_of("t", b"1") == "a/1"
    assert routes.address_of("t", b"1", ((b"address", b"b/1"),)) == "b/1"


def test_a_way_back_that_another_route_would_take_is_not_taken() -> None:
    """The second route's key alone says a/1, but that address goes to the first route's topic."""
    routes = Routes([RouteEntry("a/1", "special"), RouteEntry("a/{x}", "t", "{x}")])
    assert routes.address_of("t", b"1") == "t/1"
    assert routes.address_of("t", b"2") == "a/2"


@pytest.mark.parametrize("header", [b"other/1", b"", None, b"t/+", b"\xff", b"$SYS/x", b"t\0"])
def test_a_header_that_does_not_route_here_is_not_believed(header: bytes | None) -> None:
    assert Routes().address_of("t", b"1", ((b"address", header),)) == "t/1"


def test_the_last_address_header_counts() -> None:
    """It is the hub's, where a sender had one of its own."""
    assert Routes().address_of("t", b"1", ((b"x", b"t/9"), (b"address", b"t/2"), (b"address", b"t/3"))) == "t/3"


def test_a_key_whose_address_is_diverted_still_has_one() -> None:
    routes = Routes([RouteEntry("plant/{x}/gps", "positions", "{x}")])
    assert routes.address_of("plant", b"7/gps") == "plant/7/gps"
    assert routes.route("plant/7/gps").topic == "positions", "no address leads there"


def test_what_has_lost_its_topic_is_unrouted() -> None:
    routed = Routes().unrouted("plant/line1")
    assert (routed.topic, routed.key) == ("unrouted", b"plant/line1")
    assert Routes().address_of("unrouted", b"plant/line1") == "plant/line1"


@pytest.mark.parametrize(("entry", "field", "words"), [
    (RouteEntry("a/{x", "t"), "filter", "whole level"),
    (RouteEntry("a/b{x}", "t"), "filter", "whole level"),
    (RouteEntry("a/{x}/{x}", "t"), "filter", "twice"),
    (RouteEntry("a/{rest}", "t"), "filter", "taken"),
    (RouteEntry("a/b+", "t"), "filter", "no filter"),
    (RouteEntry("", "t"), "filter", "no filter"),
    (RouteEntry("a/#/b", "t"), "filter", "last level"),
    (RouteEntry("a", "no topic"), "topic", "no topic"),
    (RouteEntry("a/{x}", "unrouted", "{x}"), "key", "{address}"),
    (RouteEntry("a/{x}", "{y}"), "topic", "{x}"),
    (RouteEntry("a/#", "{rest}"), "topic", "nothing captures"),
    (RouteEntry("a", "t", "{rest}"), "key", "nothing captures"),
    (RouteEntry("a", "t", "}"), "key", "belongs to no"),
    (RouteEntry("a", "t", "{address}", "{x}"), "partition_key", "nothing captures"),
    (RouteEntry("a/{x}", "t", "fixed"), "key", "does not determine {x}"),
    (RouteEntry("a/{x}/{y}", "t", "{x}-{y}"), "key", "does not determine {x}, {y}"),
    (RouteEntry("a/{x}/{y}", "t", "{x}{y}"), "key", "{y}"),
    (RouteEntry("a/{x}/{y}", "{x}-{y}", "k"), "key", "{x}"),
    (RouteEntry("a/+/{x}", "t", "{x}"), "key", "the '+'"),
    (RouteEntry("a/{x}/#", "t", "{x}"), "key", "the '#'"),
    (RouteEntry("a/{x}/#", "t", "{rest}/{address}"), "key", "{x}"),
])
def test_problems_are_named(entry: RouteEntry, field: str, words: str) -> None:
    with pytest.raises(InvalidRoutes) as raised:
        Routes([RouteEntry("fine", "fine"), entry])
    (problem,) = raised.value.problems
    assert (problem.index, problem.field) == (1, field)
    assert words in problem.text
    assert f"routes[1].{field}" in str(raised.value)


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(InvalidRoutes) as raised:
        Routes([RouteEntry("a/{x}", "no topic", "{z}", "{q}"), RouteEntry("#/a", "t")])
    found = [(problem.index, problem.field) for problem in raised.value.problems]
    assert found == [(0, "key"), (0, "partition_key"), (1, "filter")]


def test_routes_of_the_hubs_own_come_last_and_are_not_shown() -> None:
    own = RouteEntry("$own/#", "kept", "{rest}")
    routes = Routes([FLEET], [own])
    assert routes.entries == (FLEET,) and routes.any and not Routes([], [own]).any
    assert routes.is_own("kept") and not routes.is_own("positions")
    assert routes.route("$own/a/b")[:2] == ("kept", b"a/b") and routes.address_of("kept", b"a/b") == "$own/a/b"
    assert routes.route("$own").needs_header, "nothing says it but the header"
    assert Routes([RouteEntry("$own/#", "mine")], [own]).route("$own/a").topic == "mine"
    with pytest.raises(InvalidAddress):
        routes.route("$other/a")
