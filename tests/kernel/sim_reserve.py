"""A reserve on the simulator's disk."""
from __future__ import annotations

from tests.simulation.disk import SimDisk


class SimReserve:
    def __init__(self, disk: SimDisk, size_bytes: int, folder: str = "reserve") -> None:
        self._disk = disk
        self._size_bytes = size_bytes
        self._folder = folder
        self.given_up = 0

    @property
    def is_held(self) -> bool:
        return bool(self._disk.names(self._folder))

    def take(self) -> bool:
        if not self.is_held:
            file = self._disk.open_append(f"{self._folder}/file")
            try:
                file.append([bytes(self._size_bytes)])
            except OSError:
                self._disk.remove(f"{self._folder}/file")
                return False
        return True

    def give_up(self) -> bool:
        if not self.is_held:
            return False
        self._disk.remove(f"{self._folder}/file")
        self.given_up += 1
        return True
