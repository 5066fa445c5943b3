"""Which of the handles that somebody gives back are good: their leases run, in cursors of this very group. Hot."""
from __future__ import annotations

from collections.abc import Sequence

from gatehouse.kernel.errors import ExpiredReceipt, KernelError, UnknownReceipt
from gatehouse.kernel.groups.cursor import Cursor
from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.message import Handle


def good_handles(handles: Sequence[Handle], prefetchers: dict[int, Prefetcher], group: str
                 ) -> tuple[list[KernelError | None], list[tuple[Prefetcher, list[int]]]]:
    """Per handle why it is not good; and the offsets of those that are, cursor by cursor. One that comes twice is good
    once."""
    refused: list[KernelError | None] = [None] * len(handles)
    by_cursor: dict[Cursor, list[int]] = {}
    cursor: Cursor | None = None
    offsets: list[int] = []
    for i, handle in enumerate(handles):
        if handle[0] is not cursor:
            cursor = handle[0]
            prefetcher = prefetchers.get(cursor.partition_id) if isinstance(cursor, Cursor) else None
            if cursor is None or prefetcher is None or prefetcher.cursor is not cursor:
                rewound = cursor is not None and prefetcher is not None and cursor.group == group
                cursor = None
                refused[i] = ExpiredReceipt("the group was rewound") if rewound \
                    else UnknownReceipt("this receipt handle is not of this group")
                continue
            offsets = by_cursor.setdefault(cursor, [])
        if not cursor.holds(handle[1], handle[2]):
            refused[i] = ExpiredReceipt("the lease has ended")
            continue
        offsets.append(handle[1])
    if len(handles) > 1:
        by_cursor = {of: list(dict.fromkeys(good_offsets)) for of, good_offsets in by_cursor.items()}
    return refused, [(prefetchers[of.partition_id], good_offsets) for of, good_offsets in by_cursor.items()
                     if good_offsets]
