"""What only the cyclic collector would free."""
from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_to_the_collector() -> Iterator[Counter[str]]:
    """The classes of the hub's objects that were made and let go of within, and are still in memory since they refer to
    each other; told at the end. What was there before may be another test's."""
    left: Counter[str] = Counter()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield left
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left.update([type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("gatehouse.")])
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
