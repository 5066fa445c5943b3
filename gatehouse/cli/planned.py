"""Commands that the documents name and that are not built yet: refused by name, never unknown."""
from __future__ import annotations

from typing import Final

import click

from gatehouse import exits

PLANNED: Final = {
    "trace": "What happened to one message.",
}


def planned_commands() -> list[click.Command]:
    """One command per name, which says that it is not built and ends with its own exit code."""
    return [_planned(name, text) for name, text in PLANNED.items()]


def _planned(name: str, text: str) -> click.Command:
    @click.command(name, help=f"{text} Not built yet.", short_help=f"(not built yet) {text}",
                   context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, expose_value=False)
    def command() -> None:
        raise exits.Refused(f"`gatehouse {name}` is not built yet", exits.NOT_BUILT)
    return command
