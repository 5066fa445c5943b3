"""Which limits speak of whom."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.admission.limits.book import METERS_MAX, LimitBook
from gatehouse.gateways.admission.limits.limit import IN, OUT, Quota, read_limit
from gatehouse.gateways.admission.limits.meter import Meter


def book_of(*tables: dict[str, Any]) -> LimitBook:
    book = LimitBook()
    for number, table in enumerate(tables):
        book.put(read_limit({"messages_per_s": 10, **table}, str(number)), 0)
    return book


def names(meters: tuple[Meter, ...]) -> list[str]:
    return sorted(meter.limit.of for meter in meters)


def connection(book: LimitBook, direction: str = IN, **changes: Any) -> tuple[Meter, ...]:
    who: dict[str, Any] = {"door": "mqtt", "user": "ann", "groups": ["ops"], "tenant": "/", "client_id": "s1"}
    return book.of_connection(direction, now_ms=0, **{**who, **changes})


def test_what_applies_to_a_connection() -> None:
    kinds = ["hub", "door:mqtt", "tenant:/", "group:ops", "user:ann", "client:s1"]
    others = ["door:http", "tenant:blue", "group:night", "user:bob", "client:s2", "topic:plant", "address:#"]
    book = book_of(*[{"of": of} for of in (*kinds, *others)], {"of": "user:ann", "direction": "out"})
    assert names(connection(book)) == sorted(kinds)
    assert names(connection(book, OUT)) == ["user:ann"]
    assert names(connection(book, client_id="")) == sorted(set(kinds) - {"client:s1"})


def test_each_user_has_a_bucket_of_its_own_where_the_name_is_a_star() -> None:
    book = book_of({"of": "user:*"})
    [ann], [bob] = connection(book), connection(book, user="bob")
    assert ann is not bob and ann is connection(book, door="http")[0]
    assert (ann.name, bob.name) == ("ann", "bob")


def test_a_client_is_one_of_its_tenant() -> None:
    book = book_of({"of": "client:s1", "tenant": "blue"}, {"of": "client:*", "tenant": "*"})
    assert len(connection(book)) == 1 and len(connection(book, tenant="blue")) == 2
    assert connection(book)[0] is not connection(book, tenant="green")[0]


def test_what_applies_to_a_place() -> None:
    book = book_of({"of": "topic:plant"}, {"of": "address:plant/#"}, {"of": "address:+/a"}, {"of": "address:plant/b"},
                   {"of": "address:#", "tenant": "blue"})
    assert names(book.of_place(IN, "/", "plant", "plant/a", 0)) == ["address:+/a", "address:plant/#", "topic:plant"]
    assert names(book.of_place(IN, "blue", "plant", "plant/a", 0)) == ["address:#"]
    assert names(book.of_topic(IN, "/", "plant", 0)) == [
        "address:+/a", "address:plant/#", "address:plant/b", "topic:plant"]


def test_a_limit_that_changes_keeps_its_meters_and_one_that_goes_lets_them_go() -> None:
    book = book_of({"of": "user:ann"})
    [meter] = connection(book)
    meter.charge(30, 0, 1, 0)
    version = book.version
    book.put(read_limit({"of": "user:ann", "messages_per_s": 20}, "0"), 0)
    assert connection(book) == (meter,) and book.version != version and meter.wait_ms(0) == 1000
    book.put(read_limit({"of": "user:bob", "messages_per_s": 20}, "0"), 0)
    assert connection(book) == () and len(connection(book, user="bob")) == 1
    book.remove("0")
    book.remove("0")
    assert (len(book), book.limits_in, book.places_in) == (0, 0, 0)


def test_quotas_of_users_are_limits() -> None:
    book = LimitBook()
    book.put_quotas({"ann": Quota(messages_per_s=2.5), "bob": Quota()}, 0)
    assert [limit.of for limit in book] == ["user:ann"]
    book.put_quota("ann", Quota(), 0)
    book.put_quota("ann", Quota(), 0)
    assert len(book) == 0


def test_ten_thousand_users_with_limits_and_more_names_than_are_remembered() -> None:
    book = book_of(*[{"of": f"user:u{number}"} for number in range(10_000)], {"of": "user:*"})
    assert names(connection(book, user="u9999")) == ["user:*", "user:u9999"]
    for number in range(METERS_MAX + 10):
        connection(book, user=f"n{number}")
    assert len(book._meters) == METERS_MAX


def test_of_ten_thousand_limits_those_of_connections_and_addresses_are_found_and_gone_again() -> None:
    book = book_of(*[{"of": f"user:u{number}", "connections": number} for number in range(10_000)],
                   {"of": "hub", "connections": 5}, {"of": "user:*", "connections": 7}, {"of": "tenant:/"})
    assert [(limit.connections, kind, name) for limit, kind, name in book.of_connections("mqtt", "u9999", "/")] == [
        (5, "hub", ""), (9999, "user", "u9999"), (7, "user", "u9999")]
    book.put(read_limit({"of": "user:u9999", "messages_per_s": 1}, "9999"), 0)
    book.remove("10001")
    assert [kind for _, kind, _ in book.of_connections("mqtt", "u9999", "/")] == ["hub"]
    for number in range(10_003):
        book.remove(str(number))
    assert book.of_connections("mqtt", "u1", "/") == [] and len(book) == 0

    book = book_of(*[{"of": f"address:plant/{number}/#"} for number in range(100)], {"of": "address:#", "tenant": "*"})
    assert len(book.of_topic(IN, "/", "plant", 0)) == 64 and names(book.of_topic(IN, "/", "other", 0)) == ["address:#"]
    for number in range(101):
        book.remove(str(number))
    assert book.of_topic(IN, "/", "plant", 0) == () and not book._meters and not book._meters_by_id


def test_what_yields_holds_only_where_nothing_more_special_does() -> None:
    kinds = ["user-client:ann/s1", "user-client:ann/*", "user:ann", "user-client:*/s1", "user-client:*/*", "user:*",
             "client:s1", "client:*"]
    for count in range(1, len(kinds) + 1):
        book = book_of(*[{"of": of, "yields": True} for of in kinds[-count:]])
        assert names(connection(book)) == [kinds[-count]]
        kind = kinds[-count].partition(":")[0]
        assert connection(book)[0].name == {"user": "ann", "client": "s1"}.get(kind, "ann/s1")
    assert names(connection(book, user="bob", client_id="s2")) == ["user-client:*/*"]
    assert names(connection(book, user="bob", client_id="")) == ["user:*"]


def test_what_yields_does_so_to_a_quota_and_only_where_both_bound_the_same() -> None:
    book = book_of({"of": "user:*", "yields": True}, {"of": "client:s1"})
    assert names(connection(book)) == ["client:s1", "user:*"], "that one does not yield"
    book.put_quota("ann", Quota(bytes_per_s=7), 0)
    assert names(connection(book)) == ["client:s1", "user:*", "user:ann"]
    book.put_quota("ann", Quota(messages_per_s=7), 0)
    assert names(connection(book)) == ["client:s1", "user:ann"]
