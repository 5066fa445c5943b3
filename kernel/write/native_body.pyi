"""What `native_body.c` offers; it is in compiled wheels alone."""
from array import array
from typing import Any

def encode_body(laid: list[Any], run_count: int, now_ms: int, front: bytes, with_ends: bool
                ) -> tuple[bytes, bytes, bytes, bytes]: ...
def authors_of(laid: list[Any], turns: list[Any], begins: array[int], most: int) -> tuple[list[Any], bytes, bytes]: ...
