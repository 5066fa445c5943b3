"""The Python client of a hub: `Client` (asynchronous) and `SyncClient` (for threads).

    errors.py      what a call can end in
    message.py     messages as sent and as received
    retry.py       how often a call is repeated, and after how long
    door.py        one request to the HTTP door, repeated where that is safe
    batching.py    gathers messages that are published without waiting
    client.py      the calls
    groups.py      the calls about groups and leases
    consumer.py    runs a handler for every message of a group
    settling.py    tells the hub what became of them, and renews leases
    transaction.py half messages around the caller's own work
    check_back.py  answers the hub's questions what became of them
    handled.py     remembers handled messages in the consumer's own database
    sync.py        the same for threads

A client of the HTTP door and nothing else: it imports nothing of the server. docs/client.md shows how it is used.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gatehouse_client.batching import Batching as Batching
    from gatehouse_client.check_back import CheckBack as CheckBack
    from gatehouse_client.check_back import Half as Half
    from gatehouse_client.client import Client as Client
    from gatehouse_client.consumer import Consumer as Consumer
    from gatehouse_client.consumer import Reject as Reject
    from gatehouse_client.consumer import RetryLater as RetryLater
    from gatehouse_client.errors import HubError as HubError
    from gatehouse_client.errors import OutcomeUnknown as OutcomeUnknown
    from gatehouse_client.handled import HandledMessages as HandledMessages
    from gatehouse_client.message import Message as Message
    from gatehouse_client.message import Stored as Stored
    from gatehouse_client.retry import Retry as Retry
    from gatehouse_client.sync import SyncClient as SyncClient
    from gatehouse_client.transaction import Decision as Decision
    from gatehouse_client.transaction import Transaction as Transaction
    from gatehouse_client.transaction import TransactionUndecided as TransactionUndecided

__version__ = "0.1.0"

# Loaded by their first use: a program starts without what it does not use.
_MODULES: Final = {
    "Batching": "batching", "Client": "client", "Consumer": "consumer", "Reject": "consumer", "RetryLater": "consumer",
    "HubError": "errors", "OutcomeUnknown": "errors", "Message": "message", "Stored": "message", "Retry": "retry",
    "SyncClient": "sync", "CheckBack": "check_back", "Half": "check_back", "Decision": "transaction",
    "Transaction": "transaction", "TransactionUndecided": "transaction", "HandledMessages": "handled"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gatehouse_client' has no attribute {name!r}")
    return getattr(import_module(f"gatehouse_client.{_MODULES[name]}"), name)
