"""The shop by HTTP, with the Python client."""
from __future__ import annotations

from typing import Self

from gatehouse.demo.orders.ledger import Outcome
from gatehouse.demo.orders.link import ANSWER_S, GROUP, TOPIC, Ask, DecisionRefused, LinkLost, OrderPlace
from gatehouse_client.check_back import Half
from gatehouse_client.errors import Conflict, HubError, InvalidRequest, NotAuthorized, NotFound
from gatehouse_client.retry import NO_RETRY
from gatehouse_client.sync import SyncClient
from gatehouse_client.transaction import Decision


class _Listener:
    """A `gatehouse_client.check_back.Listener`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def check(self, half: Half) -> Decision:
        return Decision(self._ask(half.id).value)


class HttpLink:
    """The shop's way to the hub by HTTP. Use it as `with`."""

    def __init__(self, place: OrderPlace) -> None:
        self._client = SyncClient(place.url, timeout_s=ANSWER_S, retry=NO_RETRY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def hold(self, number: int, value: bytes) -> str:
        try:
            return self._client.transaction(GROUP).publish(topic=TOPIC, key=str(number), value=value)
        except HubError as error:
            raise LinkLost(str(error)) from error

    def decide(self, transaction_id: str, outcome: Outcome) -> None:
        try:
            self._client.decide_transaction(transaction_id, outcome.value)
        except (Conflict, InvalidRequest, NotAuthorized, NotFound) as error:
            raise DecisionRefused(str(error)) from error
        except HubError as error:
            raise LinkLost(str(error)) from error

    def answer(self, ask: Ask) -> None:
        with self._client.check_back(GROUP, _Listener(ask)) as check_back:
            check_back.wait()
