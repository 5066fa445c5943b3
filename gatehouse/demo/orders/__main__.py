"""`python -m gatehouse.demo.orders`: the shop or its billing, until Ctrl-C."""
from __future__ import annotations

import logging

import click

from gatehouse.demo.orders import billing, shop
from gatehouse.demo.orders.ledger import Ledger
from gatehouse.demo.orders.link import connect_to


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def orders() -> None:
    """An order service and a billing service that agree, whoever is killed."""
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    for name in ("shop", "billing"):
        logging.getLogger(name).setLevel(logging.INFO)


@orders.command("shop")
@click.argument("door")
@click.option("--database", default="sqlite:///shop.sqlite", show_default=True, help="Its own, an SQLAlchemy URL.")
@click.option("--orders", "wanted", type=click.IntRange(0), default=100, show_default=True,
              help="Place orders until there are so many, then answer checks.")
def run_shop(door: str, database: str, wanted: int) -> None:
    """Place orders by DOOR (http://, mqtt://, amqp:// or kafka://HOST:PORT) and answer what became of them."""
    try:
        connect = connect_to(door)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    click.echo("placing orders")
    shop.run(connect, Ledger(database), wanted, lambda: click.echo(f"{wanted} orders are placed"))


@orders.command("billing")
@click.argument("url")
@click.option("--database", default="sqlite:///billing.sqlite", show_default=True, help="Its own, an SQLAlchemy URL.")
def run_billing(url: str, database: str) -> None:
    """Write a bill for each order that comes by the hub at URL, its HTTP door."""
    click.echo("billing")
    billing.run(url, billing.Billing(database))


if __name__ == "__main__":
    orders.main(prog_name="python -m gatehouse.demo.orders")
