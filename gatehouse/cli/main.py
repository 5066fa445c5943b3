"""The command `gatehouse`. Here: the group itself, the commands about a hub's own configuration and process.

    messages      publish, consume, tail
    state         status, topics
    groups        groups list, show, define, delete, rewind; dead-letters list, redrive
    queues        queues list, show, declare, bind, unbind, purge, delete, peek, move
    scheduled     scheduled list, show, recall
    trace, why    what happened to messages, and why one did not arrive
    connections   connections list, show, close
    sessions      sessions list, show, delete
    backup        backup, restore
    transactions  transactions list, show, commit, rollback, check
    users, acl    users and API keys; rules, and what they decide
    limits        how much may come in and go out
    circuits      what the hub depends on, and whether it is asked
    drill         have a hub be in trouble, and see what clients see
    relay         relay serve, key, rotate, invite, join, status, show, explain, pause, resume, once, rewind, unlink
    spark         spark archive, spark analytics

An error is one line on standard error that says what to do; exit codes are in `exits.py`. The server's parts are
imported by the commands that need them, so that a command which only asks a hub starts quickly.
"""
from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

import click

from gatehouse import __version__, exits
from gatehouse.cli.tables import show
from gatehouse.exits import Refused

DEFAULT_CONFIG = "gateways.toml"
PRIVATE = 0o077                    # what libraries make for us (SQLite, RocksDB) is for its owner alone, too


config_option = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), default=Path(DEFAULT_CONFIG), envvar="GATEHOUSE_CONFIG",
    show_default=True, help="The configuration file.")
data_option = click.option(
    "--data", type=click.Path(path_type=Path), help="Data directory, instead of hub.data_dir.")
json_option = click.option("--json", "json_wanted", is_flag=True, help="For programs.")


MODULES: Final = {
    "publish": "messages", "consume": "messages", "tail": "messages", "status": "state", "topics": "state",
    "groups": "groups", "dead-letters": "groups", "queues": "queues", "scheduled": "scheduled",
    "connections": "connections", "sessions": "sessions", "backup": "backup", "restore": "backup", "trace": "trace",
    "why": "trace", "transactions": "transactions", "users": "users", "acl": "acl", "limits": "limits",
    "circuits": "circuits", "drill": "drill", "relay": "relay", "spark": "spark"}
"""Where the commands are that are not here, by their names: modules beside this one."""


class Commands(click.Group):
    """A command's module is imported once somebody asks for it: no command waits for what the others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"gatehouse.cli.{MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="gatehouse", message="%(prog)s %(version)s")
def cli() -> None:
    """One message kernel with four front doors: MQTT, HTTP, AMQP and Kafka."""


@cli.command()
@config_option
@data_option
def serve(config_file: Path, data: Path | None) -> int:
    """Run a hub until it is told to stop (SIGTERM, Ctrl-C).

    One line per door when it listens, then `gatehouse ready`, on standard output. SIGHUP reads the configuration again.
    """
    from gatehouse.serve import serve as serve_until_stopped
    return serve_until_stopped(config_file, data)


@cli.command()
@config_option
@json_option
def check(config_file: Path, json_wanted: bool) -> int:
    """Validate a configuration.

    Exit code 2 and one line per problem where it is not valid.
    """
    from gatehouse.config.config import ConfigError, load
    from gatehouse.serve import read_specs
    try:
        config = load(config_file, os.environ, read_specs())
    except ConfigError as error:
        show({"valid": False, "problems": error.lines}, "\n".join(error.lines), json_wanted)
        return exits.USAGE
    doors = {door.spec.name: [str(listen) for listen in door.listen] for door in config.doors}
    lines = [f"note: {notice}" for notice in config.notices] + [f"{config_file} is valid"]
    show({"valid": True, "doors": doors, "notices": config.notices}, "\n".join(lines), json_wanted)
    return exits.OK


@cli.command()
@click.argument("where", metavar="DOOR:ADDRESS")
@config_option
@json_option
def explain(where: str, config_file: Path, json_wanted: bool) -> None:
    """Show where an address goes, and its name on every door.

    Works from the configuration alone; no hub needs to run. Example: gatehouse explain mqtt:plant/line1/temp
    """
    from gatehouse.config.config import ConfigError, load
    from gatehouse.gateways.explain import explain as explain_address
    from gatehouse.kernel.errors import KernelError
    from gatehouse.serve import read_specs
    door, colon, address = where.partition(":")
    if not colon:
        raise click.UsageError(f"{where!r} is not DOOR:ADDRESS, like mqtt:plant/line1/temp")
    try:
        specs = read_specs()
        config = load(config_file, os.environ, specs)
        explanation = explain_address(door, address, config.routes, config.kernel.default_partitions, specs)
    except ConfigError as error:
        raise Refused(f"{error.lines[0]} (`gatehouse check` shows all)", exits.USAGE) from None
    except (ValueError, KernelError) as error:
        raise Refused(str(error), exits.USAGE) from None
    show(explanation.as_dict(), explanation.text(), json_wanted)


@cli.command()
@config_option
@data_option
def reload(config_file: Path, data: Path | None) -> None:
    """Have the running hub read its configuration again.

    The same as SIGHUP; the hub's log says what came of it.
    """
    from gatehouse.config.config import ConfigError, load
    from gatehouse.datadir import running_process
    from gatehouse.serve import read_specs
    try:
        folder = data or load(config_file, os.environ, read_specs()).data_dir
    except ConfigError as error:
        raise Refused(f"{error.lines[0]} (`gatehouse check` shows all)", exits.USAGE) from None
    process = running_process(folder)
    if process is None:
        raise Refused(f"no hub runs on {folder}; start one with `gatehouse serve`", exits.DATA_IN_USE)
    try:
        os.kill(process, signal.SIGHUP)
    except PermissionError:
        raise Refused(f"the hub (process {process}) belongs to another user; run this as that user",
                      exits.FAILED) from None
    click.echo(f"told process {process} to read its configuration again")


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code."""
    os.umask(PRIVATE)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        result = cli.main(arguments, prog_name="gatehouse", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return exits.USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "gatehouse"
        return _fail(f"{error.format_message()} (see `{path} --help`)", exits.USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except Refused as error:
        return _fail(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`gatehouse tail plant | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    return result if isinstance(result, int) else exits.OK


def _fail(text: str, exit_code: int) -> int:
    line = " ".join(text.split())
    click.echo(f"gatehouse: {line}", err=True)
    return exit_code
