"""Headers of a request that are about its messages. Pure."""
from __future__ import annotations

from typing import Final

OF_ALL: Final = (b"traceparent", b"x-trace")
"""What they say holds for every message of the body that says nothing else."""
