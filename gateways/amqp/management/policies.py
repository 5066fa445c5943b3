"""Policies, and those of operators: seen by who may see their virtual host, changed by administrators."""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from gatehouse.gateways.amqp.management.asking import Asking, Host, bad_request, nothing_there, table_of
from gatehouse.gateways.amqp.management.changing import check_short
from gatehouse.gateways.amqp.management.listing import listed
from gatehouse.gateways.amqp.management.shown import Row
from gatehouse.gateways.amqp.policies import InvalidPolicy, Policies, read_policy
from gatehouse.gateways.contract import HttpAnswer

Call = tuple[str, str, Callable[..., Awaitable[HttpAnswer]]]


def policies_of(host: Host, of_operators: bool) -> Policies:
    return host.vhost.operator_policies if of_operators else host.vhost.policies


def rows_of(host: Host, *, of_operators: bool = False) -> list[Row]:
    return [{"vhost": host.vhost.name, **policy.document()} for policy in policies_of(host, of_operators).all()]


async def put(asking: Asking, host: Host, name: str, document: dict[str, Any], *, of_operators: bool = False) -> bool:
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


def _calls(path: str, *, of_operators: bool) -> tuple[Call, ...]:
    """The calls of one kind of policies."""
    async def listing(asking: Asking, vhost: str | None = None) -> HttpAnswer:
        rows = [row for host in asking.chosen(vhost) for row in rows_of(host, of_operators=of_operators)]
        return HttpAnswer(200, listed(rows, asking.query))

    async def show(asking: Asking, vhost: str, name: str) -> HttpAnswer:
        existing = policies_of(asking.host(vhost), of_operators).get(name)
        if existing is None:
            raise nothing_there()
        return HttpAnswer(200, {"vhost": vhost, **existing.document()})

    async def change(asking: Asking, vhost: str, name: str) -> HttpAnswer:
        is_new = await put(asking, asking.host(vhost), name, asking.document(), of_operators=of_operators)
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


CALLS: Final = (*_calls("policies", of_operators=False), *_calls("operator-policies", of_operators=True))
