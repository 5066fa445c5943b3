"""What can be asked for, and the shape of the answer to "may this principal do that there?"."""
from __future__ import annotations

import enum
from collections.abc import Callable

from gatehouse.gateways.admission.principal import Principal


class Operation(enum.Enum):
    PUBLISH = "publish"
    CONSUME = "consume"
    CREATE = "create"
    ALTER = "alter"
    ADMINISTER = "administer"
    TRANSACT = "transact"
    RELAY = "relay"
    TRACE = "trace"
    """Have messages followed that one publishes."""

    CONNECT = "connect"
    DESCRIBE = "describe"
    """Know that something is there, and how it is set; whoever may consume or publish may that, too."""


Decide = Callable[[Principal, Operation, str], bool]
"""(principal, operation, address or filter) -> allowed"""

