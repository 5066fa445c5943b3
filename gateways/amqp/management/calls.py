"""Every call of the management interface: method and path, and what answers it. `{name}` is one level, decoded."""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.amqp.management import changing, definitions, hub, messages, seeing
from gatehouse.gateways.amqp.management.asking import Asking, ManagementError, nothing_there
from gatehouse.gateways.contract import HttpAnswer

if TYPE_CHECKING:
    from gatehouse.gateways.contract import HttpAsk, Services

Handler = Callable[..., Awaitable[HttpAnswer]]

_BETWEEN: Final = "bindings/{vhost}/e/{source}/{kind}/{destination}"

EMPTY: Final = (
    "topic-permissions", "users/{user}/topic-permissions", "vhosts/{vhost}/topic-permissions", "parameters",
    "parameters/{component}", "parameters/{component}/{vhost}", "global-parameters", "vhost-limits",
    "vhost-limits/{vhost}", "user-limits", "user-limits/{user}", "deprecated-features", "deprecated-features/used",
    "users/without-permissions", "connections/{connection}/sessions")
"""Lists of what there is none of here."""

CHECKS: Final = (
    "alarms", "local-alarms", "virtual-hosts", "is-in-service", "ready-to-serve-clients", "below-node-connection-limit",
    "node-is-mirror-sync-critical", "node-is-quorum-critical", "reached-target-cluster-size",
    "metadata-store/initialized", "metadata-store/initialized/with-data",
    "quorum-queues-without-elected-leaders/all-vhosts",
    "quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}",
    "quorum-queues-without-elected-leaders/vhost/{vhost}",
    "quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}")
"""Health checks that all ask the same of one hub: whether it takes new work."""

CALLS: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "overview", hub.overview), ("GET", "cluster-name", hub.cluster_name), ("GET", "nodes", hub.nodes),
    ("GET", "nodes/{node}", hub.node), ("GET", "extensions", hub.nothing), ("GET", "feature-flags", hub.feature_flags),
    ("GET", "whoami", hub.whoami), ("GET", "version", hub.version), ("GET", "nodes/{node}/memory", hub.memory),
    ("GET", "nodes/{node}/memory/{relative}", hub.memory), ("POST", "rebalance/queues", hub.rebalance),
    ("PUT", "feature-flags/{name}/enable", hub.enable_feature), ("GET", "auth/attempts/{node}", hub.nothing),
    ("GET", "auth/attempts/{node}/source", hub.nothing),

    ("GET", "aliveness-test/{vhost}", hub.aliveness), ("GET", "healthchecks/node", hub.health),
    ("GET", "healthchecks/node/{node}", hub.health_of_node),
    *[("GET", f"health/checks/{check}", hub.health) for check in CHECKS],
    ("GET", "health/checks/port-listener/{port}", hub.port_listener),
    ("GET", "health/checks/protocol-listener/{protocols}", hub.protocol_listener),

    *[("GET", path, hub.nothing) for path in EMPTY],
    ("GET", "vhosts", hub.vhosts), ("GET", "vhosts/{vhost}", hub.vhost), ("PUT", "vhosts/{vhost}", hub.put_vhost),
    ("DELETE", "vhosts/{vhost}", hub.put_vhost), ("GET", "vhosts/{vhost}/permissions", hub.permissions_of_vhost),
    ("GET", "vhosts/{vhost}/connections", seeing.connections), ("GET", "vhosts/{vhost}/channels", seeing.channels),
    ("GET", "users", hub.users), ("GET", "users/{user}", hub.user), ("PUT", "users/{user}", hub.put_user),
    ("DELETE", "users/{user}", hub.put_user), ("GET", "users/{user}/permissions", hub.permissions_of_user),
    ("GET", "permissions", hub.permissions), ("GET", "permissions/{vhost}/{user}", hub.permission),
    ("PUT", "permissions/{vhost}/{user}", hub.put_permission),
    ("DELETE", "permissions/{vhost}/{user}", hub.put_permission),
    *[(method, f"{limits}/{{of}}/{{name}}", hub.put_limit) for limits in ("vhost-limits", "user-limits")
      for method in ("PUT", "DELETE")],
    *[(method, path, handler) for method, handler in (("GET", hub.parameter), ("PUT", hub.put_parameter),
                                                      ("DELETE", hub.put_parameter))
      for path in ("global-parameters/{name}", "parameters/{component}/{vhost}/{name}")],

    ("GET", "exchanges", seeing.exchanges), ("GET", "exchanges/{vhost}", seeing.exchanges),
    ("GET", "exchanges/{vhost}/{exchange}", seeing.exchange),
    ("PUT", "exchanges/{vhost}/{exchange}", changing.put_exchange),
    ("DELETE", "exchanges/{vhost}/{exchange}", changing.delete_exchange),
    ("GET", "exchanges/{vhost}/{exchange}/bindings/source", seeing.bindings_of_source),
    ("GET", "exchanges/{vhost}/{exchange}/bindings/destination", seeing.bindings_of_destination),
    ("POST", "exchanges/{vhost}/{exchange}/publish", messages.publish),

    ("GET", "queues", seeing.queues), ("GET", "queues/detailed", seeing.queues_of_all),
    ("GET", "queues/{vhost}", seeing.queues),
    ("GET", "queues/{vhost}/{queue}", seeing.queue), ("PUT", "queues/{vhost}/{queue}", changing.put_queue),
    ("DELETE", "queues/{vhost}/{queue}", changing.delete_queue),
    ("GET", "queues/{vhost}/{queue}/bindings", seeing.bindings_of_queue),
    ("DELETE", "queues/{vhost}/{queue}/contents", messages.purge),
    ("POST", "queues/{vhost}/{queue}/get", messages.get), ("POST", "queues/{vhost}/{queue}/actions", messages.act),

    ("GET", "bindings", seeing.bindings), ("GET", "bindings/{vhost}", seeing.bindings),
    ("GET", _BETWEEN, seeing.bindings_between), ("POST", _BETWEEN, changing.post_binding),
    ("GET", f"{_BETWEEN}/{{key}}", seeing.binding), ("DELETE", f"{_BETWEEN}/{{key}}", changing.delete_binding),

    ("GET", "consumers", seeing.consumers), ("GET", "consumers/{vhost}", seeing.consumers),
    ("GET", "connections", seeing.connections), ("GET", "connections/{connection}", seeing.connection),
    ("DELETE", "connections/{connection}", seeing.close_connection),
    ("GET", "connections/{connection}/channels", seeing.channels_of_connection),
    ("GET", "connections/username/{user}", seeing.connections_of_user),
    ("GET", "channels", seeing.channels), ("GET", "channels/{channel}", seeing.channel),

    *changing.POLICY_CALLS,

    ("GET", "all-configuration", definitions.export), ("GET", "definitions", definitions.export),
    ("GET", "definitions/{vhost}", definitions.export),
    ("POST", "definitions", definitions.load), ("POST", "definitions/{vhost}", definitions.load),
)


def _table() -> dict[tuple[str, int], list[tuple[tuple[str, ...], dict[str, Handler]]]]:
    """Patterns by their first level and their length."""
    table: dict[tuple[str, int], list[tuple[tuple[str, ...], dict[str, Handler]]]] = {}
    for method, path, handler in CALLS:
        levels = tuple(path.split("/"))
        patterns = table.setdefault((levels[0], len(levels)), [])
        handlers_there = next((handlers for pattern, handlers in patterns if pattern == levels), None)
        if handlers_there is None:
            handlers_there = {}
            patterns.append((levels, handlers_there))
        handlers_there[method] = handler
    return table


TABLE: Final = _table()


async def serve(services: Services, ask: HttpAsk) -> HttpAnswer:
    """See `contract.HttpRoute`. Raises what `asking.refusal` knows."""
    path = ask.path[:-1] if ask.path and not ask.path[-1] else ask.path
    if not path:
        raise nothing_there()
    for pattern, handlers in TABLE.get((path[0], len(path)), ()):
        captures: list[Any] = []
        for wanted, level in zip(pattern, path, strict=True):
            if wanted.startswith("{"):
                captures.append(level)
            elif wanted != level:
                break
        else:
            handler = handlers.get(ask.method)
            if handler is None:
                raise ManagementError(405, "Method Not Allowed", f"there are: {', '.join(sorted(handlers))}")
            return await handler(Asking(services, ask), *captures)
    raise nothing_there()
