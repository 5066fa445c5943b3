"""The commands about rights: the rules, and what they decide."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.cli.account_access import Command, Document, access_options, accounts_of, question_of
from gatehouse.cli.tables import as_json, show, table

COLUMNS: Final = ("id", "effect", "who", "operations", "kind", "pattern", "tenant", "from_file")
OPERATIONS: Final = ("publish", "consume", "create", "alter", "transact", "administer", "relay", "trace",
                     "connect", "describe")


def kind_options(command: Command) -> Command:
    """--topic, --group, --hub, --client; an address without."""
    for kind, help in (("client", "It names a client id: connect."),
                       ("hub", "On the hub itself: administer, relay, trace."), ("group", "It names a consumer group."),
                       ("topic", "It names a topic as a whole, instead of addresses.")):
        command = click.option(f"--{kind}", "kind", flag_value=kind, help=help)(command)
    return command


@click.group()
def acl() -> None:
    """Rights: who may do what where. Asks the hub, which takes the right to administer, or works on a data directory on
    which none runs."""


@acl.command("list")
@access_options
def list_rules(config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """List rules, those of the configuration first."""
    with accounts_of(config_file, data, url) as access:
        rules = access.rules()
    if json_wanted:
        for rule in rules:
            click.echo(as_json(rule))
    else:
        click.echo(table([name.replace("_", " ") for name in COLUMNS], [_cells(rule) for rule in rules]))


@acl.command("add")
@click.argument("effect", type=click.Choice(["allow", "deny"]))
@click.argument("who", metavar="WHO")
@click.argument("operations", metavar="OPERATIONS")
@click.argument("pattern", metavar="PATTERN", required=False)
@kind_options
@click.option("--tenant", default=None, help="The tenant that it holds in; '*': every one. Default: /.")
@access_options
def add_rule(effect: str, who: str, operations: str, pattern: str | None, kind: str | None, tenant: str | None,
             config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Add a rule.

    EFFECT is allow or deny; WHO user:NAME, group:NAME or everyone; OPERATIONS have commas between, or are `all`.

    Example: gatehouse acl add allow user:ann publish,consume 'plant/{user}/#'
    """
    document: Document = {"effect": effect, "who": who, "kind": kind or "address"}
    if operations != "all":
        document["operations"] = operations.split(",")
    more = {"pattern": pattern, "tenant": tenant}
    document.update({name: value for name, value in more.items() if value is not None})
    with accounts_of(config_file, data, url) as access:
        rule = access.add_rule(document)
    show(rule, f"added rule {rule['id']}", json_wanted)


@acl.command("remove")
@click.argument("id")
@access_options
def remove_rule(id: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Remove a rule. Those of the configuration are removed there."""
    with accounts_of(config_file, data, url) as access:
        access.remove_rule(id)
    show({"id": id, "state": "removed"}, f"removed rule {id}", json_wanted)


@acl.command("test")
@click.argument("user")
@click.argument("operation", type=click.Choice(OPERATIONS))
@click.argument("on", metavar="ADDRESS", required=False)
@kind_options
@click.option("--client-id", default=None, help="As a client of this id, which rules with {client_id} ask for.")
@click.option("--tenant", default=None, help="In this tenant. Default: the user's.")
@access_options
def test_rights(user: str, operation: str, on: str | None, kind: str | None, client_id: str | None,
                tenant: str | None, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> int:
    """Whether a user may do something, and the rule that decides it. Exit code 1 where it is denied.

    Of publishing at an address: and whether that makes the topic, should it be missing. Without, it is refused.

    Example: gatehouse acl test ann publish plant/line1/temp
    """
    if on is None and kind != "hub":
        raise click.UsageError("ADDRESS is needed: an address or a filter, a topic with --topic, a group with --group, "
                               "a client id with --client")
    with accounts_of(config_file, data, url) as access:
        verdict = access.ask(question_of(user, operation, kind or "address", on,
                                         {"client_id": client_id, "tenant": tenant}))
    creates = verdict.get("creates")
    missing = f"\nwhere its topic is missing, to make it is {creates['why']}" if creates else ""
    show(verdict, verdict["why"] + missing, json_wanted)
    return exits.OK if verdict["allowed"] else exits.FAILED


def _cells(rule: Document) -> list[Any]:
    return [", ".join(rule[name]) if name == "operations" else rule[name] for name in COLUMNS]
