"""What clients get wrong, and what they may do: each case is asked of RabbitMQ and of the hub, which answer the same.

A case is its name and its steps on one or two connections of their own. What it declares is gone before the next case.
"""
from __future__ import annotations

import struct
from typing import Any, Final

from pika import spec

from tests.rabbitmq.frameworks import FRAMEWORKS
from tests.rabbitmq.steps import AWAITED, QUORUM, STREAM, bind, consume, exchange, get, publish, qos, queue
from tests.rabbitmq.wire import Raw, Send, Step

Basic, Channel, Confirm, Connection, Exchange, Queue, Tx = (
    spec.Basic, spec.Channel, spec.Confirm, spec.Connection, spec.Exchange, spec.Queue, spec.Tx)

BIG: Final = 1 << 62


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def declare_with_table(data: bytes) -> Raw:
    """queue.declare of `q` whose arguments are these bytes."""
    return Raw(frame(1, 1, struct.pack(">HHH", 50, 10, 0) + b"\x01q\x02" + struct.pack(">I", len(data)) + data))


# Arguments of queue.declare, one wrong at a time.
NUMBERS: Final = ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority")
TEXTS: Final = ("x-dead-letter-exchange", "x-overflow", "x-queue-type", "x-queue-mode")


def _arguments() -> dict[str, tuple[Step, ...]]:
    found: dict[str, tuple[Step, ...]] = {}
    for name in NUMBERS:
        for value in ("1", -1, 0, True, None, [1], {"a": 1}):
            found[f"{name} {value!r}"] = (queue(**{name: value}),)
    for name in (*NUMBERS, "x-delivery-limit", "x-quorum-initial-group-size", "x-max-in-memory-length"):
        for value in ("1", -5, 0):
            found[f"quorum {name} {value!r}"] = (queue(**QUORUM, **{name: value}),)
    for name in TEXTS:
        for value in (1, True, "", "nonsense", None):
            found[f"{name} {value!r}"] = (queue(**{name: value}),)
    for name in ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-max-length-bytes",
                 "x-queue-leader-locator"):
        for value in (1, -1, 0, "", "1D", "D", "-1D", "1x", "client-local", None, True):
            found[f"stream {name} {value!r}"] = (queue(**STREAM, **{name: value}),)
    for name in ("x-expires", "x-message-ttl", "x-max-length", "x-max-priority", "x-dead-letter-exchange",
                 "x-overflow", "x-single-active-consumer", "x-delivery-limit", "x-quorum-initial-group-size",
                 "x-queue-mode"):
        found[f"stream refuses {name}"] = (queue(**STREAM, **{name: _some(name)}),)
    for name in ("x-max-priority", "x-queue-mode", "x-max-age", "x-initial-cluster-size"):
        found[f"quorum refuses {name}"] = (queue(**QUORUM, **{name: _some(name)}),)
    for name in ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-delivery-limit",
                 "x-quorum-initial-group-size", "x-dead-letter-strategy", "x-max-in-memory-length",
                 "x-max-in-memory-bytes"):
        found[f"classic takes or refuses {name}"] = (queue(**{name: _some(name)}),)
    for name in (*NUMBERS, *TEXTS, "x-single-active-consumer"):
        if name != "x-queue-type":
            found[f"declared again with {name}"] = (queue(), queue(**{name: _some(name)}))
            found[f"declared again without {name}"] = (queue(**{name: _some(name)}), queue())
    return found


def _some(name: str) -> Any:
    known: dict[str, Any] = {"x-dead-letter-exchange": "", "x-overflow": "reject-publish", "x-queue-mode": "lazy",
                             "x-single-active-consumer": True, "x-max-age": "1D",
                             "x-dead-letter-strategy": "at-least-once", "x-queue-type": "classic"}
    return known.get(name, 10_000 if name in ("x-expires", "x-message-ttl") else 10)


CASES: Final[dict[str, tuple[Step, ...]]] = {
    **_arguments(),
    # ---- queues
    "max priority 256": (queue(x_max_priority=256),),
    "max priority 255": (queue(x_max_priority=255),),
    "a ttl above ten years": (queue(x_message_ttl=BIG),),
    "an expiry above ten years": (queue(x_expires=BIG),),
    "a ttl of 2^32": (queue(x_message_ttl=1 << 32),),
    "the longest ttl": (queue(x_message_ttl=315_360_000_000),),
    "a dead letter key without its exchange": (queue(x_dead_letter_routing_key="k"),),
    "a dead letter key that is a number": (queue(x_dead_letter_exchange="", x_dead_letter_routing_key=1),),
    "a strategy that nobody knows": (queue(**QUORUM, x_dead_letter_strategy="never"),),
    "at least once with drop-head": (queue(**QUORUM, x_dead_letter_exchange="x", x_dead_letter_strategy="at-least-once",
                                           x_overflow="drop-head"),),
    "single active consumer as a text": (queue(x_single_active_consumer="true"),),
    "a locator that nobody knows": (queue(x_queue_leader_locator="moon"),),
    "an argument that nobody knows": (queue(x_moon=1), queue()),
    "an argument without x-": (queue(moon=1), queue()),
    "again otherwise: durable": (queue(), queue(durable=False)),
    "again otherwise: auto-delete": (queue(), queue(auto_delete=True)),
    "again otherwise: exclusive": (queue(), queue(exclusive=True)),
    "declared classic again without a type": (queue(x_queue_type="classic"), queue()),
    "declared without a type again as classic": (queue(), queue(x_queue_type="classic")),
    "again otherwise: type": (queue(), queue(**QUORUM)),
    "again otherwise: a number's size": (queue(x_max_length=5), queue(x_max_length=6)),
    "again the same, in another integer type": (queue(x_max_length=5), queue(x_max_length=5)),
    "exclusive of another connection: declare": (queue(exclusive=True), queue(on=1, exclusive=True)),
    "exclusive of another connection: passive": (queue(exclusive=True), queue(on=1, passive=True)),
    "exclusive of another connection: consume": (queue(exclusive=True), consume(on=1)),
    "exclusive of another connection: get": (queue(exclusive=True), get(on=1)),
    "exclusive of another connection: delete": (queue(exclusive=True), Send(Queue.Delete(queue="q"), connection=1)),
    "exclusive of another connection: purge": (queue(exclusive=True), Send(Queue.Purge(queue="q"), connection=1)),
    "exclusive of another connection: bind": (queue(exclusive=True), Send(Queue.Bind(
        queue="q", exchange="amq.direct", routing_key="k"), connection=1)),
    "a reserved name": (queue("amq.mine"),),
    "a reserved name, passive": (queue("amq.mine", passive=True),),
    "passive of nothing": (queue("nothing", passive=True),),
    "an empty name, passive": (queue("", passive=True),),
    "a name of 255 bytes": (queue("q" * 255, exclusive=True), Send(Queue.Delete(queue="q" * 255))),
    "delete of nothing": (Send(Queue.Delete(queue="nothing")),),
    "delete without a name": (Send(Queue.Delete(queue="")),),
    "delete of what is used": (queue(), consume(), Send(Queue.Delete(queue="q", if_unused=True))),
    "delete of what is not empty": (queue(), publish(), Send(Queue.Delete(queue="q", if_empty=True))),
    "delete of what is empty": (queue(), Send(Queue.Delete(queue="q", if_empty=True, if_unused=True))),
    "purge of nothing": (Send(Queue.Purge(queue="nothing")),),
    "purge without a name": (Send(Queue.Purge(queue="")),),
    "purge leaves what is out": (queue(), publish(), publish(), get(), Send(Queue.Purge(queue="q"))),
    # ---- quorum queues and streams
    "quorum, exclusive": (queue(**QUORUM, exclusive=True),),
    "quorum, auto-delete": (queue(**QUORUM, auto_delete=True),),
    "quorum, not durable": (queue(**QUORUM, durable=False),),
    "quorum, without a name": (queue("", **QUORUM),),
    "quorum, global prefetch": (queue(**QUORUM), qos(5, of_all=True), consume()),
    "stream, exclusive": (queue(**STREAM, exclusive=True),),
    "stream, auto-delete": (queue(**STREAM, auto_delete=True),),
    "stream, not durable": (queue(**STREAM, durable=False),),
    "stream, without a name": (queue("", **STREAM),),
    "stream, no prefetch": (queue(**STREAM), consume()),
    "stream, global prefetch": (queue(**STREAM), qos(5, of_all=True), consume()),
    "stream, without acknowledgements": (queue(**STREAM), qos(5), consume(no_ack=True)),
    "stream, get": (queue(**STREAM), get()),
    "stream, purge": (queue(**STREAM), Send(Queue.Purge(queue="q"))),
    "stream, delete if empty": (queue(**STREAM), Send(Queue.Delete(queue="q", if_empty=True))),
    "stream, delete if unused": (queue(**STREAM), Send(Queue.Delete(queue="q", if_unused=True))),
    "stream, an offset that is none": (queue(**STREAM), qos(5), consume(x_stream_offset="moon")),
    "stream, an offset of a bool": (queue(**STREAM), qos(5), consume(x_stream_offset=True)),
    "stream, an offset that is an interval": (queue(**STREAM), qos(5), consume(x_stream_offset="1D")),
    "stream, an offset that is empty": (queue(**STREAM), qos(5), consume(x_stream_offset="")),
    "stream, an offset ahead": (queue(**STREAM), qos(5), consume(x_stream_offset=100)),
    "stream, a negative offset": (queue(**STREAM), qos(5), consume(x_stream_offset=-1)),
    "stream, exclusive consumer": (queue(**STREAM), qos(5), consume(exclusive=True)),
    "stream, a consumer with priority": (queue(**STREAM), qos(5), consume(x_priority=1)),
    "a classic queue's consumer with an offset": (queue(), consume(x_stream_offset="first")),
    "a quorum queue's consumer with an offset": (queue(**QUORUM), consume(x_stream_offset="first")),
    "stream, a reject": (queue(**STREAM), publish(), qos(5), consume(x_stream_offset="first"), AWAITED,
                         Send(Basic.Reject(delivery_tag=1, requeue=False))),
    "stream, in a transaction": (queue(**STREAM), Send(Tx.Select()), publish(), Send(Tx.Commit())),
    "quorum, in a transaction": (queue(**QUORUM), Send(Tx.Select()), publish(), Send(Tx.Commit())),
    "get from a quorum queue with single active consumer": (queue(**QUORUM, x_single_active_consumer=True), get()),
    "get from a classic queue with single active consumer": (queue(x_single_active_consumer=True), get()),
    "exclusive consumer of a quorum queue": (queue(**QUORUM), consume(exclusive=True), consume(tag="t2")),
    "exclusive consumer, single active": (queue(x_single_active_consumer=True), consume(exclusive=True)),
    # ---- exchanges
    "an unknown type": (exchange(kind="moon"),),
    "a known type again otherwise": (exchange(), exchange(kind="topic")),
    "exchange otherwise: durable": (exchange(), exchange(durable=False)),
    "exchange otherwise: auto-delete": (exchange(), exchange(auto_delete=True)),
    "exchange otherwise: internal": (exchange(), exchange(internal=True)),
    "exchange otherwise: alternate": (exchange(), exchange(**{"alternate-exchange": "x2"})),
    "an alternate exchange that is a number": (exchange(**{"alternate-exchange": 1}),),
    "an alternate exchange that is not there": (exchange(**{"alternate-exchange": "x2"}),
                                                publish("k", "x", mandatory=True)),
    "a reserved exchange": (exchange("amq.mine"),),
    "the default exchange, declared": (exchange(""),),
    "the default exchange, passive": (exchange("", passive=True),),
    "the default exchange, deleted": (Send(Exchange.Delete(exchange="")),),
    "the default exchange, bound": (queue(), bind("", "k")),
    "the default exchange, unbound": (queue(), Send(Queue.Unbind(queue="q", exchange="", routing_key="q"))),
    "amq.topic, declared otherwise": (exchange("amq.topic", "direct"),),
    "amq.topic, declared as it is": (exchange("amq.topic", "topic"),),
    "amq.topic, deleted": (Send(Exchange.Delete(exchange="amq.topic")),),
    "amq.nothing, deleted": (Send(Exchange.Delete(exchange="amq.nothing")),),
    "exchange passive of nothing": (exchange("nothing", passive=True),),
    "exchange delete of nothing": (Send(Exchange.Delete(exchange="nothing")),),
    "exchange delete of what is used": (exchange(), queue(), bind(), Send(Exchange.Delete(exchange="x",
                                                                                         if_unused=True))),
    "exchange delete of what is not used": (exchange(), Send(Exchange.Delete(exchange="x", if_unused=True))),
    "exchange name of 255 bytes": (exchange("x" * 255), Send(Exchange.Delete(exchange="x" * 255))),
    "auto-delete exchange goes with its binding": (
        exchange(auto_delete=True), queue(), bind(), Send(Queue.Unbind(queue="q", exchange="x", routing_key="k")),
        exchange(passive=True)),
    # ---- bindings
    "bind to no exchange": (queue(), bind("nothing")),
    "bind no queue": (exchange(), bind(to="nothing")),
    "bind the last declared": (exchange(), queue(), bind(to="")),
    "bind nothing declared": (exchange(), bind(to="")),
    "unbind what is not bound": (queue(), exchange(), Send(Queue.Unbind(queue="q", exchange="x", routing_key="k"))),
    "unbind from no exchange": (queue(), Send(Queue.Unbind(queue="q", exchange="nothing", routing_key="k"))),
    "unbind no queue": (exchange(), Send(Queue.Unbind(queue="nothing", exchange="x", routing_key="k"))),
    "exchange bind": (exchange(), exchange("x2"), Send(Exchange.Bind(destination="x", source="x2")),
                      Send(Exchange.Unbind(destination="x", source="x2"))),
    "exchange bind to nothing": (exchange(), Send(Exchange.Bind(destination="nothing", source="x"))),
    "exchange bind from nothing": (exchange(), Send(Exchange.Bind(destination="x", source="nothing"))),
    "exchange bind from the default": (exchange(), Send(Exchange.Bind(destination="x", source=""))),
    "exchange bind to the default": (exchange(), Send(Exchange.Bind(destination="", source="x"))),
    "exchange unbind what is not bound": (exchange(), exchange("x2"), Send(Exchange.Unbind(destination="x",
                                                                                         source="x2"))),
    "exchange unbind of nothing": (Send(Exchange.Unbind(destination="nothing", source="amq.direct")),),
    "exchange bind to itself": (exchange(kind="fanout"), Send(Exchange.Bind(destination="x", source="x")),
                                publish("k", "x", mandatory=True)),
    "headers: x-match of a number": (exchange(kind="headers"), queue(), bind(x_match=1)),
    **{f"headers: x-match {said!r}": (exchange(kind="headers"), queue(), bind(x_match=said))
       for said in (True, None, "")},
    "headers: x-match that nobody knows": (exchange(kind="headers"), queue(), bind(x_match="some")),
    **{f"a publish of delivery mode {mode}": (queue(), publish(delivery_mode=mode), get(no_ack=True))
       for mode in (0, 3, 255)},
    "headers: no x-match": (exchange(kind="headers"), queue(), bind(a=1), publish("k", "x", mandatory=True)),
    "headers: all": (exchange(kind="headers"), queue(), bind(x_match="all", a=1, b="2"),
                     publish("k", "x", mandatory=True, headers={"a": 1, "b": "2"}),
                     publish("k", "x", mandatory=True, headers={"a": 1})),
    "headers: any": (exchange(kind="headers"), queue(), bind(x_match="any", a=1, b="2"),
                     publish("k", "x", mandatory=True, headers={"a": 1}), publish("k", "x", mandatory=True)),
    "headers: any with nothing else": (exchange(kind="headers"), queue(), bind(x_match="any"),
                                       publish("k", "x", mandatory=True)),
    "headers: all with nothing else": (exchange(kind="headers"), queue(), bind(x_match="all"),
                                       publish("k", "x", mandatory=True)),
    "headers: of void": (exchange(kind="headers"), queue(), bind(x_match="all", a=None),
                         publish("k", "x", mandatory=True, headers={"a": 5}), publish("k", "x", mandatory=True)),
    "headers: with x-": (exchange(kind="headers"), queue(), bind(**{"x-match": "all-with-x", "x-a": 1}),
                         publish("k", "x", mandatory=True, headers={"x-a": 1}), publish("k", "x", mandatory=True)),
    # ---- consistent hash
    "hash: a key that is no number": (exchange(kind="x-consistent-hash"), queue(), bind(key="abc")),
    "hash: a key of 0": (exchange(kind="x-consistent-hash"), queue(), bind(key="0")),
    "hash: a negative key": (exchange(kind="x-consistent-hash"), queue(), bind(key="-1")),
    "hash: an empty key": (exchange(kind="x-consistent-hash"), queue(), bind(key="")),
    "hash: by a property that is none": (exchange(kind="x-consistent-hash", **{"hash-property": "moon"}),),
    "hash: by both": (exchange(kind="x-consistent-hash", **{"hash-property": "message_id", "hash-header": "a"}),),
    "hash: by a header that is a number": (exchange(kind="x-consistent-hash", **{"hash-header": 1}),),
    "hash: nothing bound": (exchange(kind="x-consistent-hash"), publish("k", "x", mandatory=True)),
    "hash: routed": (exchange(kind="x-consistent-hash"), queue(), bind(key="1"), publish("k", "x", mandatory=True)),
    # ---- publishing
    "publish to no exchange": (publish("k", "nothing"),),
    "publish to no exchange, mandatory": (publish("k", "nothing", mandatory=True),),
    "publish to an internal exchange": (exchange(internal=True), publish("k", "x")),
    "publish nowhere": (publish("nowhere"), publish("nowhere", mandatory=True)),
    "publish immediate": (queue(), publish(immediate=True)),
    "expiration that is no number": (queue(), publish(expiration="soon")),
    "expiration that is negative": (queue(), publish(expiration="-1")),
    "expiration that is empty": (queue(), publish(expiration="")),
    "expiration with more behind": (queue(), publish(expiration="10ms")),
    "expiration with a space": (queue(), publish(expiration=" 10")),
    "expiration of 0": (queue(), publish(expiration="0")),
    "expiration above ten years": (queue(), publish(expiration=str(BIG))),
    "expiration without an exchange": (publish("k", "nothing", expiration="soon"),),
    "user id of another": (queue(), publish(user_id="somebody")),
    "user id of its own": (queue(), publish(user_id="guest")),
    "CC that is no list": (queue(), publish(headers={"CC": "q"})),
    "BCC that is no list": (queue(), publish(headers={"BCC": 1})),
    "CC with a number": (queue(), publish(headers={"CC": [1]})),
    "CC to nowhere, mandatory": (publish("nowhere", mandatory=True, headers={"CC": ["nowhere2"]}),),
    "CC to a queue, mandatory": (queue(), publish("nowhere", mandatory=True, headers={"CC": ["q"]})),
    "full, reject-publish": (queue(x_max_length=1, x_overflow="reject-publish"), Send(Confirm.Select()), publish(),
                             publish(), queue(passive=True)),
    "priority that is too high": (queue(x_max_priority=2), publish(priority=200), get()),
    # ---- consuming
    "consume from nothing": (consume("nothing"),),
    "consume without a name": (consume(""),),
    "consume the last declared": (queue(), consume("")),
    "a tag again": (queue(), consume(), consume()),
    "cancel of nothing": (Send(Basic.Cancel(consumer_tag="nothing")),),
    "exclusive consumer beside another": (queue(), consume(), consume(tag="t2", exclusive=True)),
    "another beside an exclusive consumer": (queue(), consume(exclusive=True), consume(tag="t2")),
    "get beside an exclusive consumer": (queue(), consume(exclusive=True), get()),
    "get from nothing": (get("nothing"),),
    "get without a name": (get(""),),
    "get from what is empty": (queue(), get()),
    "consumer priority that is a text": (queue(), consume(x_priority="high")),
    "consumer priority that is negative": (queue(), consume(x_priority=-5)),
    "prefetch size": (qos(0, size=1),),
    "prefetch of all": (qos(10, of_all=True), qos(0, of_all=True)),
    "recover": (Send(Basic.Recover(requeue=True)),),
    "recover without requeue": (Send(Basic.Recover(requeue=False)),),
    "recover async": (Send(Basic.RecoverAsync(requeue=True)),),
    "ack of nothing": (Send(Basic.Ack(delivery_tag=7)),),
    "ack of 0": (Send(Basic.Ack(delivery_tag=0)),),
    "ack of 0, multiple": (Send(Basic.Ack(delivery_tag=0, multiple=True)),),
    "ack of nothing, multiple": (Send(Basic.Ack(delivery_tag=7, multiple=True)),),
    "ack twice": (queue(), publish(), get(), Send(Basic.Ack(delivery_tag=1)), Send(Basic.Ack(delivery_tag=1))),
    "ack of what needs none": (queue(), publish(), get(no_ack=True), Send(Basic.Ack(delivery_tag=1))),
    "nack of nothing": (Send(Basic.Nack(delivery_tag=7)),),
    "nack of 0, multiple": (Send(Basic.Nack(delivery_tag=0, multiple=True)),),
    "reject of nothing": (Send(Basic.Reject(delivery_tag=7)),),
    "ack on another channel": (queue(), publish(), get(), Send(Channel.Open(), channel=2),
                               Send(Basic.Ack(delivery_tag=1), channel=2)),
    # ---- direct reply-to
    "reply: with acknowledgements": (consume("amq.rabbitmq.reply-to"),),
    "reply: without": (consume("amq.rabbitmq.reply-to", no_ack=True),),
    "reply: twice": (consume("amq.rabbitmq.reply-to", no_ack=True),
                     consume("amq.rabbitmq.reply-to", no_ack=True, tag="t2")),
    "reply: exclusive": (consume("amq.rabbitmq.reply-to", no_ack=True, exclusive=True),),
    "reply: asked without a consumer": (queue(), publish(reply_to="amq.rabbitmq.reply-to")),
    "reply: to nobody": (publish("amq.rabbitmq.reply-to.nobody", mandatory=True),),
    "reply: declared": (queue("amq.rabbitmq.reply-to"),),
    "reply: declared, passive": (queue("amq.rabbitmq.reply-to", passive=True),),
    "reply: nobody's, passive": (queue("amq.rabbitmq.reply-to.nobody", passive=True),),
    "reply: deleted": (Send(Queue.Delete(queue="amq.rabbitmq.reply-to")),),
    "reply: purged": (Send(Queue.Purge(queue="amq.rabbitmq.reply-to")),),
    "reply: bound": (bind("amq.direct", to="amq.rabbitmq.reply-to"),),
    "reply: unbound": (Send(Queue.Unbind(queue="amq.rabbitmq.reply-to", exchange="amq.direct", routing_key="k")),),
    "reply: got": (get("amq.rabbitmq.reply-to"),),
    "reply: cancelled and again": (consume("amq.rabbitmq.reply-to", no_ack=True), Send(Basic.Cancel(consumer_tag="t")),
                                   consume("amq.rabbitmq.reply-to", no_ack=True, tag="t2")),
    # ---- tx and confirms
    "commit without select": (Send(Tx.Commit()),),
    "rollback without select": (Send(Tx.Rollback()),),
    "select twice": (Send(Tx.Select()), Send(Tx.Select()), Send(Tx.Commit()), Send(Tx.Rollback())),
    "confirms after tx": (Send(Tx.Select()), Send(Confirm.Select())),
    "tx after confirms": (Send(Confirm.Select()), Send(Tx.Select())),
    "confirms twice": (Send(Confirm.Select()), Send(Confirm.Select())),
    "tx: to no exchange": (Send(Tx.Select()), publish("k", "nothing"), Send(Tx.Commit())),
    "tx: nowhere, mandatory": (Send(Tx.Select()), publish("nowhere", mandatory=True), Send(Tx.Commit())),
    "tx: ack of nothing": (Send(Tx.Select()), Send(Basic.Ack(delivery_tag=7)), Send(Tx.Commit())),
    "tx: an ack twice": (queue(), publish(), get(), Send(Tx.Select()), Send(Basic.Ack(delivery_tag=1)),
                         Send(Basic.Ack(delivery_tag=1))),
    "tx: rollback gives the ack back": (queue(), publish(), get(), Send(Tx.Select()), Send(Basic.Ack(delivery_tag=1)),
                                        Send(Tx.Rollback()), Send(Basic.Ack(delivery_tag=1)), Send(Tx.Commit()),
                                        queue(passive=True)),
    "tx: not there before the commit": (queue(), Send(Tx.Select()), publish(), queue(passive=True), Send(Tx.Commit()),
                                        queue(passive=True)),
    "tx: an expiration that is none": (queue(), Send(Tx.Select()), publish(expiration="soon"), Send(Tx.Commit())),
    # ---- channels
    "a channel twice": (Send(Channel.Open()),),
    "a channel of any number": (Send(Channel.Open(), channel=65_535),),
    "more channels than agreed": tuple([Send(Channel.Open(), channel=number) for number in range(2, 6)]),
    "a channel that is not open": (Send(Basic.Qos(prefetch_count=1), channel=2),),
    "channel 0": (Send(Basic.Qos(prefetch_count=1), channel=0),),
    "flow off": (Send(Channel.Flow(active=False)),),
    "flow on": (Send(Channel.Flow(active=True)),),
    "channel close and again": (Send(Channel.Close(200, "bye", 0, 0)), Send(Channel.Open())),
    "access request": (Send(spec.Access.Request()),),
    "update-secret": (Send(Connection.UpdateSecret(new_secret="new", reason="because"), channel=0),),
    "update-secret on a channel": (Send(Connection.UpdateSecret(new_secret="new", reason="because")),),
    "connection open twice": (Send(Connection.Open(), channel=0),),
    "tune-ok when open": (Send(Connection.TuneOk(), channel=0),),
    "start-ok when open": (Send(Connection.StartOk(client_properties={}, response=""), channel=0),),
    "connection close": (Send(Connection.Close(200, "bye", 0, 0), channel=0),),
    "what the server says, said by a client": (Send(Queue.DeclareOk("q", 0, 0)),),
    "a deliver from a client": (Raw(frame(1, 1, struct.pack(">HH", 60, 60) + b"\x01t" + bytes(9) + b"\x00\x00")),),
    # ---- frames
    "an unknown class": (Raw(frame(1, 1, struct.pack(">HH", 99, 1))),),
    "an unknown method": (Raw(frame(1, 1, struct.pack(">HH", 50, 99))),),
    "a method cut off": (Raw(frame(1, 1, struct.pack(">HH", 50, 10))),),
    "an empty method frame": (Raw(frame(1, 1, b"")),),
    "a frame of an unknown type": (Raw(frame(7, 1, b"abc")),),
    "a header without a publish": (Raw(frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0))),),
    "a body without a publish": (Raw(frame(3, 1, b"abc")),),
    "a body instead of a header": (Raw(frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x01q\x00")
                                       + frame(3, 1, b"abc")),),
    "a method instead of a header": (Raw(frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x01q\x00")),),
    "a method instead of a body": (Raw(frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x01q\x00")
                                       + frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0))),),
    "a header of another class": (Raw(frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x01q\x00")
                                      + frame(2, 1, struct.pack(">HHQH", 50, 0, 1, 0))),),
    "a heartbeat on a channel": (Raw(frame(8, 1, b"")),),
    "a heartbeat": (Raw(frame(8, 0, b"")),),
    "a body on channel 0": (Raw(frame(3, 0, b"abc")),),
    "properties cut off": (Raw(frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x01q\x00")
                               + frame(2, 1, struct.pack(">HHQH", 60, 0, 0, 0x8000))),),
    "a field of an unknown type": (declare_with_table(b"\x01aq\x00"),),
    "a table cut off": (declare_with_table(b"\x05ab"),),
    "a text cut off": (declare_with_table(b"\x01aS\x00\x00\x00\x09x"),),
    **FRAMEWORKS,
}

LOGINS: Final[dict[str, dict[str, Any]]] = {
    "a wrong password": {"password": "wrong"},
    "an unknown user": {"user": "moon", "password": "wrong"},
    "an unknown mechanism": {"mechanism": "MOON"},
    "an unknown virtual host": {"virtual_host": "/moon"},
    "no virtual host": {"virtual_host": ""},
    "without the capability to be told": {"password": "wrong", "properties": {"capabilities": {}}},
}
"""Logins that are refused; keywords of `Wire`."""
