"""The order service: places orders with half messages, and answers what became of them."""
from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from gatehouse.demo.orders.ledger import MAX_AMOUNT, Ledger, Outcome, Placing
from gatehouse.demo.orders.link import Connect, Link, LinkLost

log = logging.getLogger("shop")

PAUSE_S: Final = 0.1
"""Before a new link after one was lost."""


class Shop:
    """Orders by one door and into one database. Any number of them may run, but one that places orders."""

    def __init__(self, connect: Connect, ledger: Ledger) -> None:
        self._connect = connect
        self._ledger = ledger

    def place_orders(self, wanted: int) -> None:
        """Place orders until there are so many. Raises DecisionRefused."""
        while self._ledger.count() < wanted:
            self._linked("placing", lambda link: self._place_on(link, wanted))

    def answer_checks(self) -> None:
        """Answer what the hub asks, for ever. Raises DecisionRefused."""
        while True:
            self._linked("answering checks", lambda link: link.answer(self._look_up))

    def _look_up(self, transaction_id: str) -> Outcome:
        outcome = self._ledger.outcome(transaction_id)
        log.info("asked about transaction %s: %s", transaction_id, outcome.value)
        return outcome

    def _place_on(self, link: Link, wanted: int) -> None:
        number = self._ledger.last_number() + 1
        while self._ledger.count() < wanted:
            if self.place(link, number) is not Placing.GIVEN_UP:
                number += 1

    def place(self, link: Link, number: int) -> Placing:
        """One order: half message, local transaction, decision. Raises LinkLost, DecisionRefused."""
        amount = amount_of(number)
        transaction_id = link.hold(number, json.dumps({"number": number, "amount": amount}).encode())
        placed = self._ledger.place(number, amount, transaction_id)
        link.decide(transaction_id, Outcome.COMMIT if placed is Placing.PLACED else Outcome.ROLLBACK)
        return placed

    def _linked(self, what: str, work: Callable[[Link], None]) -> None:
        """Work on a link. One that is lost leaves what was not decided to the check-back."""
        try:
            with self._connect() as link:
                work(link)
        except LinkLost as error:
            log.info("%s: the hub is away: %s", what, error)
            time.sleep(PAUSE_S)


def amount_of(number: int) -> int:
    """Every fifth order is beyond everybody's credit."""
    return MAX_AMOUNT + 1 if number % 5 == 0 else number % MAX_AMOUNT + 1


def run(connect: Connect, ledger: Ledger, wanted: int, on_placed: Callable[[], None]) -> None:
    """Place orders, answering checks all the while and afterwards. Raises DecisionRefused from either."""
    shop = Shop(connect, ledger)
    ended = threading.Event()
    failures: list[BaseException] = []

    def watched(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            ended.set()

    def place() -> None:
        shop.place_orders(wanted)
        on_placed()

    for work in (shop.answer_checks, place):
        threading.Thread(target=watched, args=(work,), daemon=True).start()
    ended.wait()
    raise failures[0]
