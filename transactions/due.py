"""An undecided transaction whose time has come: its record is read as far as asking needs, and changed. Pure. Hot.

A million of these go by every half minute, so nothing is taken apart that stays as it is. What stands where in a record
is said by `transactions.records`.
"""
from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from gatehouse.kernel.halves.half_records import decode_page
from gatehouse.transactions.members import Check
from gatehouse.transactions.records import CHECK, HEAD
from gatehouse.transactions.states import Event, due_event

MAX_LISTED: Final = 100               # checks that are kept with a transaction, the last ones
MAX_ATTEMPTS: Final = 65_535          # somebody may ask by hand as often as they like

_MARKS: Final = Struct(">BH")         # from 1 on: unasked, attempts
_MADE: Final = Struct(">H")           # at 22
_NEXT: Final = Struct(">q")           # at 40


class DueTransaction:
    """A transaction whose time has come. `value` is its record."""

    def __init__(self, transaction_id: int, value: bytes) -> None:
        (_, unasked, attempts, messages, pages, first_ms, every_ms, max_checks, made, _, begun_ms, next_ms, _,
         tenant, group, by, address, decided_by) = HEAD.unpack_from(value)
        self.id: int = transaction_id
        self.value = value
        self.unasked: bool = unasked != 0
        self.attempts: int = attempts
        self.messages: int = messages
        self.pages: int = pages
        self.first_ms: int = first_ms
        self.every_ms: int = every_ms
        self.max_checks: int = max_checks
        self.made: int = made
        self.begun_ms: int = begun_ms
        self.next_ms: int = next_ms
        self.due_ms, self.waited_ms, self.was_unasked = self.next_ms, self.wait_ms, self.unasked   # before the check
        at: int = HEAD.size + tenant + group
        self.name: tuple[str, str] = _name(value[HEAD.size:at], tenant)
        self.by: str = _text(value[at:at + by])
        self._checks_at: int = at + by + address + decided_by

    @property
    def event(self) -> Event:
        """What it means that its time has come."""
        return due_event(self.attempts, self.max_checks)

    @property
    def wait_ms(self) -> int:
        """From the last check, or sign of life, to the next."""
        return self.every_ms if self.attempts else self.first_ms

    def check(self, at_ms: int, to: str, counts: bool) -> None:
        """It is asked: the name of who is, "" where nobody is there. `value` is the record that says so."""
        name = to.encode()
        # decision 45: its record is changed where it lies
        value = bytearray(self.value)
        self.unasked = not name
        self.attempts = min(self.attempts + counts, MAX_ATTEMPTS)
        self.next_ms = at_ms + self.every_ms
        _MARKS.pack_into(value, 1, self.unasked, self.attempts)
        _NEXT.pack_into(value, 40, self.next_ms)
        if self.made < MAX_LISTED:
            self.made += 1
            _MADE.pack_into(value, 22, self.made)
        else:
            _, length = CHECK.unpack_from(value, self._checks_at)
            del value[self._checks_at:self._checks_at + CHECK.size + length]
        assert self._checks_at <= len(value) and self.made <= MAX_LISTED, "checks stand at the end"
        self.value = bytes(value) + CHECK.pack(at_ms, len(name)) + name

    def question(self, now_ms: int, page: bytes) -> Check:
        """What its member is asked; this is the first page of its half messages."""
        what = decode_page(page, 1)[0].what
        return Check(self.id, self.name[0], self.name[1], self.attempts, self.max_checks, now_ms - self.begun_ms,
                     self.messages, self.by, what.address, "" if what.to_queue else what.topic, what.key, what.value,
                     what.headers, what.attributes)


@lru_cache(maxsize=4_096)
def _name(name: bytes, tenant_length: int) -> tuple[str, str]:
    """Tenant and group: the same again and again."""
    return name[:tenant_length].decode(), name[tenant_length:].decode()


@lru_cache(maxsize=4_096)
def _text(text: bytes) -> str:
    return text.decode()
