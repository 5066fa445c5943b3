"""`python -m gatehouse.cli` is `gatehouse`."""
from __future__ import annotations

from gatehouse.cli.main import main

if __name__ == "__main__":
    main()
