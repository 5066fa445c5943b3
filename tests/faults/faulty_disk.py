"""The disk of `faulty_disk.c` for the hubs of a nursery: whoever writes the log, Python or native, writes to it."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sysconfig
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).with_suffix(".c")
BUILT: Final = Path(__file__).parents[2] / "build" / "faults"


@cache
def library() -> Path:
    """The library to load before all others; compiled where it is not there."""
    file = BUILT / f"faulty_disk-{sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not file.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        subprocess.run([compiler, "-O2", "-Wall", "-shared", "-fPIC", str(SOURCE), "-o", str(new), "-ldl"], check=True)
        new.rename(file)                             # whole, whoever else compiles it
    return file


def environ() -> dict[str, str]:
    """What a process must be started with."""
    before = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library()}:{before}" if before else str(library())}


def order(name: str, *arguments: Any) -> None:
    """Tell the disk of this process, which was started with `environ`."""
    given = [ctypes.c_double(one) if isinstance(one, float) else
             ctypes.c_char_p(one.encode()) if isinstance(one, str) else ctypes.c_long(one) for one in arguments]
    getattr(ctypes.CDLL(None), f"faulty_disk_{name}")(*given)
