"""Policies: seen by who may see their virtual host, changed by administrators."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.amqp.management.asking import Asking, Host, bad_request, nothing_there, table_of
from gatehouse.gateways.amqp.management.changing import check_short
from gatehouse.gateways.amqp.management.listing import listed
from gatehouse.gateways.amqp.management.shown import Row
from gatehouse.gateways.amqp.policies import InvalidPolicy, read_policy
from gatehouse.gateways.contract import HttpAnswer


def rows_of(host: Host) -> list[Row]:
    return [{"vhost": host.vhost.name, **policy.document()} for policy in host.vhost.policies.all()]


async def policies(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    return HttpAnswer(200, listed([row for host in asking.chosen(vhost) for row in rows_of(host)], asking.query))


async def policy(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    existing = asking.host(vhost).vhost.policies.get(name)
    if existing is None:
        raise nothing_there()
    return HttpAnswer(200, {"vhost": vhost, **existing.document()})


async def put_policy(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    return HttpAnswer(201 if await put(asking, asking.host(vhost), name, asking.document()) else 204)


async def put(asking: Asking, host: Host, name: str, document: dict[str, Any]) -> bool:
    """Whether it is new. Raises ManagementError."""
    asking.require_administrator()
    check_short(name)
    table_of(document.get("definition"), "definition")     # how deep, and how large
    before = host.vhost.policies.get(name)
    try:
        read = read_policy(name, document)
        await asking.ask.stored(lambda owner, token: asking.broker.put_policy(host.vhost, name, read, owner, token))
    except InvalidPolicy as error:
        raise bad_request(f"Validation failed\n\n{error}\n") from None
    host.rights.audit("policy.changed", {"policy": name, "pattern": read.pattern})
    return before is None


async def delete_policy(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    asking.require_administrator()
    host = asking.host(vhost)
    if host.vhost.policies.get(name) is None:
        raise nothing_there()
    await asking.ask.stored(lambda owner, token: asking.broker.put_policy(host.vhost, name, None, owner, token))
    host.rights.audit("policy.deleted", {"policy": name})
    return HttpAnswer(204)
