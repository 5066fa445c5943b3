"""One call of the management interface: who asks, in which virtual hosts he may be, refusals in RabbitMQ's words, and
lists as tools ask for them.

    200, 201, 204   as asked; 201 for what is new, 204 for what was there or is gone
    400             {"error": "bad_request", "reason": ...}: what AMQP refuses with 406, or no JSON
    401             {"error": "not_authorised", ...}: wrong login, or no right
    404             {"error": "Object Not Found", "reason": "Not Found"}

    ?name=&use_regex=true   those with this in their name
    ?sort=messages&sort_reverse=true
    ?columns=name,messages_details.rate
    ?page=1&page_size=100   an object with `items` and counts; without `page` a plain list
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied, NotAuthenticated
from gatehouse.gateways.amqp.broker import Broker
from gatehouse.gateways.amqp.errors import NAMES, AmqpError
from gatehouse.gateways.amqp.policies import NoPattern, compile_pattern
from gatehouse.gateways.amqp.rights import AmqpRights
from gatehouse.gateways.amqp.tables import Field, Table, plain, typed
from gatehouse.gateways.contract import HttpAnswer
from gatehouse.kernel.errors import KernelError

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.amqp.vhost import VirtualHost
    from gatehouse.gateways.contract import HttpAsk, Services

Row = dict[str, Any]

ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
UNAVAILABLE: Final = ("storage_full", "kept_full", "stopping", "outcome_unknown", "busy")
PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
NO_LONGER_THAN: Final = 64             # levels of lists and objects in each other, of what is sent


class ManagementError(Exception):
    """A call is refused."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.answer: Final = HttpAnswer(status, {"error": error, "reason": reason})


def bad_request(reason: str) -> ManagementError:
    return ManagementError(400, "bad_request", reason)


def nothing_there() -> ManagementError:
    return ManagementError(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> ManagementError:
    return ManagementError(401, "not_authorised", reason)


def refusal(error: Exception) -> HttpAnswer | None:
    """The answer to what a call ended in; None where it is no refusal, but a fault."""
    if isinstance(error, ManagementError):
        return error.answer
    if isinstance(error, NotAuthenticated):
        return HttpAnswer(401, {"error": "not_authorized", "reason": "Login failed"})
    if isinstance(error, Denied):
        return not_authorised("Access refused.").answer
    if isinstance(error, AmqpError):
        if error.code == ACCESS_REFUSED:
            return not_authorised("Access refused.").answer
        if error.code == NOT_FOUND:
            return nothing_there().answer
        return bad_request(str(error).removeprefix(f"{NAMES[error.code]} - ")).answer
    code = getattr(error, "code", None)                    # the kernel's, or the HTTP door's
    if isinstance(code, str) and code != "internal_error":
        status = 503 if code in UNAVAILABLE else 400
        return ManagementError(status, "bad_request" if status == 400 else code, str(error)).answer
    return None


class Host(NamedTuple):
    """A virtual host, as who asks may use it."""

    vhost: VirtualHost
    rights: AmqpRights
    principal: Principal


class Asking:
    """One call of the management interface, and who asks."""

    def __init__(self, services: Services, ask: HttpAsk) -> None:
        self.services = services
        self.ask = ask
        self.query = ask.query
        self.principal = ask.principal
        self.broker = Broker.of(services)

    @property
    def may_administer(self) -> bool:
        return self.services.admission.may_hub(self.principal, Operation.ADMINISTER)

    def require_administrator(self) -> None:
        if not self.may_administer:
            raise not_authorised("User not administrator user")

    def hosts(self) -> list[Host]:
        """The virtual hosts that the user may enter, by name."""
        names = sorted(self.services.admission.tenants(self.principal))
        return [self._host(name) for name in names]

    def host(self, name: str) -> Host:
        """Raises ManagementError 404 for one that the user may not enter."""
        if name not in self.services.admission.tenants(self.principal):
            raise nothing_there()
        return self._host(name)

    def chosen(self, name: str | None) -> list[Host]:
        """This one, or all that the user may enter."""
        return self.hosts() if name is None else [self.host(name)]

    def _host(self, name: str) -> Host:
        admission = self.services.admission
        principal = admission.in_tenant(self.principal, name)
        vhost = self.broker.vhost(name)
        return Host(vhost, AmqpRights(admission, principal, vhost, self, self.ask.peer), principal)

    def document(self) -> dict[str, Any]:
        """The JSON object that was sent; nothing is an empty one. Raises ManagementError 400."""
        try:
            read = orjson.loads(self.ask.body) if self.ask.body.strip() else {}
        except orjson.JSONDecodeError:
            raise bad_request("not_json") from None
        if not isinstance(read, dict):
            raise bad_request("not_json")
        return read


def needed(document: dict[str, Any], *names: str) -> None:
    """Raises ManagementError 400 for fields that are missing."""
    missing = [name for name in names if name not in document]
    if missing:
        raise bad_request(f"[{','.join(f'{{key_missing,{name}}}' for name in missing)}]")


def flag(document: dict[str, Any], name: str, default: bool = False) -> bool:
    """Many clients send flags as text. Raises ManagementError 400."""
    value = document.get(name, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise bad_request(f"{{not_boolean,{name}}}")
    return value


def text_of(document: dict[str, Any], name: str, default: str = "") -> str:
    """Raises ManagementError 400 for what is no text."""
    value = document.get(name, default)
    if not isinstance(value, str):
        raise bad_request(f"{{not_a_string,{name}}}")
    return value


def table_of(given: Any, name: str = "arguments") -> Table:
    """JSON's object as a table of AMQP. Raises ManagementError 400."""
    if given is None or given == []:
        return Table()
    if not isinstance(given, dict):
        raise bad_request(f"{{not_a_table,{name}}}")
    _check_depth(given, NO_LONGER_THAN)
    if any(len(key.encode()) > 255 for key in given):
        raise bad_request(f"{{name_too_long,{name}}}")
    try:
        table: Table = {key: typed(value) for key, value in given.items()}
    except (UnicodeEncodeError, OverflowError):
        raise bad_request(f"{{not_a_table,{name}}}") from None
    return table


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, list | dict):
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise bad_request("a number of more than 64 bits")
        return
    if not left:
        raise bad_request("nested too deep")
    for entry in value.values() if isinstance(value, dict) else value:
        _check_depth(entry, left - 1)


def shown(field: Field) -> Any:
    """A typed value as JSON's types."""
    return _readable(plain(field))


def shown_table(table: Table) -> dict[str, Any]:
    return {name: shown(field) for name, field in table.items()}


def _readable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [_readable(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _readable(entry) for name, entry in value.items()}
    return value


async def changed(asking: Asking, host: Host, changes: Any) -> None:
    """Changes of a virtual host are durable when this returns; undone where the disk does not take them."""
    changes = list(changes)
    if not changes:
        return
    try:
        await asking.ask.stored(lambda owner, token: asking.broker.store(host.vhost, changes, owner, token))
    except KernelError:
        asking.broker.undo(host.vhost, changes)
        raise


# ---- lists

def listed(rows: list[Row], query: Mapping[str, str]) -> Any:
    """The rows as the query wants them. Raises ManagementError 400."""
    total = len(rows)
    rows = _named(rows, query)
    if "sort" in query:
        rows.sort(key=lambda row: _order(_value(row, query["sort"])), reverse=query.get("sort_reverse") == "true")
    if "page" not in query:
        return [_columns(row, query) for row in rows]
    page, size = _number(query, "page", 1), _number(query, "page_size", PAGE_SIZE)
    if size > PAGE_SIZE_MAX:
        raise bad_request(f"page_size is at most {PAGE_SIZE_MAX}")
    pages = max(1, -(-len(rows) // size))
    if page > pages:
        raise bad_request(f"page_out_of_range: page {page} of {pages}")
    items = rows[(page - 1) * size:page * size]
    return {"filtered_count": len(rows), "item_count": len(items), "items": [_columns(row, query) for row in items],
            "page": page, "page_count": pages, "page_size": size, "total_count": total}


def one(row: Row, query: Mapping[str, str]) -> Row:
    """One thing, with the columns that the query wants."""
    return _columns(row, query)


def _named(rows: list[Row], query: Mapping[str, str]) -> list[Row]:
    wanted = query.get("name", "")
    if not wanted:
        return list(rows)
    if query.get("use_regex") == "true":
        try:
            pattern = compile_pattern(wanted, re.IGNORECASE)
        except NoPattern as error:
            raise bad_request(f"name is no pattern: {error}") from None
        return [row for row in rows if pattern.search(str(row.get("name", "")))]
    return [row for row in rows if wanted.casefold() in str(row.get("name", "")).casefold()]


def _columns(row: Row, query: Mapping[str, str]) -> Row:
    if not query.get("columns"):
        return row
    chosen: Row = {}
    for column in query["columns"].split(","):
        _take(chosen, row, column.split("."))
    return chosen


def _take(chosen: Row, row: Any, path: list[str]) -> None:
    name, *rest = path
    if not isinstance(row, dict) or name not in row:
        return
    if not rest:
        chosen[name] = row[name]
    elif isinstance(row[name], dict):
        _take(chosen.setdefault(name, {}), row[name], rest)


def _value(row: Row, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool | int | float):
        return 1, value
    return (0, "") if value is None else (2, str(value))


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) or len(text) > 9:
        raise bad_request(f"{name} is a whole number from 1")
    return int(text)
