"""What the source and the sink refuse. Spark shows the text of what is raised in a worker, so it says what to do."""
from __future__ import annotations


class GatehouseError(Exception):
    """Base of everything raised here."""


class InvalidOption(GatehouseError):
    """An option that is unknown, missing or has a value that it cannot have."""


class HubRefused(GatehouseError):
    """The hub answered with a problem document; `code` is its stable code."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"the hub refused ({status} {code}): {detail}")
        self.status = status
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[type[HubRefused], tuple[int, str, str]]:
        return HubRefused, (self.status, self.code, self.detail)


class HubUnreachable(GatehouseError):
    """The hub did not answer within the time that retrying is given."""


class DataLoss(GatehouseError):
    """Messages that were to be read are gone; the text names which. `failOnDataLoss=false` reads on behind them."""


class InvalidRow(GatehouseError):
    """A row that the sink cannot write, or rows without the columns that it needs."""
