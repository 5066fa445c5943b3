"""What a group wants of its topic: a selector on messages as they are handed out."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from kernel.errors import CorruptBatch
from kernel.message import Leased
from kernel.record import read_headers
from kernel.routes import Routes
from kernel.selectors.selector import parse_selector


def wants_of(text: str, names: Mapping[str, str], topic: str, routes: Routes) -> Callable[[Leased], bool] | None:
    """The test that a selector makes of the messages of a topic; None where everything is wanted.

    `names` are other names of headers, see `parse_selector`. A message whose headers cannot be read is wanted: whoever
    gets it can say so. Raises InvalidSelector.
    """
    if not text:
        return None
    selector = parse_selector(text, names)

    def wants(message: Leased) -> bool:
        _, _, _, _, timestamp_ms, key, _, encoded, _ = message
        try:
            if not selector.reads_address:               # which is not free to make
                return selector.matches_encoded(encoded, key, "", topic, timestamp_ms)
            headers, _ = read_headers(encoded, 0)
            return selector.matches(headers, key, routes.address_of(topic, key, headers), topic, timestamp_ms)
        except CorruptBatch:
            return True
    return wants
