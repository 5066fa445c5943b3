"""Runs measurements: `python -m bench [NAME ...]`, or `make bench ARGS="NAME ..."`. Without a name, all in turn."""
from __future__ import annotations

import runpy
import sys
from pathlib import Path


def names() -> list[str]:
    """Every measurement: the files of this folder."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("__"))


def main(wanted: list[str]) -> int:
    """Run the measurements that are named."""
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        print(f"no measurement {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    for name in wanted or names():
        print(f"--- {name}", flush=True)
        sys.argv = [name]
        runpy.run_module(f"bench.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
