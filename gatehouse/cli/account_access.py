"""Users, rights and limits for the commands: of a running hub through its HTTP door, or of a data directory on which
none runs.

Both give and take the documents of the HTTP interface. What is changed without a hub waits in the database for the next
one, which writes it to its audit topic: the log belongs to whoever runs on it.
"""
from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import quote

import click

from gatehouse import exits
from gatehouse.cli.hub_option import asking, default_url, login_options
from gatehouse.exits import Refused
from gatehouse_client.errors import HubError

Document = dict[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])


class Access(Protocol):
    """What the commands need. Refused where it does not work."""

    def users(self) -> list[Document]: ...
    def user(self, name: str) -> Document: ...
    def create_user(self, name: str, document: Document) -> Document: ...
    def change_user(self, name: str, document: Document) -> Document: ...
    def delete_user(self, name: str) -> None: ...
    def create_key(self, user: str, document: Document) -> Document: ...
    def revoke_key(self, user: str, id: str) -> None: ...
    def rules(self) -> list[Document]: ...
    def add_rule(self, document: Document) -> Document: ...
    def remove_rule(self, id: str) -> None: ...
    def ask(self, question: Document) -> Document: ...
    def limits(self) -> list[Document]: ...
    def limit(self, id: str) -> Document: ...
    def add_limit(self, document: Document) -> Document: ...
    def replace_limit(self, id: str, document: Document) -> Document: ...
    def remove_limit(self, id: str) -> None: ...


def access_options(command: Command) -> Command:
    """--config, --data, --url, --user, --json."""
    for option in (
            click.option("--config", "config_file", type=click.Path(path_type=Path), default=Path("gateways.toml"),
                         envvar="GATEHOUSE_CONFIG", show_default=True,
                         help="Configuration of the hub, where it is on this machine."),
            click.option("--data", type=click.Path(path_type=Path), default=None,
                         help="Its data directory, if not the configuration's."),
            click.option("--url", envvar="GATEHOUSE_URL", default=None,
                         help="HTTP door of a running hub. Left out, the data directory says whether one runs: then it "
                              "is asked, else the directory is changed."),
            click.option("--json", "json_wanted", is_flag=True, help="For programs: one JSON value per line.")):
        command = option(command)
    return login_options(command)


@contextmanager
def accounts_of(config_file: Path, data: Path | None, url: str | None) -> Iterator[Access]:
    """The hub that is meant. Raises Refused."""
    if url is None and (data is not None or config_file.exists()):
        from gatehouse.config.config import ConfigError, load
        from gatehouse.datadir import running_process
        from gatehouse.serve import read_specs
        try:
            config = load(config_file, os.environ, read_specs())
        except ConfigError as error:
            raise Refused(f"{error.lines[0]} (`gatehouse check` shows all)", exits.USAGE) from None
        if running_process(data or config.data_dir) is None:
            with _offline(config, data or config.data_dir) as offline:
                yield offline
            return
    with asking(url or default_url(config_file)) as hub:
        yield OnHub(hub.request)


class OnHub:
    """The accounts of a running hub, through its HTTP door."""

    def __init__(self, request: Callable[..., Document]) -> None:
        self._request = request

    def users(self) -> list[Document]:
        return self._listed("/v1/users", "users")

    def user(self, name: str) -> Document:
        return self._request("GET", f"/v1/users/{_part(name)}")

    def create_user(self, name: str, document: Document) -> Document:
        try:
            return self._request("PUT", f"/v1/users/{_part(name)}", document, headers={"If-None-Match": "*"},
                                 repeatable=False)
        except HubError as error:
            if error.code != "precondition_failed":
                raise
            raise Refused(f"there is a user {name!r} already", exits.FAILED) from None

    def change_user(self, name: str, document: Document) -> Document:
        self.user(name)                  # PUT would make it
        return self._request("PUT", f"/v1/users/{_part(name)}", document)

    def delete_user(self, name: str) -> None:
        self._request("DELETE", f"/v1/users/{_part(name)}")

    def create_key(self, user: str, document: Document) -> Document:
        return self._request("POST", f"/v1/users/{_part(user)}/keys", document)

    def revoke_key(self, user: str, id: str) -> None:
        self._request("DELETE", f"/v1/users/{_part(user)}/keys/{_part(id)}")

    def rules(self) -> list[Document]:
        return self._listed("/v1/acl", "rules")

    def add_rule(self, document: Document) -> Document:
        return self._request("POST", "/v1/acl", document)

    def remove_rule(self, id: str) -> None:
        self._request("DELETE", f"/v1/acl/{_part(id)}")

    def ask(self, question: Document) -> Document:
        return self._request("POST", "/v1/acl/test", question, repeatable=True)

    def limits(self) -> list[Document]:
        return self._listed("/v1/limits", "limits")

    def limit(self, id: str) -> Document:
        return self._request("GET", f"/v1/limits/{_part(id)}")

    def add_limit(self, document: Document) -> Document:
        return self._request("POST", "/v1/limits", document)

    def replace_limit(self, id: str, document: Document) -> Document:
        return self._request("PUT", f"/v1/limits/{_part(id)}", document)

    def remove_limit(self, id: str) -> None:
        self._request("DELETE", f"/v1/limits/{_part(id)}")

    def _listed(self, path: str, what: str) -> list[Document]:
        documents: list[Document] = []
        cursor = None
        while True:
            page = self._request("GET", path, query=None if cursor is None else {"cursor": cursor})
            documents += page[what]
            cursor = page["cursor"]
            if cursor is None:
                return documents


def _part(text: str) -> str:
    return quote(text, safe="")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _offline(config: Any, folder: Path) -> Iterator[Access]:
    """The data directory is ours meanwhile: no hub can start on it."""
    from gatehouse.accounts import offline_administration
    from gatehouse.datadir import open_data_dir
    from gatehouse.kernel.state.catalogue import default_url as default_catalogue
    from gatehouse.storage import open_catalogue
    data_dir = open_data_dir(folder)
    try:
        url = config.kernel.catalogue_url or default_catalogue(folder)
        open_catalogue(url).close()      # migrates
        administration, store = offline_administration(url, _now_ms)
        administration.accounts.configure(config.rights.rules, config.rights.groups, config.rights.limits)
        try:
            yield Offline(administration, config)
        finally:
            store.close()
    finally:
        data_dir.close()


class Offline:
    """The accounts of a data directory on which no hub runs: the database itself."""

    def __init__(self, administration: Any, config: Any) -> None:
        self._administration = administration
        self._config = config

    def users(self) -> list[Document]:
        return [self._shown(user) for _, user in sorted(self._administration.accounts.users.items())]

    def user(self, name: str) -> Document:
        return self._shown(self._did(lambda: self._administration.user(name)))

    def create_user(self, name: str, document: Document) -> Document:
        return self._shown(self._put(name, document, create=True))

    def change_user(self, name: str, document: Document) -> Document:
        return self._shown(self._put(name, document, create=False))

    def delete_user(self, name: str) -> None:
        self._changed(lambda on_done: self._administration.delete_user(_by(), name, on_done))

    def create_key(self, user: str, document: Document) -> Document:
        key, text = self._changed(lambda on_done: self._administration.create_key(
            _by(), user, document["name"], on_done, expires_ms=document.get("expires", 0),
            restriction=document.get("restriction")))
        return {**key.as_dict(), "key": text}

    def revoke_key(self, user: str, id: str) -> None:
        self._changed(lambda on_done: self._administration.revoke_key(_by(), user, id, on_done))

    def rules(self) -> list[Document]:
        return [rule.as_dict() for rule in self._administration.accounts.every_rule()]

    def add_rule(self, document: Document) -> Document:
        rule = self._changed(lambda on_done: self._administration.add_rule(_by(), document, on_done))
        return cast(Document, rule.as_dict())

    def remove_rule(self, id: str) -> None:
        self._changed(lambda on_done: self._administration.delete_rule(_by(), id, on_done))

    def ask(self, question: Document) -> Document:
        from gatehouse.gateways.admission.admission import Admission
        from gatehouse.gateways.admission.decision import Operation
        from gatehouse.gateways.admission.rights import ask_rights
        admission = Admission(cast(Any, None), _now_ms, accounts=self._administration.accounts,
                              allow_anonymous=self._config.auth.allow_anonymous, routes=self._config.routes)
        operation = Operation(question["operation"])
        verdict = admission.explain(
            question["user"], lambda rights: ask_rights(rights, question["kind"], operation, question.get("on", "")),
            tenant=question.get("tenant"), client_id=question.get("client_id"))
        return verdict.as_dict()

    def limits(self) -> list[Document]:
        return [limit.as_dict() for limit in self._administration.accounts.every_limit()]

    def limit(self, id: str) -> Document:
        return cast(Document, self._did(lambda: self._administration.limit(id)).as_dict())

    def add_limit(self, document: Document) -> Document:
        limit = self._changed(lambda on_done: self._administration.add_limit(_by(), document, on_done))
        return cast(Document, limit.as_dict())

    def replace_limit(self, id: str, document: Document) -> Document:
        limit = self._changed(lambda on_done: self._administration.replace_limit(_by(), id, document, on_done))
        return cast(Document, limit.as_dict())

    def remove_limit(self, id: str) -> None:
        self._changed(lambda on_done: self._administration.delete_limit(_by(), id, on_done))

    def _put(self, name: str, document: Document, create: bool) -> Any:
        from gatehouse.gateways.admission.administration import UserChanges
        names: Document = {field: frozenset(document[field]) for field in ("tenants", "groups") if field in document}
        if "expires" in document:
            names["expires_ms"] = document["expires"] or 0
        changes = UserChanges(**{name: value for name, value in document.items() if name != "expires"} | names)
        put_user = self._administration.put_user
        return self._changed(lambda on_done: put_user(_by(), name, changes, on_done, create=create))

    def _shown(self, user: Any) -> Document:
        accounts = self._administration.accounts
        keys = [key.as_dict() for key in accounts.keys_of(user.name)]
        return {**user.as_dict(accounts.file_groups_of(user.name)), "keys": keys}

    def _changed(self, change: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: list[Any] = []
        change(answers.append)
        return self._did(lambda: _or_raise(answers[-1]))   # the last word: it may yet not be kept

    def _did(self, ask: Callable[[], Any]) -> Any:
        from gatehouse.gateways.admission.errors import AccountError
        try:
            return ask()
        except AccountError as error:
            raise Refused(str(error), exits.FAILED) from None


COMMAND_LINE = "command line"


def _by() -> Any:
    """For the audit topic: no user of the hub, but one of this machine."""
    from gatehouse.gateways.admission.audit import Author
    try:
        user = getpass.getuser()
    except (OSError, KeyError):          # a number without a name, as containers have
        user = str(os.getuid())
    return Author(COMMAND_LINE, peer=f"{user} (uid {os.getuid()}) on {socket.gethostname()}")


def _or_raise(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def question_of(user: str, operation: str, kind: str, on: str | None, more: Mapping[str, str | None]) -> Document:
    """For `Access.ask`."""
    details = {name: value for name, value in more.items() if value is not None}
    return {"user": user, "operation": operation, "kind": kind, **({} if on is None else {"on": on}), **details}
