"""May this principal do that there? A pure function of its arguments, asked by every door through `Admission.may`."""
from __future__ import annotations

import enum
from collections.abc import Callable

from gateways.admission.principal import Principal


class Operation(enum.Enum):
    PUBLISH = "publish"
    CONSUME = "consume"
    CREATE = "create"
    ALTER = "alter"
    ADMINISTER = "administer"


Decide = Callable[[Principal, Operation, str], bool]
"""(principal, operation, address or filter) -> allowed"""


def decide(principal: Principal, operation: Operation, address: str, *, allow_anonymous: bool) -> bool:
    """There are no users and no rights yet: everything is open to everybody who came in, while anonymous access is.

    `operation` and `address` are what rights will be looked up by; an address may be an MQTT filter.
    """
    return allow_anonymous or not principal.anonymous
