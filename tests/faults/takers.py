"""Members of one leased group over HTTP, who live through restarts: what they were given, what they acked, and whether
the hub keeps to it.

    an ack that was answered is never undone
    a message that was given belongs to its taker for its time, restart or not
    in the end every message of the topic was given

Answers may be seen in another order than the hub gave them in, and late: only what no order explains is wrong. Times
are the system's, as the hub's are.
"""
from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from tests.faults.oplog import identify
from tests.faults.readers import get, value_of
from tests.faults.writers import ANSWER_S, OUTCOME_UNKNOWN, REFUSALS, TOPIC

GROUP: Final = "takers"
POP_MAX: Final = 200
INVISIBLE_S: Final = (0.5, 3.0)
WAIT_S: Final = 0.1
EARLY_S: Final = 0.05              # by which a lease may seem to end too soon
ACKED: Final = 0.8                 # of what was taken; the rest comes again
DRAINED_S: Final = 120.0
GONE: Final = "receipt_expired"


class Grant(NamedTuple):
    """A message was given for so long, at some time between two."""

    asked_s: float
    answered_s: float
    invisible_s: float

    def may_end_by(self, when_s: float) -> bool:
        return self.asked_s + self.invisible_s - EARLY_S <= when_s


class Takers:
    """What all members of the group know."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], Grant] = {}          # to somebody who has not acked it
        self.given: set[tuple[str, int]] = set()
        self.acked: dict[tuple[str, int], float] = {}          # when it was answered

    def run(self, number: int, port: int, stop: threading.Event) -> None:
        """One member: take, ack most of it, leave the rest to its time. Ends with the hub."""
        chance = random.Random(f"{self._seed} {number} {len(self.given)}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        try:
            while not stop.is_set():
                taken = self._take(connection, chance.choice(INVISIBLE_S))
                self._ack(connection, [one for one in taken if chance.random() < ACKED])
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def _take(self, connection: http.client.HTTPConnection, invisible_s: float) -> list[tuple[tuple[str, int], str]]:
        """Names and receipt handles of what was given."""
        asked_s = time.time()
        status, answer = _ask(connection, f"pop?topic={TOPIC}&max={POP_MAX}&invisible={invisible_s}&wait={WAIT_S}")
        grant = Grant(asked_s, time.time(), invisible_s)
        if status != 200:
            assert status in (404, OUTCOME_UNKNOWN) or status in REFUSALS, (status, answer)
            time.sleep(WAIT_S)
            return []
        taken = [(identify(value_of(message)), message["receipt_handle"]) for message in answer["messages"]]
        with self._lock:
            for name, _ in taken:
                self._check(name, grant)
                self._held[name] = grant
                self.given.add(name)
        return taken

    def _check(self, name: tuple[str, int], grant: Grant) -> None:
        """Whether it could be given, after or before what else is known of it."""
        acked_s, held = self.acked.get(name), self._held.get(name)
        assert acked_s is None or grant.may_end_by(acked_s), \
            f"{name} was acked, that was answered at {acked_s}, and it is given again: {grant}"
        assert held is None or held.may_end_by(grant.answered_s) or grant.may_end_by(held.answered_s), \
            f"{name} is given to two at a time: {held}, {grant}"

    def _ack(self, connection: http.client.HTTPConnection, taken: list[tuple[tuple[str, int], str]]) -> None:
        if not taken:
            return
        names = {handle: name for name, handle in taken}
        with self._lock:
            for name in names.values():
                self._held.pop(name, None)                     # unless it is answered it may come again
        status, answer = _ask(connection, "ack", {"receipt_handles": list(names)})
        if status == OUTCOME_UNKNOWN or status in REFUSALS:
            return
        assert status in (200, 207), (status, answer)
        with self._lock:
            for result in answer["results"]:
                if result["status"] == 200:
                    self.acked[names[result["receipt_handle"]]] = time.time()
                else:
                    assert result["code"] == GONE, result      # it took longer than its time

    def finish(self, port: int, present: Collection[tuple[str, int]], *, forgets: bool) -> None:
        """Take and ack what is left; then everything was given, and the hub counts nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        deadline_s = time.monotonic() + DRAINED_S
        while True:
            taken = self._take(connection, INVISIBLE_S[1])
            self._ack(connection, taken)
            topic, = get(port, f"/v1/groups/{GROUP}")["topics"]
            if not taken and not topic["ready"] and not topic["leased"] and not topic["waiting"]:
                break
            assert time.monotonic() < deadline_s, f"the group is not drained: {topic}"
        connection.close()
        missing = set(present) - self.given
        assert forgets or not missing, f"never given: {sorted(missing)[:5]}, {len(missing)} in all; {topic}"


def _ask(connection: http.client.HTTPConnection, call: str, document: dict[str, Any] | None = None
         ) -> tuple[int, Any]:
    connection.request("POST", f"/v1/groups/{GROUP}/{call}", json.dumps(document) if document else None,
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")
