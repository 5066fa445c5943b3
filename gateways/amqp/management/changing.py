"""What is made and deleted: exchanges, queues and bindings as a channel would, with the same rights and the same
refusals; policies, and those of operators, by administrators.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.amqp.errors import AmqpError, in_use, refused
from gatehouse.gateways.amqp.exchanges import QUEUE, Binding, Destination, binding_of
from gatehouse.gateways.amqp.management.asking import (
    Asking,
    Host,
    Row,
    bad_request,
    changed,
    flag,
    listed,
    nothing_there,
    table_of,
    text_of,
)
from gatehouse.gateways.amqp.management.seeing import (
    DEFAULT_NAME,
    between,
    exchange_of,
    found_binding,
    properties_key,
    queue_of,
    quoted,
)
from gatehouse.gateways.amqp.policies import InvalidPolicy, Policies, read_policy
from gatehouse.gateways.amqp.rights import CONFIGURE, WRITE
from gatehouse.gateways.contract import HttpAnswer

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.tables import Table

Call = tuple[str, str, Callable[..., Awaitable[HttpAnswer]]]

MADE = HttpAnswer(201)
DONE = HttpAnswer(204)


# ---- exchanges

async def put_exchange(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host, document = asking.host(vhost), asking.document()
    is_new = await declare_exchange(
        asking, host, name, text_of(document, "type", "direct"), durable=flag(document, "durable"),
        auto_delete=flag(document, "auto_delete"), internal=flag(document, "internal"),
        arguments=table_of(document.get("arguments")))
    return MADE if is_new else DONE


async def declare_exchange(asking: Asking, host: Host, name: str, kind: str, *, durable: bool, auto_delete: bool,
                           internal: bool, arguments: Table) -> bool:
    """Whether it is new. Raises AmqpError."""
    vhost, rights = host.vhost, host.rights
    check_short(name)
    if name in vhost.exchanges:
        rights.require_exchange_sight(name, CONFIGURE)
    else:
        rights.require_exchange(name, Operation.CREATE)
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and alternate.type == "S":
            rights.require_feeding(alternate.value.decode(errors="replace"))
    made = vhost.declare_exchange(name, kind, durable=durable, auto_delete=auto_delete, internal=internal,
                                  arguments=arguments)
    await changed(asking, host, [] if made is None else [made])
    if made is not None:
        rights.audit("exchange.declared", {"exchange": name, "type": kind, "durable": durable})
    return made is not None


async def delete_exchange(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    exchange_of(host, name)
    host.rights.require_exchange(name, Operation.ALTER)
    gone = host.vhost.delete_exchange(name, asking.query.get("if-unused") == "true")
    await changed(asking, host, gone)
    host.rights.audit("exchange.deleted", {"exchange": name})
    return DONE


# ---- queues

async def put_queue(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host, document = asking.host(vhost), asking.document()
    is_new = await declare_queue(asking, host, name, durable=flag(document, "durable"),
                                 auto_delete=flag(document, "auto_delete"),
                                 arguments=table_of(document.get("arguments")))
    return MADE if is_new else DONE


async def declare_queue(asking: Asking, host: Host, name: str, *, durable: bool, auto_delete: bool,
                        arguments: Table) -> bool:
    """Whether it is new. Raises AmqpError."""
    vhost, rights = host.vhost, host.rights
    check_short(name)
    if vhost.find_queue(name) is None:
        rights.require_queue(name, Operation.CREATE, CONFIGURE)
    else:
        rights.require_sight(name, CONFIGURE)
    queue, is_new = vhost.declare_queue(name, durable=durable, auto_delete=auto_delete, owner=None, asker=asking,
                                        arguments=arguments)
    if not is_new:
        return False
    try:
        rights.require_new_queue(queue, False)
    except AmqpError:
        vhost.delete_queue(queue)
        raise
    asking.broker.open_queue(queue)
    await changed(asking, host, [queue])
    rights.audit("queue.declared", {"queue": name, "durable": durable})
    return True


async def delete_queue(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    queue = host.vhost.require_queue(queue_of(host, name).name, asking)
    host.rights.require_change(queue, Operation.ALTER, CONFIGURE)
    if asking.query.get("if-unused") == "true" and queue.consumers:
        raise in_use("queue", name, vhost, "in use")
    if asking.query.get("if-empty") == "true" and asking.broker.queues.ready(queue):
        raise in_use("queue", name, vhost, "not empty")
    await changed(asking, host, asking.broker.drop_queue(queue))
    host.rights.audit("queue.deleted", {"queue": name})
    return DONE


# ---- bindings

async def post_binding(asking: Asking, vhost: str, source: str, kind: str, name: str) -> HttpAnswer:
    host, destination, _ = between(asking, vhost, source, kind, name)
    document = asking.document()
    key, arguments = text_of(document, "routing_key"), table_of(document.get("arguments"))
    made = await bind(asking, host, source, destination, key, arguments)
    return HttpAnswer(201, headers={"Location": f"{quoted(name)}/{properties_key(made)}"})


async def bind(asking: Asking, host: Host, source: str, destination: Destination, key: str, arguments: Table
               ) -> Binding:
    """The binding, also where it was there. Raises AmqpError."""
    vhost, rights = host.vhost, host.rights
    check_short(key)
    if source == DEFAULT_NAME:
        raise refused("operation not permitted on the default exchange")
    if destination.kind == QUEUE:
        rights.require_change(vhost.require_queue(destination.name, asking), Operation.PUBLISH, WRITE)
    else:
        rights.require_feeding(destination.name)
        vhost.require_exchange(destination.name)
    rights.require_hearing(source, key)
    made = vhost.bind(source, destination, key, arguments)
    await changed(asking, host, [] if made is None else [made])
    if made is not None:
        rights.audit(f"{destination.kind}.bound", {"exchange": source, destination.kind: destination.name,
                                                   "routing_key": key})
    return binding_of(source, destination, key, arguments)


async def delete_binding(asking: Asking, vhost: str, source: str, kind: str, name: str, key: str) -> HttpAnswer:
    host, destination, bindings = between(asking, vhost, source, kind, name)
    binding = found_binding(bindings, key)
    if destination.kind == QUEUE:
        host.rights.require_change(host.vhost.require_queue(name, asking), Operation.PUBLISH, WRITE)
    else:
        host.rights.require_feeding(name)
        host.rights.require_hearing(source, binding.routing_key)
    arguments = host.vhost.exchanges[source].bindings[binding]
    gone = host.vhost.unbind(source, destination, binding.routing_key, arguments)
    await changed(asking, host, gone)
    host.rights.audit(f"{destination.kind}.unbound", {"exchange": source, destination.kind: destination.name,
                                                      "routing_key": binding.routing_key})
    return DONE


def check_short(name: str) -> None:
    """A name, or a routing key, is a short string. Raises ManagementError 400, 404."""
    if "\0" in name:
        raise nothing_there()
    if len(name.encode()) > 255:
        raise bad_request("a name has at most 255 bytes")


# ---- policies

def policies_of(host: Host, of_operators: bool) -> Policies:
    return host.vhost.operator_policies if of_operators else host.vhost.policies


def policy_rows(host: Host, *, of_operators: bool = False) -> list[Row]:
    return [{"vhost": host.vhost.name, **policy.document()} for policy in policies_of(host, of_operators).all()]


async def put_policy(asking: Asking, host: Host, name: str, document: dict[str, Any], *, of_operators: bool = False
                     ) -> bool:
    """Whether it is new. Raises ManagementError."""
    asking.require_administrator()
    check_short(name)
    table_of(document.get("definition"), "definition")     # how deep, and how large
    before = policies_of(host, of_operators).get(name)
    try:
        read = read_policy(name, document, of_operators=of_operators)
        await asking.ask.stored(lambda owner, token: asking.broker.put_policy(host.vhost, name, read, owner, token,
                                                                              of_operators=of_operators))
    except InvalidPolicy as error:
        raise bad_request(f"Validation failed\n\n{error}\n") from None
    host.rights.audit("policy.changed", {"policy": name, "pattern": read.pattern, "of_operators": of_operators})
    return before is None


def _policy_calls(path: str, *, of_operators: bool) -> tuple[Call, ...]:
    """The calls of one kind of policies."""
    async def listing(asking: Asking, vhost: str | None = None) -> HttpAnswer:
        rows = [row for host in asking.chosen(vhost) for row in policy_rows(host, of_operators=of_operators)]
        return HttpAnswer(200, listed(rows, asking.query))

    async def show(asking: Asking, vhost: str, name: str) -> HttpAnswer:
        existing = policies_of(asking.host(vhost), of_operators).get(name)
        if existing is None:
            raise nothing_there()
        return HttpAnswer(200, {"vhost": vhost, **existing.document()})

    async def change(asking: Asking, vhost: str, name: str) -> HttpAnswer:
        is_new = await put_policy(asking, asking.host(vhost), name, asking.document(), of_operators=of_operators)
        return HttpAnswer(201 if is_new else 204)

    async def delete(asking: Asking, vhost: str, name: str) -> HttpAnswer:
        asking.require_administrator()
        host = asking.host(vhost)
        if policies_of(host, of_operators).get(name) is None:
            raise nothing_there()
        await asking.ask.stored(lambda owner, token: asking.broker.put_policy(host.vhost, name, None, owner, token,
                                                                              of_operators=of_operators))
        host.rights.audit("policy.deleted", {"policy": name, "of_operators": of_operators})
        return HttpAnswer(204)

    of_one = f"{path}/{{vhost}}/{{policy}}"
    return (("GET", path, listing), ("GET", f"{path}/{{vhost}}", listing), ("GET", of_one, show),
            ("PUT", of_one, change), ("DELETE", of_one, delete))


POLICY_CALLS: Final = (*_policy_calls("policies", of_operators=False),
                       *_policy_calls("operator-policies", of_operators=True))
