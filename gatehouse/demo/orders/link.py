"""What a door must do for the shop: hold a half message, tell a decision, pass on the hub's questions."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from gatehouse.demo.orders.ledger import Outcome

GROUP: Final = "shop"
TOPIC: Final = "orders"
ANSWER_S: Final = 5.0
"""After so long without an answer the hub counts as gone."""

FINAL: Final = frozenset(("unknown_transaction", "already_decided", "invalid_decision", "not_authorized"))
"""Refusals of a decision that asking again does not change."""

Ask = Callable[[str], Outcome]
"""What became of the transaction of this id?"""


class LinkLost(Exception):
    """The hub does not answer: what was asked may have happened or not. A new link may be made."""


class DecisionRefused(Exception):
    """The hub knows better. It cannot happen while the shop is right: this ends it."""


class Link(Protocol):
    """A connection to the hub, for one thread. Every call may raise LinkLost."""

    def hold(self, number: int, value: bytes) -> str:
        """Hold a half message for the order; the transaction's id, once it is durable."""

    def decide(self, transaction_id: str, outcome: Outcome) -> None:
        """Returns once the decision is durable. Raises DecisionRefused."""

    def answer(self, ask: Ask) -> None:
        """Be a member of the group: decide what the hub asks about. Does not return."""


class OrderPlace(NamedTuple):
    """Where a door is."""

    host: str
    port: int
    url: str


Connect = Callable[[], AbstractContextManager[Link]]

LINKS: Final = {"http": "http_link:HttpLink", "mqtt": "mqtt_link:MqttLink", "amqp": "amqp_link:AmqpLink",
                "kafka": "kafka_link:KafkaLink"}


def connect_to(url: str) -> Connect:
    """How to make links to `DOOR://HOST:PORT`; a door's client is loaded only if it is used. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in LINKS or not parts.hostname or not parts.port:
        raise ValueError(f"not DOOR://HOST:PORT with a door of {', '.join(LINKS)}: {url!r}")
    module, _, name = LINKS[parts.scheme].partition(":")
    kind: Any = getattr(import_module(f"gatehouse.demo.orders.{module}"), name)
    place = OrderPlace(parts.hostname, parts.port, url)
    return lambda: kind(place)


def decision_of(transaction_id: str, outcome: Outcome) -> dict[str, str]:
    """A decision as the doors without a word for it take it."""
    return {"id": transaction_id, "decision": outcome.value}


def check_decided(answer: dict[str, Any]) -> None:
    """What the hub tells about a decision. Raises DecisionRefused, LinkLost where it is worth another try."""
    if "state" not in answer or "code" in answer:
        kind = DecisionRefused if answer.get("code") in FINAL else LinkLost
        raise kind(f"transaction {answer.get('id')}: {answer.get('detail')} ({answer.get('code')})")
