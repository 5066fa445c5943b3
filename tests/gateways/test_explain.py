"""`explain` by example, from every door."""
from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gatehouse.gateways.explain import Explanation, UnknownDoor, explain
from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.errors import InvalidAddress, InvalidTopic
from tests.gateways.columns import COLUMNS, SPECS

ROUTES = Routes([RouteEntry("fleet/{vehicle}/gps/#", "positions", "{address}", "{vehicle}"),
                 RouteEntry("$queue/orders", "orders", "{address}"),
                 RouteEntry("any/{name}/#", "any-{name}", "{rest}")])



def amqp_names(told: Explanation) -> list[tuple[str, str]]:
    return [(name["exchange"], name["routing_key"]) for name in told.as_dict()["doors"]["amqp"]]


@pytest.mark.parametrize(("door", "spelled"), [
    ("mqtt", "plant/line1/temp"), ("mqtt5", "plant/line1/temp"), ("http", "plant/line1/temp"),
    ("http", "/v1/publish/plant/line1/temp"), ("amqp", "plant/line1.temp"), ("amqp", "amq.topic/plant.line1.temp"),
    ("amqp", "plant.line1.temp"), ("kafka", "plant:line1/temp"), ("kafka", "plant/line1/temp"),
])
def test_one_address_from_every_door(door: str, spelled: str) -> None:
    told = explain(door, spelled, ROUTES, 4, SPECS)
    assert (told.address, told.topic, told.key) == ("plant/line1/temp", "plant", b"line1/temp")
    assert told.partition == partition_for(b"line1/temp", 4)
    assert amqp_names(told) == [("amq.topic", "plant.line1.temp"), ("plant", "line1.temp")]
    assert told.as_dict()["doors"]["http"] == [
        "/v1/publish/plant/line1/temp", "/v1/topics/plant/messages?key=line1/temp"]
    assert told.route is None and not told.needs_header


def test_what_people_read() -> None:
    assert explain("mqtt", "plant/line1/temp", ROUTES, 4, SPECS).text() == """\
address                   plant/line1/temp
decided by                the default rule: the first level is the topic, the rest the key
stored in                 topic plant, key 'line1/temp'
partition                 0 of 0 to 3
note                      a missing topic is made for who may create here, or publish at plant/#

MQTT                      plant/line1/temp
HTTP                      /v1/publish/plant/line1/temp
HTTP                      /v1/topics/plant/messages?key=line1/temp
AMQP                      exchange amq.topic, routing key 'plant.line1.temp'
AMQP                      exchange plant, routing key 'line1.temp'
Kafka                     topic plant, key 'line1/temp'
Spark                     topic plant, key 'line1/temp', address plant/line1/temp

MQTT 3.1.1 to MQTT 3.1.1  all properties
MQTT 3.1.1 to MQTT 5      all properties
MQTT 3.1.1 to HTTP        all properties
MQTT 3.1.1 to AMQP        all properties
MQTT 3.1.1 to Kafka       all but durability"""


def test_a_route_is_named() -> None:
    told = explain("mqtt", "fleet/7/gps/lat", ROUTES, 8, SPECS)
    assert (told.topic, told.key, told.partition, told.route) == ("positions", b"fleet/7/gps/lat",
                                                                  partition_for(b"7", 8), 0)
    assert told.decided_by == "routes[0], filter fleet/{vehicle}/gps/#"


@pytest.mark.parametrize(("address", "words"), [
    ("machine 3/temp", "'machine 3', is no topic name"), ("unrouted/x", "is for what a route sends there"),
    ("any/no topic/x", "is no topic that it may name"),
])
def test_why_something_has_no_topic_and_which_route_gives_it_one(address: str, words: str) -> None:
    told = explain("mqtt", address, ROUTES, 4, SPECS)
    assert told.topic is None and words in told.decided_by and "refused" in told.notes[0]
    told = explain("mqtt", address, Routes([RouteEntry("#", "unrouted"), *ROUTES.entries]), 4, SPECS)
    assert (told.topic, told.key, told.route) == ("unrouted", address.encode(), 0)
    assert "no topic otherwise" in told.decided_by


def test_who_makes_a_missing_topic() -> None:
    assert "create here, or publish at plant/#" in explain("mqtt", "plant/x", ROUTES, 4, SPECS).notes[0]
    assert explain("mqtt", "fleet/7/gps/lat", ROUTES, 4, SPECS).notes[0].endswith("may create here")


def test_a_queue_is_stored_in_a_topic_only_by_a_route() -> None:
    told = explain("amqp", "/jobs", ROUTES, 4, SPECS)
    assert (told.address, told.topic, told.partition) == ("$queue/jobs", None, None)
    assert told.decided_by.startswith("no route")
    assert amqp_names(told)[1] == ("", "jobs")
    assert "no topic" in told.text() and "the default exchange" in told.text()
    assert explain("amqp", "/orders", ROUTES, 4, SPECS).topic == "orders"


def test_an_address_that_needs_the_header_says_so() -> None:
    told = explain("mqtt", "plant/", ROUTES, 4, SPECS)
    assert told.needs_header
    assert any("'address'" in note for note in told.notes)
    assert told.as_dict()["doors"]["http"] == ["/v1/publish/plant/"]
    assert "x-address" in told.text()


def test_kafka_without_a_key() -> None:
    told = explain("kafka", "plant", ROUTES, 4, SPECS)
    assert (told.address, told.key, told.partition) == ("plant", None, None)
    assert "chosen by the producer" in told.text()


def test_kafka_into_a_topic_that_routes_keep_from_others() -> None:
    told = explain("kafka", "fleet:7/gps/lat", ROUTES, 4, SPECS)
    assert (told.address, told.topic) == ("fleet/7/gps/lat", "fleet")
    assert any("stored in topic positions" in note for note in told.notes)


def test_dot_segments_are_warned_of() -> None:
    assert any("fold" in note for note in explain("mqtt", "plant/../x", ROUTES, 4, SPECS).notes)


@pytest.mark.parametrize(("door", "spelled", "error"), [
    ("smtp", "a", UnknownDoor), ("mqtt", "a/#", InvalidAddress), ("mqtt", "", InvalidAddress),
    ("http", "%FF", InvalidAddress),
    ("kafka", "no topic:x", InvalidTopic), ("kafka", "", InvalidTopic), ("amqp", "\ud800/x", InvalidAddress),
])
def test_what_cannot_be_explained(door: str, spelled: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        explain(door, spelled, ROUTES, 4, SPECS)


@pytest.mark.parametrize("door", [*SPECS, *COLUMNS])
def test_for_programs(door: str) -> None:
    told = explain(door, "plant/ü", ROUTES, 4, SPECS).as_dict()
    assert json.loads(json.dumps(told)) == told
    assert set(told["survives"]) == set(COLUMNS)
    assert told["survives"]["mqtt3"]["carried"] == ["durability", "retain"]
    for column in told["survives"].values():
        assert not set(column["carried"]) & set(column["lost"])


def test_nothing_moves_the_terminals_cursor() -> None:
    assert "\x1b" not in explain("mqtt", "a/\x1b[2J", ROUTES, 4, SPECS).text()


def test_a_door_that_does_not_say_how_it_spells_addresses_is_no_door_here() -> None:
    silent = replace(SPECS["mqtt"], name="smoke", door=None, columns=(), spelling=None)
    with pytest.raises(UnknownDoor, match="there are amqp, http, kafka, mqtt, mqtt3, mqtt5"):
        explain("smoke", "a", ROUTES, 4, SPECS | {"smoke": silent})
    assert explain("mqtt", "a/b", ROUTES, 4, SPECS | {"smoke": silent}).as_dict() \
        == explain("mqtt", "a/b", ROUTES, 4, SPECS).as_dict()
