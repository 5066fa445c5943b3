"""What a transaction is, and what may happen to it: the specification of half messages, as a table. Pure.

A transaction is *open* from its first half message on, until somebody decides. Half messages are stored and in no
partition: no consumer sees one, and none has an offset. Then one of three things becomes of all of them at once:

    committed     they enter their partitions, or wait for their time; a consumer's acks and offsets with them
    rolled_back   they are gone
    expired       nobody decided in time: they are gone, and where there is a group to ask they are its dead letters

A decision is for ever. It is remembered for a time, so that whoever repeats it gets the same answer, whoever
contradicts it is refused, and whoever comes late is told what happened. After that, and before the first half message,
a transaction is *unknown*.

    event      open                               committed       rolled_back     expired         unknown
    add        hold; its ids                      refused         refused         refused         unknown
    commit     append, settle; committed          answered again  refused         refused         unknown
    rollback   drop; rolled_back                  refused         answered again  answered again  unknown
    check      ask a member of its group; open    -               -               -               -
    silence    bury; expired                      -               -               -               -

Every change is in the log before anybody is told of it; a check too. A commit repeated with other acks or offsets
settles nothing more. A rollback of what has expired asks for what has happened, so it is answered like the first.
"""
from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple


class State(IntEnum):
    """What a transaction is. The numbers stand in records and are for ever."""

    OPEN = 1
    COMMITTED = 2
    ROLLED_BACK = 3
    EXPIRED = 4


class Event(Enum):
    ADD = "add"                   # more half messages
    COMMIT = "commit"
    ROLLBACK = "rollback"
    CHECK = "check"               # its sender has been silent for long enough to be asked
    SILENCE = "silence"           # nobody answered the last check, or there is nobody to ask


class Effect(Enum):
    """What is stored, in one frame."""

    NOTHING = "nothing"
    HOLD = "hold"                 # the half messages
    APPEND = "append"             # the messages in their partitions; half messages deleted; acks and offsets
    DROP = "drop"                 # half messages deleted
    ASK = "ask"                   # that somebody is asked, and who
    BURY = "bury"                 # half messages deleted; the messages in the group's dead-letter queue


class Answer(Enum):
    """What whoever caused the event is told, when all that is durable."""

    STORED = "stored"             # it has happened
    AGAIN = "again"               # it had happened already
    REFUSED = "refused"           # AlreadyDecided: it was decided otherwise
    UNKNOWN = "unknown"           # UnknownTransaction
    NOBODY = "nobody"             # nobody asked


class Step(NamedTuple):
    state: State | None           # afterwards; None: unknown
    effect: Effect
    answer: Answer


_O, _C, _R, _E = State.OPEN, State.COMMITTED, State.ROLLED_BACK, State.EXPIRED
_NOTHING = Effect.NOTHING

# decision 41: no states for what is on its way
TABLE: Final[dict[tuple[State | None, Event], Step]] = {
    (_O, Event.ADD):        Step(_O, Effect.HOLD, Answer.STORED),
    (_O, Event.COMMIT):     Step(_C, Effect.APPEND, Answer.STORED),
    (_O, Event.ROLLBACK):   Step(_R, Effect.DROP, Answer.STORED),
    (_O, Event.CHECK):      Step(_O, Effect.ASK, Answer.NOBODY),
    (_O, Event.SILENCE):    Step(_E, Effect.BURY, Answer.NOBODY),

    (_C, Event.ADD):        Step(_C, _NOTHING, Answer.REFUSED),
    (_C, Event.COMMIT):     Step(_C, _NOTHING, Answer.AGAIN),
    (_C, Event.ROLLBACK):   Step(_C, _NOTHING, Answer.REFUSED),
    (_C, Event.CHECK):      Step(_C, _NOTHING, Answer.NOBODY),
    (_C, Event.SILENCE):    Step(_C, _NOTHING, Answer.NOBODY),

    (_R, Event.ADD):        Step(_R, _NOTHING, Answer.REFUSED),
    (_R, Event.COMMIT):     Step(_R, _NOTHING, Answer.REFUSED),
    (_R, Event.ROLLBACK):   Step(_R, _NOTHING, Answer.AGAIN),
    (_R, Event.CHECK):      Step(_R, _NOTHING, Answer.NOBODY),
    (_R, Event.SILENCE):    Step(_R, _NOTHING, Answer.NOBODY),

    (_E, Event.ADD):        Step(_E, _NOTHING, Answer.REFUSED),
    (_E, Event.COMMIT):     Step(_E, _NOTHING, Answer.REFUSED),
    (_E, Event.ROLLBACK):   Step(_E, _NOTHING, Answer.AGAIN),
    (_E, Event.CHECK):      Step(_E, _NOTHING, Answer.NOBODY),
    (_E, Event.SILENCE):    Step(_E, _NOTHING, Answer.NOBODY),

    (None, Event.ADD):      Step(None, _NOTHING, Answer.UNKNOWN),
    (None, Event.COMMIT):   Step(None, _NOTHING, Answer.UNKNOWN),
    (None, Event.ROLLBACK): Step(None, _NOTHING, Answer.UNKNOWN),
    (None, Event.CHECK):    Step(None, _NOTHING, Answer.NOBODY),
    (None, Event.SILENCE):  Step(None, _NOTHING, Answer.NOBODY),
}


def step(state: State | None, event: Event) -> Step:
    """What an event does to a transaction in a state."""
    return TABLE[state, event]


def due_event(attempts: int, max_checks: int) -> Event:
    """What it means that a transaction's time has come after so many checks."""
    return Event.CHECK if attempts < max_checks else Event.SILENCE
