"""The commands about copies of a hub's data: backup, restore."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gatehouse import exits
from gatehouse.cli.hub_option import hub_options
from gatehouse.cli.tables import pairs, show, time_text
from gatehouse.exits import Refused

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gatehouse.backup.manifest import Manifest
    from gatehouse.backup.sources import FolderSource, HubSource

MIB: Final = 1 << 20

config_option = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), default=Path("gateways.toml"),
    envvar="GATEHOUSE_CONFIG", show_default=True, help="The configuration file, which says where the data is.")


@click.command()
@click.argument("dest", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="A data directory on which no hub runs, to copy as it "
                                                              "lies there.")
@config_option
@hub_options
def backup(dest: Path, data: Path | None, config_file: Path, url: str, json_wanted: bool) -> None:
    """Copy a hub's data into the folder DEST while it runs.

    The hub is asked over HTTP and need not be on this machine. A hub that does not run is copied from its data
    directory: --data. Run it again with the same folder to copy only what is new; the backup that is in the folder
    stays whole until the new one is. What was cut off is gone on with.
    """
    from gatehouse.backup.copying import Copying, open_folder
    from gatehouse.backup.manifest import locked
    from gatehouse.cli.hub_option import refusal
    from gatehouse_client.errors import HubError
    open_folder(dest)
    with locked(dest), _source(url, data, config_file) as source:
        total = sum(part.bytes for part in source.plan.parts)
        try:
            with _progress("backing up", total) as on_progress:
                done = Copying(source, dest, on_progress).run()
        except HubError as error:
            raise refusal(error, "; what is copied is kept, run the same again") from None
    summary = _describe(done.manifest) | {"copied_mib": round(done.copied_bytes / MIB, 1), "folder": str(dest)}
    text = pairs({name.replace("_", " "): value for name, value in summary.items()})
    if done.was_incomplete:
        text = f"went on with a backup that was cut off\n{text}"
    show(summary, text + _catalogue_note(done.manifest), json_wanted)


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--data", type=click.Path(path_type=Path), required=True,
              help="The data directory to make: an empty folder, or none yet.")
@click.option("--json", "json_wanted", is_flag=True, help="For programs.")
def restore(source: Path, data: Path, json_wanted: bool) -> None:
    """Put a backup in place, as the data of the same hub.

    SOURCE is the folder of the backup, --data the folder to make.

    Checks every file first and writes nothing where one is damaged. The hub goes on behind everything that it may have
    given out since the backup: no message id is given twice. Receipt handles from before are refused, and their
    messages come again.
    """
    from gatehouse.backup.manifest import locked
    from gatehouse.backup.restoring import find_backup, verify
    from gatehouse.backup.restoring import restore as put_in_place
    from gatehouse.datadir import require_empty
    with locked(source):
        manifest, cut_off = find_backup(source)
        if cut_off:
            click.echo("a later backup was cut off: this is the one before it", err=True)
        require_empty(data)
        with _progress("checking", manifest.total_bytes) as on_progress:
            verify(source, manifest, on_progress)
        with _progress("restoring", manifest.total_bytes) as on_progress:
            done = put_in_place(source, manifest, data, on_progress)
    summary = _describe(manifest) | {"frames": done.summary.frames, "topics": done.summary.topics,
                                     "damaged_ranges": len(done.damage), "next_message_id": str(done.summary.next_id),
                                     "data": str(data)}
    text = pairs({name.replace("_", " "): value for name, value in summary.items()})
    show(summary, text + _catalogue_note(manifest), json_wanted)


def _source(url: str, data: Path | None, config_file: Path) -> AbstractContextManager[HubSource | FolderSource]:
    from gatehouse.backup.sources import running_hub, stopped_hub
    if data is None:
        return running_hub(url)
    return stopped_hub(data, *_configured(config_file, data))


def _configured(config_file: Path, data: Path) -> tuple[str, str, Path | None]:
    """The hub's name, what a manifest says of its catalogue, and the file of that."""
    from gatehouse.config.config import ConfigError, load
    from gatehouse.kernel.state.catalogue import default_url, make_engine, sqlite_file
    from gatehouse.serve import read_specs
    from gatehouse.storage import where_catalogue_is
    if not config_file.exists():
        raise Refused(f"there is no {config_file}: name the hub's configuration with --config, it says where users and "
                      "rights are", exits.USAGE)
    try:
        config = load(config_file, os.environ, read_specs())
    except ConfigError as error:
        raise Refused(f"{error.lines[0]} (`gatehouse check` shows all)", exits.USAGE) from None
    url = make_engine(config.kernel.catalogue_url or default_url(data)).url
    file = sqlite_file(url)
    return config.hub.name, where_catalogue_is(file, data, url.render_as_string(hide_password=True)), file


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where somebody looks at it."""
    bar: Any = click.progressbar(length=total or 1, label=label, file=sys.stderr, show_eta=True)
    with bar if sys.stderr.isatty() else nullcontext() as shown:
        yield lambda size: shown.update(size) if shown is not None else None


def _describe(manifest: Manifest) -> dict[str, Any]:
    taken = time_text(manifest.created)
    return {"hub": manifest.name, "uuid": manifest.hub, "taken": taken, "files": len(manifest.files),
            "mib": round(manifest.total_bytes / MIB, 1)}


def _catalogue_note(manifest: Manifest) -> str:
    """What people must know where users and rights are elsewhere."""
    from gatehouse.backup.manifest import INCLUDED
    if manifest.catalogue == INCLUDED:
        return ""
    if manifest.catalogue.startswith(INCLUDED):
        return (f"\n\nUsers, rights and webhooks are {manifest.catalogue}: a restore puts them into `catalogue.sqlite` "
                "of the data directory; move that to where `kernel.catalogue_url` says.")
    return (f"\n\nUsers, rights and webhooks are not in this backup: they are in {manifest.catalogue}, which needs a "
            "backup of its own.")
