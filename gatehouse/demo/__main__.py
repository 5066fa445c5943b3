"""`make demo`, or `python -m gatehouse.demo`: runs until Ctrl-C."""
from __future__ import annotations

import sys
from pathlib import Path

import click

from gatehouse import exits
from gatehouse.demo.stage import HOST, DemoFailed, Stage, wait_until
from gatehouse.spark.jobs.progress import stop_signals

FOLDER = Path("data/demo")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True,
              help="Where the hub's log, the table and the checkpoints are kept; the next start goes on with them.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop by itself after so many seconds.")
@click.option("--any-ports", is_flag=True, help="Take free ports instead of the usual ones.")
def demo(folder: Path, seconds: float | None, any_ports: bool) -> None:
    """This machine's telemetry over MQTT, events over Kafka and HTTP, statistics by Spark, and a page that shows it."""
    with stop_signals() as stopped:
        stage = Stage(folder, usual_ports=not any_ports)
        try:
            stage.open(click.echo)
            click.echo(instructions(stage))
            wait_until(stopped.wait, stage, seconds)
            click.echo("\nstopping: the device, Spark, the hub")
        except DemoFailed as error:
            raise click.ClickException(str(error)) from None
        finally:
            stage.close()
    click.echo("stopped; `make demo` goes on where this ended")


def instructions(stage: Stage) -> str:
    """What to open, and what to try beside it."""
    ports, archive = stage.ports, stage.folder / "archive"
    return f"""
open     http://{HOST}:{ports.page}/

beside it, in another terminal:
  mosquitto_sub -p {ports.mqtt} -t 'statistics/#' -v          what Spark sends back, over MQTT
  kcat -C -b {HOST}:{ports.kafka} -t events -f '%k %s\\n'        what happens here, over Kafka
  curl '{ports.url}/v1/topics/machine/messages?max=5'
  .venv/bin/python -c "from deltalake import DeltaTable; print(DeltaTable('{archive}').count())"

logs and data: {stage.folder}
Ctrl-C stops it.
"""


if __name__ == "__main__":
    sys.exit(demo.main(prog_name="demo") or exits.OK)
