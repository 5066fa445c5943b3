"""Everything that a client of this door can ask for, name by name, and what becomes of it: the one table of that. Pure.

No argument, flag, header or property is taken and silently forgotten: it is *honoured*; or some or all of its values
are *refused* in RabbitMQ's words; or it is taken *without effect*, because it changes nothing that anybody could see;
or it is *counted*: taken without effect, noted in the metrics and once a client in the log. A test compares this table
with the methods that clients send, with the properties of a message, and with what `arguments` reads; another one finds
the last two kinds in the README.
"""
from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Fate(Enum):
    HONOURED = "honoured"
    REFUSED = "refused, as in RabbitMQ"
    NO_EFFECT = "without effect"
    COUNTED = "without effect, and counted"


class Asked(NamedTuple):
    where: str                         # a method; or `header`, `property` of a message
    name: str                          # of a field of the method, or of an argument
    fate: Fate
    instead: str = ""                  # what happens instead


HONOURED, REFUSED, NO_EFFECT, COUNTED = Fate

UNKNOWN: Final = "unknown-argument"
"""Stands for an argument that begins with `x-` and that nobody knows."""


def _rows(where: str, fate: Fate, names: str, instead: str = "") -> list[Asked]:
    return [Asked(where, name, fate, instead) for name in names.split()]


ASKED: Final = (  # decision 187
    *_rows("connection.start-ok", HONOURED, "client_properties mechanism response"),
    *_rows("connection.start-ok", NO_EFFECT, "locale", "texts are English"),
    *_rows("connection.secure-ok", REFUSED, "response"),
    *_rows("connection.tune-ok", HONOURED, "channel_max frame_max heartbeat"),
    *_rows("connection.open", HONOURED, "virtual_host"),
    *_rows("connection.open", NO_EFFECT, "insist", "there is one hub to be connected to"),
    *_rows("connection.close", HONOURED, "code text class_id method_id"),
    *_rows("connection.update-secret", HONOURED, "secret"),
    *_rows("connection.update-secret", NO_EFFECT, "reason", "it is for people"),
    *_rows("access.request", NO_EFFECT, "realm exclusive passive active write read",
           "answered with ticket 1, as in RabbitMQ; rights are asked for by each method"),
    *_rows("channel.flow", REFUSED, "active"),
    *_rows("channel.close", HONOURED, "code text class_id method_id"),
    *_rows("exchange.declare", HONOURED, "exchange type passive durable auto_delete internal no_wait arguments"),
    *_rows("exchange.declare", HONOURED, "alternate-exchange"),
    *_rows("exchange.delete", HONOURED, "exchange if_unused no_wait"),
    *_rows("exchange.bind", HONOURED, "destination source routing_key no_wait arguments"),
    *_rows("exchange.unbind", HONOURED, "destination source routing_key no_wait arguments"),
    *_rows("queue.declare", HONOURED, "queue passive durable exclusive auto_delete no_wait arguments"),
    *_rows("queue.declare", HONOURED, "x-expires x-message-ttl x-max-length x-max-length-bytes x-max-priority "
                                      "x-delivery-limit x-consumer-timeout x-dead-letter-exchange "
                                      "x-dead-letter-routing-key x-overflow x-queue-type x-single-active-consumer"),
    *_rows("queue.declare", NO_EFFECT, "x-stream-max-segment-size-bytes x-stream-filter-size-bytes "
                                       "x-initial-cluster-size", "streams lie in the hub's own log"),
    *_rows("queue.declare", NO_EFFECT, "x-dead-letter-strategy",
           "dead letters are stored in the frame that takes them out of their queue: `at-least-once`, always"),
    *_rows("queue.declare", NO_EFFECT, "x-queue-mode x-queue-version x-max-in-memory-length x-max-in-memory-bytes",
           "every queue is on the disk, and only what is being read in memory"),
    *_rows("queue.declare", NO_EFFECT, "x-queue-master-locator x-queue-leader-locator x-quorum-initial-group-size",
           "there is one hub"),
    *_rows("queue.bind", HONOURED, "queue exchange routing_key no_wait arguments"),
    *_rows("queue.unbind", HONOURED, "queue exchange routing_key arguments"),
    *_rows("queue.purge", HONOURED, "queue no_wait"),
    *_rows("queue.delete", HONOURED, "queue if_unused if_empty no_wait"),
    *_rows("basic.qos", HONOURED, "prefetch_count global"),
    *_rows("basic.qos", REFUSED, "prefetch_size"),
    *_rows("basic.consume", HONOURED, "queue consumer_tag no_ack exclusive no_wait arguments"),
    *_rows("basic.consume", HONOURED, "x-priority x-consumer-timeout"),
    *_rows("basic.consume", COUNTED, "no_local",
           "a consumer is given what its own connection publishes, too, as in RabbitMQ"),
    *_rows("basic.cancel", HONOURED, "consumer_tag no_wait"),
    *_rows("basic.publish", HONOURED, "exchange routing_key mandatory"),
    *_rows("basic.publish", REFUSED, "immediate"),
    *_rows("basic.get", HONOURED, "queue no_ack"),
    *_rows("basic.ack", HONOURED, "delivery_tag multiple"),
    *_rows("basic.reject", HONOURED, "delivery_tag requeue"),
    *_rows("basic.nack", HONOURED, "delivery_tag multiple requeue"),
    *_rows("basic.recover", REFUSED, "requeue"),
    *_rows("basic.recover-async", REFUSED, "requeue"),
    *_rows("confirm.select", HONOURED, "no_wait"),
    *_rows("queue.declare", COUNTED, UNKNOWN, "what it might mean does not happen, as in RabbitMQ"),
    *_rows("property", HONOURED, "headers delivery_mode priority reply_to expiration user_id message_id"),
    *_rows("property", NO_EFFECT, "content_type content_encoding correlation_id timestamp type app_id "
                                  "cluster_id", "they are the clients': kept, and shown to other doors"),
    *_rows("header", HONOURED, "CC BCC x-half x-half-id x-half-check x-death x-delay-key x-idempotent "
                              "x-stream-filter-value"),
    *_rows("exchange.declare", HONOURED, "x-delayed-type hash-header hash-property"),
    *_rows("queue.declare", HONOURED, "x-max-age"),
    *_rows("basic.consume", HONOURED, "x-stream-offset x-stream-filter x-stream-match-unfiltered"),
    *_rows("header", COUNTED, "x-delay",
           "an exchange that is no `x-delayed-message` delivers the message at once, as RabbitMQ does"),
)

NOT_HONOURED: Final = {row.name: row.instead for row in ASKED if row.fate is COUNTED}
"""What is counted, and what happens instead; see `gateways.not_honoured`."""
