"""Which of the handles that somebody gives back are good: their leases run, in lines of this very group. Hot."""
from __future__ import annotations

from collections.abc import Sequence

from kernel.errors import ExpiredReceipt, KernelError, UnknownReceipt
from kernel.leasing.line import Line
from kernel.leasing.supply import Supply
from kernel.message import Handle


def good_handles(handles: Sequence[Handle], supplies: dict[int, Supply], group: str
                 ) -> tuple[list[KernelError | None], list[tuple[Supply, list[int]]]]:
    """Per handle why it is not good; and the offsets of those that are, line by line. One that comes twice is good
    once."""
    refused: list[KernelError | None] = [None] * len(handles)
    by_line: dict[Line, list[int]] = {}
    line: Line | None = None
    offsets: list[int] = []
    for i, handle in enumerate(handles):
        if handle[0] is not line:
            line = handle[0]
            supply = supplies.get(line.partition_id) if isinstance(line, Line) else None
            if line is None or supply is None or supply.line is not line:
                rewound = line is not None and supply is not None and line.group == group
                line = None
                refused[i] = ExpiredReceipt("the group was rewound") if rewound \
                    else UnknownReceipt("this receipt handle is not of this group")
                continue
            offsets = by_line.setdefault(line, [])
        lease = line.out.get(handle[1])
        if lease is None or lease.attempt != handle[2]:
            refused[i] = ExpiredReceipt("the lease has ended")
            continue
        offsets.append(handle[1])
    if len(handles) > 1:
        by_line = {of: list(dict.fromkeys(found)) for of, found in by_line.items()}
    return refused, [(supplies[of.partition_id], found) for of, found in by_line.items() if found]
