"""Which version of the hub this is, for clients that are told."""
from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def hub_version() -> str:
    """As it is installed; "0" where it is not."""
    try:
        return version("gatehouse")
    except PackageNotFoundError:
        return "0"
