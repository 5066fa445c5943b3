"""Cases that once showed a fault, kept as files: a line of hexadecimal digits for each piece that the client sends.

A line that begins with `#` says what the case was about.
"""
from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.fuzz.mutations import Conversation

FOLDER: Final = Path(__file__).parent / "seeds"


def write_seed(folder: Path, name: str, conversation: Conversation) -> Path:
    """Keep a case under a name."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.hex"
    file.write_text("".join(f"{piece.hex()}\n" for piece in conversation))
    return file


def read_seeds(door: str) -> dict[str, Conversation]:
    """The kept cases of a door, by name."""
    return {file.stem: [bytes.fromhex(line) for line in file.read_text().splitlines() if not line.startswith("#")]
            for file in sorted((FOLDER / door).glob("*.hex"))}
