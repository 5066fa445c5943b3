"""Definitions as one document: exchanges, queues, bindings, policies; written, and read from a real RabbitMQ's export.

What is read is made like anything else, in the order exchanges, queues, bindings, policies. The answer is a report:
what is made, what was there, and what was refused, each with the reason. Users, permissions and parameters are not
taken over: their passwords and patterns mean nothing here.
"""
from __future__ import annotations

from typing import Any, Final

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.amqp.arguments import OF_EXCHANGES, OF_QUEUES, QUEUE_TYPES
from gatehouse.gateways.amqp.errors import NAMES, AmqpError
from gatehouse.gateways.amqp.exchanges import EXCHANGE, QUEUE, Destination
from gatehouse.gateways.amqp.login import RABBITMQ_VERSION
from gatehouse.gateways.amqp.management.asking import (
    Asking,
    Host,
    ManagementError,
    Row,
    bad_request,
    flag,
    shown_table,
    table_of,
    text_of,
)
from gatehouse.gateways.amqp.management.changing import (
    bind,
    declare_exchange,
    declare_queue,
    policy_rows,
    put_policy,
)
from gatehouse.gateways.amqp.management.seeing import (
    arguments_of,
    queues_of,
)
from gatehouse.gateways.amqp.tables import typed
from gatehouse.gateways.amqp.vhost import RESERVED
from gatehouse.gateways.contract import HttpAnswer
from gatehouse.kernel.errors import KernelError

NO_PARAMETERS: Final = "no plug-in of this hub has parameters"
OPERATORS: Final = "operator_policy"   # the component of parameters that operator policies are
NOT_TAKEN: Final = {
    "users": "users are made with `gatehouse users`", "permissions": "rights are rules here: `gatehouse acl`",
    "topic_permissions": "rights are rules here: `gatehouse acl`",
    "parameters": NO_PARAMETERS,
    "global_parameters": NO_PARAMETERS, "vhosts": "a virtual host is a tenant of users"}
OF_VHOSTS: Final = {"limits": "limits are made with `gatehouse limits`",
                    "tracing": "`gatehouse trace` shows where messages go"}
"""What may stand in a virtual host that is there, and is not taken over."""

REPORT_MAX: Final = 1_000              # entries of the report that are named


# ---- out

async def export(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    """All that who asks may know of; of one virtual host without its name in each."""
    hosts = asking.chosen(vhost)
    document: Row = {"rabbit_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION,
                     "product_name": "Gatehouse"}
    if vhost is None:
        document |= {"users": [], "vhosts": [{"name": host.vhost.name} for host in hosts], "permissions": [],
                     "topic_permissions": [], "parameters": [], "global_parameters": []}
    else:
        document["parameters"] = []
    document |= {"policies": [], "queues": [], "exchanges": [], "bindings": []}
    for host in hosts:
        of = {} if vhost is not None else {"vhost": host.vhost.name}
        document["policies"] += [_without_vhost(row, vhost) for row in policy_rows(host)]
        document["parameters"] += [
            {"component": OPERATORS, **of, "name": row["name"],
             "value": {name: value for name, value in row.items() if name not in ("name", "vhost")}}
            for row in policy_rows(host, of_operators=True)]
        queues = [queue for queue in queues_of(host) if queue.owner is None]
        document["queues"] += [{"name": queue.name, **of, "durable": queue.durable, "auto_delete": queue.auto_delete,
                                "arguments": shown_table(queue.arguments)} for queue in queues]
        exchanges = [exchange for exchange in host.vhost.exchanges.values() if host.rights.sees_exchange(exchange.name)]
        document["exchanges"] += [
            {"name": exchange.name, **of, "type": exchange.type, "durable": exchange.durable,
             "auto_delete": exchange.auto_delete, "internal": exchange.internal,
             "arguments": shown_table(exchange.arguments)}
            for exchange in exchanges if not exchange.name.startswith(RESERVED)]
        document["bindings"] += [
            {"source": binding.source, **of, "destination": binding.destination.name,
             "destination_type": binding.destination.kind, "routing_key": binding.routing_key,
             "arguments": shown_table(arguments_of(host.vhost, binding))}
            for exchange in exchanges for binding in exchange.bindings]
    return HttpAnswer(200, document)


def _without_vhost(row: Row, vhost: str | None) -> Row:
    return row if vhost is None else {name: value for name, value in row.items() if name != "vhost"}


# ---- in

class Report:
    """What became of an import."""

    def __init__(self) -> None:
        self.made = dict.fromkeys(("exchanges", "queues", "bindings", "policies", "operator_policies"), 0)
        self.existed = dict(self.made)
        self.not_taken: dict[str, Any] = {}
        self.changed: list[Row] = []
        self.refused: list[Row] = []
        self.refused_count = 0

    def note(self, what: str, is_new: bool) -> None:
        (self.made if is_new else self.existed)[what] += 1

    def note_changed(self, what: str, name: Any, reason: str) -> None:
        """It is made, and something of it means nothing here."""
        if len(self.changed) < REPORT_MAX:
            self.changed.append({"kind": what, "name": name, "reason": reason})

    def refuse(self, what: str, name: Any, error: Exception) -> None:
        self.refused_count += 1
        if len(self.refused) < REPORT_MAX:
            reason = str(error)
            if isinstance(error, AmqpError):
                reason = reason.removeprefix(f"{NAMES[error.code]} - ")
            self.refused.append({"kind": what, "name": name, "reason": reason})

    def document(self) -> Row:
        return {"made": self.made, "existed": self.existed, "changed": self.changed,
                "not_taken": self.not_taken, "refused": self.refused, "refused_count": self.refused_count}


async def load(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    """200 with the report; what is refused leaves the rest as it is."""
    document = asking.document()
    report = Report()
    for name, reason in NOT_TAKEN.items():
        count = len([row for row in _list(document, name) if not _is_of_operators(row)])
        if count and not (name == "vhosts" and vhost is None and all(
                isinstance(row, dict) and row.get("name") in asking.services.admission.tenants(asking.principal)
                for row in document[name])):
            report.not_taken[name] = {"count": count, "reason": reason}
    for row in _list(document, "vhosts"):
        for name, instead in OF_VHOSTS.items():
            if isinstance(row, dict) and row.get(name):
                report.note_changed("vhosts", row.get("name"), f"{name}: {instead}")
    operators = [row for row in _list(document, "parameters") if _is_of_operators(row)]
    for what, rows, make in (
            ("exchanges", _list(document, "exchanges"), _exchange), ("queues", _list(document, "queues"), _queue),
            ("bindings", _list(document, "bindings"), _binding), ("policies", _list(document, "policies"), _policy),
            ("operator_policies", operators, _operator_policy)):
        for row in rows:
            named = row.get("name", row.get("destination")) if isinstance(row, dict) else None
            try:
                if not isinstance(row, dict):
                    raise bad_request("not an object")
                host = asking.host(vhost if vhost is not None else text_of(row, "vhost", "/"))
                report.note(what, await make(asking, host, row))
                _note_unknown(report, what, named, row)
            except ManagementError as error:
                reason = "there is no such virtual host, or nothing of this name" if error.answer.status == 404 else \
                    str(error)
                report.refuse(what, named, bad_request(reason))
            except (AmqpError, KernelError, Denied) as error:
                report.refuse(what, named, error)
    return HttpAnswer(200, report.document())


def _list(document: Row, name: str) -> list[Any]:
    rows = document.get(name, [])
    if not isinstance(rows, list):
        raise bad_request(f"{{not_a_list,{name}}}")
    return rows


def _is_of_operators(row: Any) -> bool:
    return isinstance(row, dict) and row.get("component") == OPERATORS


def _note_unknown(report: Report, what: str, name: Any, row: Row) -> None:
    """Arguments that no table of this door knows are kept and mean nothing."""
    taken = {"queues": OF_QUEUES, "exchanges": OF_EXCHANGES}.get(what)
    given = row.get("arguments")
    if taken is not None and isinstance(given, dict):
        unknown = sorted(key for key in given if key.startswith("x-") and key not in taken)
        if unknown:
            report.note_changed(what, name, f"without effect: {', '.join(unknown)}")


async def _exchange(asking: Asking, host: Host, row: Row) -> bool:
    name = text_of(row, "name")
    if not name or name.startswith(RESERVED) and name in host.vhost.exchanges:
        return False
    return await declare_exchange(
        asking, host, name, text_of(row, "type", "direct"), durable=flag(row, "durable", True),
        auto_delete=flag(row, "auto_delete"), internal=flag(row, "internal"), arguments=table_of(row.get("arguments")))


async def _queue(asking: Asking, host: Host, row: Row) -> bool:
    """RabbitMQ 4 says a queue's type beside its arguments, too."""
    arguments = table_of(row.get("arguments"))
    kind = text_of(row, "type", "")
    if kind and "x-queue-type" not in arguments and kind != QUEUE_TYPES[0]:
        arguments = {**arguments, "x-queue-type": typed(kind)}
    return await declare_queue(asking, host, text_of(row, "name"), durable=flag(row, "durable", True),
                               auto_delete=flag(row, "auto_delete"), arguments=arguments)


async def _binding(asking: Asking, host: Host, row: Row) -> bool:
    kind = text_of(row, "destination_type", QUEUE)
    if kind not in (QUEUE, EXCHANGE):
        raise bad_request(f"a binding leads to a queue or an exchange, not to {kind!r}")
    source = text_of(row, "source")
    if not source:
        return False                           # of the default exchange, as old exports have them
    before = host.vhost.version
    await bind(asking, host, source, Destination(kind, text_of(row, "destination")), text_of(row, "routing_key"),
               table_of(row.get("arguments")))
    return host.vhost.version != before


async def _policy(asking: Asking, host: Host, row: Row) -> bool:
    return await put_policy(asking, host, text_of(row, "name"), row)


async def _operator_policy(asking: Asking, host: Host, row: Row) -> bool:
    value = row.get("value")
    if not isinstance(value, dict):
        raise bad_request("{not_a_table,value}")
    return await put_policy(asking, host, text_of(row, "name"), value, of_operators=True)
