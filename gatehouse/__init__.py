"""The launcher and command line: the only package that knows all the others. And the Python client of a hub."""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gatehouse.client.batching import Batching as Batching
    from gatehouse.client.check_back import CheckBack as CheckBack
    from gatehouse.client.check_back import Half as Half
    from gatehouse.client.client import Client as Client
    from gatehouse.client.consumer import Consumer as Consumer
    from gatehouse.client.consumer import Reject as Reject
    from gatehouse.client.consumer import RetryLater as RetryLater
    from gatehouse.client.errors import HubError as HubError
    from gatehouse.client.errors import OutcomeUnknown as OutcomeUnknown
    from gatehouse.client.handled import HandledMessages as HandledMessages
    from gatehouse.client.message import Message as Message
    from gatehouse.client.message import Stored as Stored
    from gatehouse.client.retry import Retry as Retry
    from gatehouse.client.sync import SyncClient as SyncClient
    from gatehouse.client.transaction import Decision as Decision
    from gatehouse.client.transaction import Transaction as Transaction
    from gatehouse.client.transaction import TransactionUndecided as TransactionUndecided

__version__ = "0.1.0"

# Loaded by their first use: a command that does not ask a hub starts without them.
_OF_THE_CLIENT: Final = {
    "Batching": "batching", "Client": "client", "Consumer": "consumer", "Reject": "consumer", "RetryLater": "consumer",
    "HubError": "errors", "OutcomeUnknown": "errors", "Message": "message", "Stored": "message", "Retry": "retry",
    "SyncClient": "sync", "CheckBack": "check_back", "Half": "check_back", "Decision": "transaction",
    "Transaction": "transaction", "TransactionUndecided": "transaction", "HandledMessages": "handled"}


def __getattr__(name: str) -> Any:
    if name not in _OF_THE_CLIENT:
        raise AttributeError(f"module 'gatehouse' has no attribute {name!r}")
    return getattr(import_module(f"gatehouse.client.{_OF_THE_CLIENT[name]}"), name)
