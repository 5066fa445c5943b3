"""Each door's spelling of an address, by example."""
from __future__ import annotations

import pytest

from gatehouse.gateways.amqp.addresses import (
    address_of_amqp,
    amqp_by_exchange,
    amqp_whole,
    filter_of_binding,
    level_of_word,
    word_of_level,
)
from gatehouse.gateways.http.addresses import address_of_http, http_path, http_topic_target
from gatehouse.gateways.kafka.column import parse_kafka_name
from gatehouse.gateways.mqtt.column import address_of_mqtt
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches
from gatehouse.kernel.errors import InvalidAddress

Spelled = tuple[str, str, "str | None"]


@pytest.mark.parametrize(("level", "word"), [
    ("temp", "temp"), ("", ""), ("ü", "ü"), ("*", "*"),
    ("v1.2", "v1%2E2"), (".", "%2E"), ("192.168.0.1", "192%2E168%2E0%2E1"),
    ("a%2Fb", "a/b"), ("%2B", "+"), ("%23", "#"),
    ("100%", "100%"), ("5% off", "5% off"), ("%zz", "%zz"),                     # no two hex digits: as it is
    ("50%41", "50%2541"), ("%2E", "%252E"), ("%252E", "%25252E"), ("%2e", "%252e"), ("%25", "%2525"), ("%00", "%2500"),
    ("%252F", "%252F"), ("%25.", "%2525%2E"), ("%.", "%%2E"),
])
def test_level_and_word(level: str, word: str) -> None:
    assert word_of_level(level) == word
    assert level_of_word(word) == level


@pytest.mark.parametrize(("word", "level"), [
    ("%41", "%41"), ("%2F", "%252F"), ("%2e", "%2e"), ("%25", "%25"), ("a\0", "a%00"),
])
def test_words_that_were_not_escaped_are_read_as_if_they_had_been(word: str, level: str) -> None:
    assert level_of_word(word) == level
    assert level_of_word(word_of_level(level)) == level


@pytest.mark.parametrize(("address", "whole", "by_exchange"), [
    ("plant/line1/temp", ("amq.topic", "plant.line1.temp", None), ("plant", "line1.temp", None)),
    ("plant", ("amq.topic", "plant", None), ("plant", "", None)),
    ("plant/", ("amq.topic", "plant.", None), ("plant", "", "plant/")),
    ("/a//b", ("amq.topic", ".a..b", None), None),
    ("spBv1.0/G/NDATA", ("amq.topic", "spBv1%2E0.G.NDATA", None), ("spBv1.0", "G.NDATA", None)),
    ("a%2Fb/c", ("amq.topic", "a/b.c", None), ("a/b", "c", None)),
    ("amq.topic", ("amq.topic", "amq%2Etopic", None), None),
    ("$queue/jobs", ("amq.topic", "$queue.jobs", None), ("", "jobs", None)),
    ("$queue/a.b", ("amq.topic", "$queue.a%2Eb", None), ("", "a.b", None)),
    ("$queue/a/b", ("amq.topic", "$queue.a.b", None), ("$queue", "a.b", None)),
])
def test_amqp(address: str, whole: Spelled, by_exchange: Spelled | None) -> None:
    assert amqp_whole(address) == whole
    assert amqp_by_exchange(address) == by_exchange
    assert address_of_amqp(*whole) == address
    if by_exchange is not None:
        assert address_of_amqp(*by_exchange) == address


def test_amqp_without_a_routing_key() -> None:
    assert address_of_amqp("plant", "") == "plant"
    assert address_of_amqp("amq.topic", "") == "amq.topic"
    assert address_of_amqp("amq.fanout", "") == "amq.fanout"


def test_a_long_routing_key_is_cut_at_a_character_and_carries_the_whole() -> None:
    address = "plant/" + "ü" * 200
    whole = amqp_whole(address)
    assert whole.x_address == address
    assert 250 < len(whole.routing_key.encode()) <= 255
    assert whole.routing_key.startswith("plant.ü")
    assert address_of_amqp(*whole) == address
    other = amqp_whole(address + "x")
    assert other.routing_key != whole.routing_key
    assert address_of_amqp(other.exchange, other.routing_key, address) != address


def test_an_exchange_name_that_is_too_long_cannot_be() -> None:
    assert amqp_by_exchange("x" * 256 + "/a") is None
    assert amqp_by_exchange("$queue/" + "x" * 256) is None


@pytest.mark.parametrize("stated", ["other/line1", "plant/+", "", "plant/line1/x"])
def test_an_x_address_that_is_spelled_otherwise_is_not_believed(stated: str) -> None:
    assert address_of_amqp("plant", "line1", stated) == "plant/line1"


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidAddress):
        address_of_amqp("plant", "\ud800")


@pytest.mark.parametrize(("exchange", "pattern", "levels"), [
    ("amq.topic", "plant.*.temp", ("plant", "+", "temp")),
    ("amq.topic", "plant.#", ("plant", "#")),
    ("amq.topic", "#.temp", ("#", "temp")),
    ("amq.topic", "", ("amq.topic",)),
    ("plant", "*.temp", ("plant", "+", "temp")),
    ("plant", "#", ("plant", "#")),
    ("plant", "", ("plant",)),
    ("a/b", "v1%2E2.+", ("a%2Fb", "v1.2", "%2B")),
])
def test_bindings(exchange: str, pattern: str, levels: tuple[str, ...]) -> None:
    assert filter_of_binding(exchange, pattern) == levels


def test_a_star_means_what_a_plus_means_though_a_level_holds_dots() -> None:
    levels = levels_of(address_of_amqp("amq.topic", "plant.v1%2E2.temp"))
    assert matches(filter_of_binding("amq.topic", "plant.*.temp"), levels)
    assert matches(("plant", "+", "temp"), levels)


@pytest.mark.parametrize(("address", "path"), [
    ("plant/line1/temp", "plant/line1/temp"), ("/a//b/", "/a//b/"), ("a%2Fb/c", "a%2Fb/c"), ("a%252Fb", "a%252Fb"),
    ("a b/ü", "a%20b/%C3%BC"), ("50%/%41", "50%25/%2541"), ("a%2Bb", "a%2Bb"), ("q?x", "q%3Fx"), ("v1.2", "v1.2"),
    ("$queue/jobs", "$queue/jobs"),
])
def test_http(address: str, path: str) -> None:
    assert http_path(address) == path
    assert address_of_http(path) == address


@pytest.mark.parametrize(("path", "address"), [
    ("a%62c", "abc"), ("100%", "100%"), ("a+b", "a%2Bb"), ("a%23", "a%23"), ("ü", "ü"),
])
def test_http_paths_that_clients_write_otherwise(path: str, address: str) -> None:
    assert address_of_http(path) == address


@pytest.mark.parametrize("path", ["", "%FF", "a/%ED%A0%80", "x" * 65536])
def test_http_paths_that_are_no_address(path: str) -> None:
    with pytest.raises(InvalidAddress):
        address_of_http(path)


def test_http_by_topic_and_key() -> None:
    assert http_topic_target("plant", b"line1/temp") == "/v1/topics/plant/messages?key=line1/temp"
    assert http_topic_target("plant", b"a&b=\xff+") == "/v1/topics/plant/messages?key=a%26b%3D%FF%2B"
    assert http_topic_target("plant", None) == "/v1/topics/plant/messages"


@pytest.mark.parametrize("name", ["", "a/#", "a+b", "a\0"])
def test_mqtt_names_that_are_no_address(name: str) -> None:
    with pytest.raises(InvalidAddress):
        address_of_mqtt(name)


def test_an_mqtt_name_is_the_address() -> None:
    assert address_of_mqtt("a%2Fb//v1.2") == "a%2Fb//v1.2"


@pytest.mark.parametrize(("text", "topic", "key"), [
    ("plant:line1/temp", "plant", b"line1/temp"), ("plant/line1/temp", "plant", b"line1/temp"),
    ("plant", "plant", None), ("plant:", "plant", b""), ("plant/a:b", "plant", b"a:b"),
])
def test_kafka_for_people(text: str, topic: str, key: bytes | None) -> None:
    assert parse_kafka_name(text) == (topic, key)


