"""The commands about users: accounts, API keys, groups of users."""
from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from gatehouse.cli.account_access import Document, access_options, accounts_of
from gatehouse.cli.tables import as_json, pairs, show, table, time_text
from gatehouse.exits import USAGE, Refused

COLUMNS: Final = ("name", "tenant", "groups", "disabled", "expires", "has_password", "messages_per_s", "bytes_per_s",
                  "created")
KEY_COLUMNS: Final = ("id", "name", "created", "expires", "restriction")
ADMINS: Final = "admins"
MAX_PASSWORD_BYTES: Final = 4096
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _read_when(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Milliseconds since 1970; 0: never. None where nothing is said."""
    if value is None:
        return None
    if value == "never":
        return 0
    try:
        time_ms = (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError):              # no time, or none of any zone
        time_ms = 0
    if time_ms <= 0:
        raise click.BadParameter(f"{value!r} is neither a time with its zone, as 2030-01-31T18:00:00Z, nor never")
    return time_ms


expires_option = click.option(
    "--expires", metavar="WHEN", default=None, callback=_read_when,
    help="When it is let in no more and its connections end: a time with its zone, as 2030-01-31T18:00:00Z, or never.")

password_file_option = click.option(
    "--password-file", type=click.Path(path_type=Path, allow_dash=True), default=None,
    help="File with the password in its first line, - for standard input. Left out, it is asked for, or read from "
         "standard input where that is no terminal. Never an argument: others could see it.")


@click.group()
def users() -> None:
    """Users: who may log in. Asks the hub, which takes the right to administer, or changes a data directory on which
    none runs, which is how the first user is made."""


@users.command("create")
@click.argument("name")
@click.option("--admin", is_flag=True, help=f"In the group {ADMINS}, which may do everything.")
@click.option("--group", "groups", multiple=True, help="In this group; may be repeated.")
@click.option("--tenant", default=None, help="Where it works unless it asks for another. Default: /.")
@click.option("--also-tenant", "tenants", multiple=True, help="A further one; may be repeated.")
@click.option("--messages-per-s", type=click.FloatRange(0), default=None, help="Quota over all doors; 0: none.")
@click.option("--bytes-per-s", type=click.FloatRange(0), default=None, help="Quota over all doors; 0: none.")
@expires_option
@click.option("--no-password", is_flag=True, help="It logs in by API key, token or certificate alone.")
@password_file_option
@access_options
def create_user(name: str, admin: bool, groups: tuple[str, ...], tenants: tuple[str, ...], no_password: bool,
                password_file: Path | None, config_file: Path, data: Path | None, url: str | None, json_wanted: bool,
                **given: Any) -> None:
    """Make a user."""
    document: Document = {key: value for key, value in given.items() if value is not None}
    document["groups"] = sorted({*groups, ADMINS} if admin else {*groups})
    document["tenants"] = sorted(tenants)
    if not no_password:
        document["password"] = read_password(password_file, name)
    with accounts_of(config_file, data, url) as access:
        _show(access.create_user(name, document), json_wanted)


@users.command("list")
@access_options
def list_users(config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """List users."""
    with accounts_of(config_file, data, url) as access:
        _show_list(access.users(), COLUMNS, json_wanted)


@users.command("show")
@click.argument("name")
@access_options
def show_user(name: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Show a user: groups, quota, API keys."""
    with accounts_of(config_file, data, url) as access:
        _show(access.user(name), json_wanted)


@users.command("passwd")
@click.argument("name")
@password_file_option
@access_options
def set_password(name: str, password_file: Path | None, config_file: Path, data: Path | None, url: str | None,
                 json_wanted: bool) -> None:
    """Set a user's password. Who is connected by the old one is disconnected."""
    password = read_password(password_file, name)
    with accounts_of(config_file, data, url) as access:
        _show(access.change_user(name, {"password": password}), json_wanted)


@users.command("disable")
@click.argument("name")
@access_options
def disable_user(name: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Let a user in no more; its connections end."""
    with accounts_of(config_file, data, url) as access:
        _show(access.change_user(name, {"disabled": True}), json_wanted)


@users.command("enable")
@click.argument("name")
@access_options
def enable_user(name: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Let a disabled user in again."""
    with accounts_of(config_file, data, url) as access:
        _show(access.change_user(name, {"disabled": False}), json_wanted)


@users.command("alter")
@click.argument("name")
@expires_option
@access_options
def alter_user(name: str, expires: int | None, config_file: Path, data: Path | None, url: str | None,
               json_wanted: bool) -> None:
    """Change until when a user is let in."""
    if expires is None:
        raise click.UsageError("nothing is to change; say --expires")
    with accounts_of(config_file, data, url) as access:
        _show(access.change_user(name, {"expires": expires}), json_wanted)


@users.command("delete")
@click.argument("name")
@access_options
def delete_user(name: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Delete a user with its API keys; its connections end. Rules that name it stay."""
    with accounts_of(config_file, data, url) as access:
        access.delete_user(name)
    show({"name": name, "state": "deleted"}, f"deleted {name}", json_wanted)


@users.command("quota")
@click.argument("name")
@click.option("--messages-per-s", type=click.FloatRange(0), default=None, help="Over all doors together; 0: no limit.")
@click.option("--bytes-per-s", type=click.FloatRange(0), default=None, help="Over all doors together; 0: no limit.")
@access_options
def set_quota(name: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool,
              **given: float | None) -> None:
    """Change how much a user may send."""
    with accounts_of(config_file, data, url) as access:
        _show(access.change_user(name, {key: rate for key, rate in given.items() if rate is not None}), json_wanted)


@users.group("key")
def keys() -> None:
    """API keys: for programs, instead of a password.

    Over HTTP `Authorization: Bearer KEY`; on every door in the password's place.
    """


@keys.command("create")
@click.argument("user")
@click.argument("name")
@click.option("--expires-in", "days", type=click.FloatRange(0, min_open=True), default=None, metavar="DAYS",
              help="Days until it opens nothing any more. Default: never.")
@click.option("--only", "limits", multiple=True, metavar="'OPERATIONS KIND PATTERN'",
              help="Restrict it to this, of what its user may: '--only \"publish address plant/#\"'; may be repeated.")
@access_options
def create_key(user: str, name: str, days: float | None, limits: tuple[str, ...], config_file: Path, data: Path | None,
               url: str | None, json_wanted: bool) -> None:
    """Make an API key. It is shown this once."""
    document: Document = {"name": name}
    if days is not None:
        document["expires"] = time.time_ns() // 1_000_000 + int(days * _DAY_MS)
    if limits:
        document["restriction"] = [_read_limit(limit) for limit in limits]
    with accounts_of(config_file, data, url) as access:
        made = access.create_key(user, document)
    show(made, pairs(_readable(made)), json_wanted)


@keys.command("list")
@click.argument("user")
@access_options
def list_keys(user: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """List a user's API keys."""
    with accounts_of(config_file, data, url) as access:
        _show_list(access.user(user)["keys"], KEY_COLUMNS, json_wanted)


@keys.command("revoke")
@click.argument("user")
@click.argument("id")
@access_options
def revoke_key(user: str, id: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Revoke an API key; connections that it opened end."""
    with accounts_of(config_file, data, url) as access:
        access.revoke_key(user, id)
    show({"id": id, "state": "revoked"}, f"revoked {id}", json_wanted)


@users.group("group")
def user_groups() -> None:
    """Groups of users, which rules speak of."""


@user_groups.command("add")
@click.argument("user")
@click.argument("groups", nargs=-1, required=True)
@access_options
def add_groups(user: str, groups: tuple[str, ...], config_file: Path, data: Path | None, url: str | None,
               json_wanted: bool) -> None:
    """Put a user into groups."""
    with accounts_of(config_file, data, url) as access:
        existing = access.user(user)["groups"]
        _show(access.change_user(user, {"groups": sorted({*existing, *groups})}), json_wanted)


@user_groups.command("remove")
@click.argument("user")
@click.argument("groups", nargs=-1, required=True)
@access_options
def remove_groups(user: str, groups: tuple[str, ...], config_file: Path, data: Path | None, url: str | None,
                  json_wanted: bool) -> None:
    """Take a user out of groups."""
    with accounts_of(config_file, data, url) as access:
        existing = access.user(user)["groups"]
        _show(access.change_user(user, {"groups": sorted({*existing} - {*groups})}), json_wanted)


def read_password(file: Path | None, name: str) -> str:
    """From a file, from standard input, or asked for twice. Raises Refused."""
    if file is None and sys.stdin.isatty():
        return str(click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True))
    try:
        if file is None or str(file) == "-":
            line = sys.stdin.readline(MAX_PASSWORD_BYTES)
        else:
            with file.open(encoding="utf-8") as lines:
                line = lines.readline(MAX_PASSWORD_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Refused(f"cannot read the password: {reason}", USAGE) from None
    return line.rstrip("\r\n")


def _read_limit(text: str) -> Document:
    words = text.split()
    if len(words) not in (2, 3) or (len(words) == 2) != (words[1] == "hub"):
        raise click.UsageError(f"--only is 'OPERATIONS KIND PATTERN' like 'publish address plant/#', not {text!r}")
    pattern = {} if len(words) == 2 else {"pattern": words[2]}
    return {"operations": words[0].split(","), "kind": words[1], **pattern}


def _show(user: Document, json_wanted: bool) -> None:
    plain = {name: value for name, value in user.items() if name != "keys"}
    text = pairs(_readable(plain))
    if user["keys"]:
        text += "\n\n" + _table(user["keys"], KEY_COLUMNS)
    show(user, text, json_wanted)


def _show_list(documents: list[Document], columns: tuple[str, ...], json_wanted: bool) -> None:
    if json_wanted:
        for document in documents:
            click.echo(as_json(document))
    else:
        click.echo(_table(documents, columns))


def _table(documents: list[Document], columns: tuple[str, ...]) -> str:
    rows = [_readable(document) for document in documents]
    return table([name.replace("_", " ") for name in columns], [[row.get(name) for name in columns] for row in rows])


def _readable(document: Document) -> Document:
    """Times and lists as people write them."""
    shown = {}
    for name, value in document.items():
        if name in ("created", "expires") and isinstance(value, int):
            value = time_text(value)
        elif isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            value = ", ".join(value) or None
        shown[name] = value
    return shown
