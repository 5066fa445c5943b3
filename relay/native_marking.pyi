"""What `native_marking.c` offers; it is in compiled wheels alone."""
from gatehouse.kernel.message import Message, Placement
from gatehouse.kernel.records.batch import OpenPiece

def mark(opened: OpenPiece, count: int, first_offset: int, first_id: int, places: dict[bytes | None, Placement],
         tracks: dict[bytes | None, int], partition_ids: list[int], limit_bytes: int, for_link: tuple[bytes, ...],
         for_kernel: tuple[bytes, ...], ending: tuple[bytes, bytes, bytes, bytes], messages: list[Message],
         met: list[bytes | None]) -> tuple[int, int, list[tuple[int, int, bytes, int]]]: ...
