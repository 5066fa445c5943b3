"""Asks every case of a server, and keeps what it answers."""
from __future__ import annotations

from typing import Final

from pika import spec

from tests.rabbitmq.cases import CASES, LOGINS
from tests.rabbitmq.wire import Send, Step, Wire

Answers = dict[str, list[str]]
"""By a case's name: what was said to each of its steps, as one text a step."""

SEPARATOR: Final = "; "
RESERVED: Final = "amq."


def ask(port: int) -> Answers:
    """The answers to all cases of the server on this port."""
    found: Answers = {}
    cleaner = Wire(port)
    for name, steps in CASES.items():
        found[name] = _play(port, steps)
        cleaner = _clean(port, cleaner, steps)
    cleaner.close()
    for name, login in LOGINS.items():
        wire = Wire(port, **login)
        found[f"login: {name}"] = [wire.ended or ("cut" if wire.is_over else "let in")]
        wire.close()
    return found


def _play(port: int, steps: tuple[Step, ...]) -> list[str]:
    wires: dict[int, Wire] = {}
    try:
        said = []
        for step in steps:
            if step.connection not in wires:
                wires[step.connection] = Wire(port)
            said.append(SEPARATOR.join(wires[step.connection].play(step)))
        return said
    finally:
        for wire in wires.values():
            wire.close()


def _clean(port: int, cleaner: Wire, steps: tuple[Step, ...]) -> Wire:
    """Take away what a case has left. What cleans next: a channel ends where a queue is another connection's still."""
    declared = [step.method for step in steps if isinstance(step, Send)]
    for name in {method.exchange for method in declared if isinstance(method, spec.Exchange.Declare)}:
        if name and not name.startswith(RESERVED):
            cleaner.play(Send(spec.Exchange.Delete(exchange=name)))
    for name in {"q", *(method.queue for method in declared if isinstance(method, spec.Queue.Declare))}:
        while name and not name.startswith(RESERVED) and not cleaner.play(
                Send(spec.Queue.Delete(queue=name)))[0].startswith("Queue.DeleteOk"):
            cleaner.close()
            cleaner = Wire(port)
    return cleaner
