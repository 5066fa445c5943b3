"""The consumer: one bill for each order, in a database of its own, though a message may come twice."""
from __future__ import annotations

import json
import logging
from typing import Final

import sqlalchemy as sa

from gatehouse.demo.orders.ledger import engine_of
from gatehouse.demo.orders.link import TOPIC
from gatehouse_client.handled import HandledMessages
from gatehouse_client.message import Message
from gatehouse_client.sync import SyncClient

log = logging.getLogger("billing")

GROUP: Final = "billing"
TABLES: Final = sa.MetaData()

bills = sa.Table(
    "bills", TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("message_id", sa.String(20), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False))


class Billing:
    """Bills and the notes which messages are done, in one database."""

    def __init__(self, url: str) -> None:
        self._engine = engine_of(url)
        self._handled = HandledMessages(metadata=TABLES)
        TABLES.create_all(self._engine)

    def bill(self, message: Message) -> None:
        """The work and the note that it is done: both or neither."""
        order = json.loads(message.value or b"")
        with self._engine.begin() as connection:
            if not self._handled.once(connection, message, GROUP):
                log.info("message %s came again", message.id)
                return
            connection.execute(bills.insert().values(
                message_id=message.id, number=order["number"], amount=order["amount"]))


def run(url: str, billing: Billing) -> None:
    """Bill what is ordered, from the first order on, for ever; a hub that is away is waited for. Raises HubError."""
    with SyncClient(url) as client, client.consumer(GROUP, TOPIC, billing.bill, concurrency=4, invisible_s=5) as taking:
        taking.wait()
