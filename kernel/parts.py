"""What groups work over, handed to them together."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.identity import Identity
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.state.state import StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.views import Views
from gatehouse.kernel.state.watermarks import Watermarks


@dataclass(slots=True, frozen=True)
class Parts:
    loop: Loop
    state: StateTable
    topics: Topics
    views: Views
    watermarks: Watermarks
    reader: Reader
    places: Places
    subscriptions: Subscriptions
    identity: Identity
    on_error: Callable[[Exception], None]
