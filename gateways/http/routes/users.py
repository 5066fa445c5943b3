"""`/v1/users`: who may log in, and their API keys. Needs the right to administer.

    GET /v1/users?max=&cursor=            {"users": [{...}], "cursor"}
    GET, PUT, DELETE /v1/users/{name}     PUT makes one (201), or changes what the document names (200)
    POST /v1/users/{name}/keys            {"id", "name", ..., "key"}: the key is shown this once
    DELETE /v1/users/{name}/keys/{id}     revokes it

No answer holds a password or a hash.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from gatehouse.gateways.admission.accounts import ApiKey, User
from gatehouse.gateways.admission.administration import MAX_EXPIRES_MS, UserChanges, prepared_name
from gatehouse.gateways.admission.scram import name_form
from gatehouse.gateways.http.accounts import (
    ADMINISTERING,
    CHANGES,
    LIMITS,
    administrator,
    changed,
    changed_if,
    refuse_unknown,
)
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    FLAG,
    MAX_LISTED,
    NUMBER,
    PRINTABLE,
    TEXT,
    TIME_MS,
    Answer,
    Body,
    Document,
    Named,
    Parameter,
    declare,
    list_of,
    nullable,
    object_of,
    shown,
)
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, decode_level, json_answer
from gatehouse.gateways.http.page import decode_name, page_by_name

if TYPE_CHECKING:
    from gatehouse.gateways.admission.administration import Administration

NAME: Final = Parameter("name", "The user's name.", example="ann",
                        text=PRINTABLE)
KEY_ID: Final = Parameter("id", "The key's `id`.", example="abcdefghijklmnop",
                          text={"type": "string", "minLength": 1, "maxLength": 32})

_RATE: Final = {**NUMBER, "minimum": 0, "maximum": 1e15, "description": "0: no limit. Over all doors together."}
_NAMES: Final = list_of(PRINTABLE, maxItems=1000)
_PASSWORD: Final = {**TEXT, "format": "password", "minLength": 8, "maxLength": 1024, "writeOnly": True}
_KEY: Final = {"id": TEXT, "name": TEXT, "created": TIME_MS, "expires": nullable(TIME_MS),
               "restriction": nullable(LIMITS)}
KEY: Final = Named("ApiKey", object_of(_KEY))
USER: Final = Named("User", object_of({
    "name": TEXT, "tenant": TEXT, "tenants": _NAMES, "groups": _NAMES,
    "groups_from_file": {**_NAMES, "description": "Those that the configuration puts it in."}, "disabled": FLAG,
    "expires": {**nullable(TIME_MS), "description": "It is let in no more from then on; null: never."},
    "has_password": FLAG, "messages_per_s": _RATE, "bytes_per_s": _RATE, "created": TIME_MS, "keys": list_of(KEY)}))
_Expires: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_EXPIRES_MS)] | None | UnsetType
_Names: TypeAlias = Annotated[frozenset[str], shown(**_NAMES)] | UnsetType
_Rate: TypeAlias = Annotated[float, shown(**_RATE)] | UnsetType


class UserInput(Document):
    """What is to change of a user, or to be of a new one."""

    EXAMPLE = {"groups": ["operators"]}
    password: Annotated[str, shown(**_PASSWORD)] | UnsetType = UNSET
    tenant: Annotated[str, shown(**PRINTABLE)] | UnsetType = UNSET
    tenants: _Names = UNSET
    groups: _Names = UNSET
    disabled: bool | UnsetType = UNSET
    expires: Annotated[_Expires, Meta(description="It is let in no more from then on; null or 0: never.")] = UNSET
    messages_per_s: _Rate = UNSET
    bytes_per_s: _Rate = UNSET

    def changes(self) -> UserChanges:
        """In the words of the admission."""
        given = self.given()
        if "expires" in given:
            given["expires_ms"] = given.pop("expires") or 0
        return UserChanges(**given)


class KeyInput(Document):
    """What a new key is to be."""

    EXAMPLE = {"name": "ingest"}
    name: Annotated[str, shown(**PRINTABLE)]
    expires: Annotated[_Expires, Meta(
        description="It opens nothing from then on; left out, null or 0: never.")] = UNSET
    restriction: Annotated[list[dict[str, Any]] | None, Meta(description="What it may of what its user may."), shown(
        anyOf=[LIMITS, {"type": "null"}])] = None


OF_USER: Final = ("unknown_user",)


@declare("users", query=(MAX_LISTED, AFTER), needs=ADMINISTERING, problems=("invalid_cursor", "accounts_unavailable"),
         answers=(Answer(200, "A page of users.", object_of({"users": list_of(USER), "cursor": CURSOR})),))
async def list_users(door: Door, call: Call) -> Answered:
    """List users by name."""
    _, accounts = await administrator(door, call)
    query = call.query()
    after, count = decode_name(query.get("cursor", "")), MAX_LISTED.read(query, door.config)
    names, cursor = page_by_name(sorted(name for name in accounts.accounts.users if name > after), count, str)
    return json_answer({"users": [_shown(accounts, accounts.user(name)) for name in names], "cursor": cursor})


@declare("users", path=(NAME,), needs=ADMINISTERING, problems=(*OF_USER, "accounts_unavailable"),
         answers=(Answer(200, "The user.", USER),))
async def get_user(door: Door, call: Call) -> Answered:
    """Show a user: groups, quota, API keys."""
    _, accounts = await administrator(door, call)
    call.query()
    return json_answer(_shown(accounts, accounts.user(call.topic_name())))


@declare("users", path=(NAME,), bodies=(Body(UserInput, required=False),), needs=ADMINISTERING,
         problems=("invalid_user", "unknown_user", "user_exists", "last_administrator", "precondition_failed",
                   *CHANGES),
         answers=(Answer(200, "It is changed.", USER), Answer(201, "It is made.", USER)))
async def put_user(door: Door, call: Call) -> Answered:
    """Make a user, or change one.

    What the document leaves out stays as it is. Connections of a user that is disabled, expires, leaves a tenant or
    gets another password end. `If-Match` with the user's `ETag` changes only what was seen, `If-None-Match: *` only
    makes one.
    """
    by, accounts = await administrator(door, call)
    call.query()
    name, changes = call.topic_name(), (await read(door, call, UserInput)).changes()
    user_name = prepared_name(name)
    existed = False

    def put(on_done: Callable[[Any], None]) -> None:
        nonlocal existed
        existed = user_name in accounts.accounts.users
        accounts.put_user(by, name, changes, on_done)

    user = await changed_if(door, call, lambda: _found(accounts, user_name), put)
    return json_answer(_shown(accounts, user), 200 if existed else 201)


@declare("users", path=(NAME,), needs=ADMINISTERING,
         problems=(*OF_USER, "last_administrator", "precondition_failed", *CHANGES),
         answers=(Answer(204, "It is gone, with its keys."),))
async def delete_user(door: Door, call: Call) -> Answered:
    """Delete a user with its API keys. Its connections end; rules that name it stay."""
    by, accounts = await administrator(door, call)
    call.query()
    await changed_if(door, call, lambda: _found(accounts, call.topic_name()),
                     lambda on_done: accounts.delete_user(by, call.topic_name(), on_done))
    return Response(status=204)


@declare("users", path=(NAME,), bodies=(Body(KeyInput),), needs=ADMINISTERING,
         problems=(*OF_USER, "invalid_user", "invalid_rule", *CHANGES),
         answers=(Answer(201, "The key, which is shown this once.", object_of({**_KEY, "key": TEXT})),))
async def create_key(door: Door, call: Call) -> Answered:
    """Make an API key that stands for the user.

    It goes into `Authorization: Bearer`, or stands for the password on every door.
    """
    by, accounts = await administrator(door, call)
    call.query()
    wanted = await read(door, call, KeyInput)
    for limit in wanted.restriction or ():
        refuse_unknown(limit, ("operations", "kind", "pattern"))
    key, text = await changed(door, call, lambda on_done: accounts.create_key(
        by, call.topic_name(), wanted.name, on_done, expires_ms=wanted.expires or 0, restriction=wanted.restriction))
    return json_answer({**key.as_dict(), "key": text}, 201)


@declare("users", path=(NAME, KEY_ID), needs=ADMINISTERING, problems=("unknown_key", *CHANGES),
         answers=(Answer(204, "It opens nothing any more."),))
async def revoke_key(door: Door, call: Call) -> Answered:
    """Revoke an API key. Connections that it opened end."""
    by, accounts = await administrator(door, call)
    call.query()
    user, id = decode_level(call.captures[0]), decode_level(call.captures[1])
    await changed(door, call, lambda on_done: accounts.revoke_key(by, user, id, on_done))
    return Response(status=204)


def _shown(accounts: Administration, user: User) -> dict[str, Any]:
    keys: list[ApiKey] = accounts.accounts.keys_of(user.name)
    return {**user.as_dict(accounts.accounts.file_groups_of(user.name)), "keys": [key.as_dict() for key in keys]}


def _found(accounts: Administration, name: str) -> dict[str, Any] | None:
    """What a request may ask about."""
    user = accounts.accounts.users.get(name_form(name))
    return None if user is None else _shown(accounts, user)


ROUTES: Routes = (
    ("GET", "/v1/users", list_users), ("GET", "/v1/users/{name}", get_user), ("PUT", "/v1/users/{name}", put_user),
    ("DELETE", "/v1/users/{name}", delete_user), ("POST", "/v1/users/{name}/keys", create_key),
    ("DELETE", "/v1/users/{name}/keys/{id}", revoke_key))
