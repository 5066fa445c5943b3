"""Run by `test_store`: a store whose files reach a limit, as under a quota, and what it does when that is lifted."""
from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from gatehouse.kernel.state.store import RocksStore, StoreFull

LIMIT_BYTES = 1_200_000


def limit(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def fill(store: RocksStore) -> bool:
    """Write more than fits; True where that was refused."""
    try:
        store.write([(b"b%d" % i, os.urandom(1000)) for i in range(2000)], sync=True)
    except StoreFull:
        return True
    return False


def main(folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = RocksStore(folder)
    store.write([(b"a%d" % i, b"%d" % i) for i in range(1000)], sync=True)
    for _ in range(3):
        limit(LIMIT_BYTES)
        assert fill(store) and fill(store), "it is refused for as long as there is no room"
        assert store.get(b"a7") == b"7", "and read all the time"
        scan = store.scan(b"a", b"b")
        assert next(scan) == (b"a0", b"0")
        limit(resource.RLIM_INFINITY)
        del scan
        store.write([(b"c", b"written")], sync=True)
        assert store.get(b"a7") == b"7" and store.get(b"c") == b"written"
        assert len(list(store.scan(b"a", b"b"))) == 1000
    store.close()
    assert RocksStore(folder).get(b"c") == b"written"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
