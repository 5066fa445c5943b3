"""What a hub stores is its owner's alone, whichever library makes the file, and whatever it was before."""
from __future__ import annotations

import stat
from pathlib import Path

from tests.faults.clients import post
from tests.running_hub import gatehouse, running_hub


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def require_private(folder: Path) -> set[str]:
    found = modes(folder)
    open_to_others = {name: oct(mode) for name, mode in found.items() if mode & 0o077}
    assert not open_to_others
    return set(found)


def test_nobody_else_reads_what_a_hub_stores(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = tmp_path / "gateways.toml"
    config.write_text("[gateways.http]\n")
    made = gatehouse("users", "create", "ada", "--admin", "--config", str(config), "--data", str(data),
                     stdin="correct horse battery\n")
    assert made.returncode == 0, made.stderr
    require_private(data)
    with running_hub(tmp_path, "http", kernel="checkpoint_ms = 100") as hub:
        assert post(hub.port("http"), b"value")[0] == 201
        names = require_private(data)
        hub.kill()
    assert {"log", "kept", "index", "reserve", "reserve-emergency", "lock", "format", "catalogue.sqlite"} <= names
    assert {"catalogue.sqlite-wal", "catalogue.sqlite-shm"} <= names and any(name.startswith("log/") for name in names)

    for path in data.rglob("*"):                       # as an earlier version left it, or a copy
        path.chmod(0o755 if path.is_dir() else 0o644)
    (data / "log" / f"{'9' * 15:0>20}.log").write_bytes(b"garbage" * 20)
    with running_hub(tmp_path, "http") as hub:
        assert "damaged" in require_private(data)
        hub.kill()
    backup = tmp_path / "backup"
    copied = gatehouse("backup", str(backup), "--data", str(data), "--config", str(config))
    assert copied.returncode == 0, copied.stderr
    assert not any("damaged" in name for name in require_private(backup))
    put_back = gatehouse("restore", str(backup), "--data", str(tmp_path / "again"))
    assert put_back.returncode == 0, put_back.stderr
    require_private(tmp_path / "again")
