"""Being asked what became of a group's transactions: its members over HTTP.

    GET /v1/transactions/checks?group=&wait=&max=     a long poll: a member for as long as it waits
    GET /v1/transactions/checks/events?group=&max=    a member until it hangs up: Server-Sent Events called `check`

Each check goes to one member, in turn, and is in the log before it is told. Whoever is asked and decides nothing, or
has gone meanwhile, leaves the question to be asked again: a check that is lost on the way costs time and nothing else.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.checks import describe_check
from gatehouse.gateways.http.declaring import (
    GROUP_NAME,
    TEXT,
    TICKET,
    WAIT,
    Answer,
    Need,
    Parameter,
    Setting,
    Whole,
    declare,
    list_of,
    object_of,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import NAME, Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.live.event_reader import EVENT_STREAM, HEADERS
from gatehouse.gateways.http.transacting import CHECK, group_name

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.transactions.coordinator import Check, Membership

GATHER_S: Final = 0.005
"""How long a poll that was asked one question waits for those that come with it."""

HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": alive\n\n"

GROUP: Final = Parameter("group", "Whose member this is.", required=True, example="shop", text=GROUP_NAME)
MAX: Final = Whole("max", "Most checks that are sent ahead of being taken.", default=100, lowest=1,
                   highest=Setting("max_page_messages"))
NEEDS: Final = (Need(Operation.TRANSACT, "group"),)


class HttpMember:
    """A `transactions.members.Member` and its principal's `RegisteredSession`: it ends when it may no longer be
    asked."""

    def __init__(self, door: Door, principal: Principal, group: str) -> None:
        self._door = door
        self._principal = principal
        self._group = group
        self._checks: list[Check] = []
        self._asked: Callable[[], None] | None = None        # wakes who waits
        self._membership: Membership | None = None
        self.ended = False

    def join(self, credit: int, peer: str) -> None:
        """Be asked from now on, at most so much ahead."""
        self._registration = self._door.admission.register(self._principal, NAME, self)
        self._membership = self._door.guard_of(self._principal).transactions.join_checks(
            self._group, self, f"{self._principal.name} at {peer}", credit)

    def leave(self) -> None:
        """Be asked nothing more."""
        if self._membership is not None:
            self._membership.leave()
            self._registration.leave()

    async def wait(self, timeout_s: float) -> None:
        """Returns when something is asked, at the time-out, when this ends or the hub stops."""
        if self._checks or self.ended:
            return
        reply: Reply[None] = Reply()
        self._asked = partial(reply.set_result, None)
        timer = self._door.loop.call_later(timeout_s, self._asked)
        try:
            await self._door.unless_stopping(reply)
        finally:
            timer.cancel()

    def take(self) -> list[Check]:
        """What was asked since; whoever takes it has room for as much again."""
        checks, self._checks = self._checks, []
        return checks

    def add_credit(self, count: int) -> None:
        """So many checks have been sent."""
        if self._membership is not None and count:
            self._membership.add_credit(count)

    def on_checks(self, checks: list[Check]) -> None:
        """Called by the coordinator."""
        self._checks += checks
        self._wake()

    def _wake(self) -> None:
        if self._asked is not None:
            self._asked()

    def on_principal_ended(self, reason: str) -> None:
        """Nothing more is asked; what was not sent yet is asked again."""
        self.ended = True
        self._checks.clear()
        self._wake()

    def on_rights_changed(self) -> None:
        """End as `on_principal_ended` does, where the right to the group is gone."""
        if not self._door.admission.may_group(self._principal, Operation.TRANSACT, self._group):
            self.on_principal_ended("the right to transact was taken away")


@declare("transactions", query=(GROUP, WAIT, MAX), needs=NEEDS, problems=("invalid_group",), acts=True,
         answers=(Answer(200, "What was asked, if anything.", object_of({"checks": list_of(CHECK)})),))
async def get_checks(door: Door, call: Call) -> Answered:
    """Wait for checks: questions what became of transactions of the group.

    Each goes to one member. Who decides nothing leaves the question to be asked again.
    """
    query = call.query()
    member, limit = _member(door, query, await door.principal(call))
    wait_s = WAIT.read(query, door.config)
    checks = await _wait(member, limit, wait_s, call) if call.method != "HEAD" else []
    return json_answer({"checks": [describe_check(check, door.door_names) for check in checks]},
                       headers={"Cache-Control": "no-store"})


async def _wait(member: HttpMember, limit: int, wait_s: float, call: Call) -> list[Check]:
    """What a member is asked in so long."""
    member.join(limit, call.session.peer)
    try:
        await member.wait(max(wait_s, GATHER_S))
        await asyncio.sleep(GATHER_S)                # what comes with the first one
    finally:
        member.leave()
    return member.take()


@declare("transactions", query=(GROUP, MAX, TICKET), needs=NEEDS, problems=("invalid_group",), acts=True,
         answers=(Answer(200, "Events without end: `check`, whose data is a check.", TEXT, EVENT_STREAM),))
async def check_events(door: Door, call: Call) -> Answered:
    """Follow the checks of a group, as Server-Sent Events.

    The stream is a member for as long as it is open; there is nothing to resume, since what is not decided is asked
    again.
    """
    query = call.query()
    member, limit = _member(door, query, await door.stream_principal(call, query))
    if call.method == "HEAD":
        return Response(headers=HEADERS)
    answer = door.stream(call, HEADERS)
    member.join(limit, call.session.peer)            # before the first wait: a right may be withdrawn in it
    try:
        answer.start()
        answer.write(b": member of the group\n\n")
        while not (member.ended or door.stopping):
            await member.wait(HEARTBEAT_S)
            checks = member.take()
            answer.write(b"".join([_event(door, check) for check in checks]) or HEARTBEAT)
            await answer.drained()
            member.add_credit(len(checks))
    finally:
        member.leave()
    return answer


def _member(door: Door, query: dict[str, str], principal: Principal) -> tuple[HttpMember, int]:
    group = group_name(query["group"])
    door.admission.require_group(principal, Operation.TRANSACT, group)
    return HttpMember(door, principal, group), MAX.read(query, door.config)


def _event(door: Door, check: Check) -> bytes:
    return b"event: check\ndata: %b\n\n" % orjson.dumps(describe_check(check, door.door_names))


ROUTES: Routes = (("GET", "/v1/transactions/checks", get_checks),
                  ("GET", "/v1/transactions/checks/events", check_events))
