"""DescribeUserScramCredentials 0, AlterUserScramCredentials 0: the users that all doors share. It takes the right to
administer the hub.

A SCRAM credential comes salted: it is for logins by its mechanism alone, and the user's password for other ways stays
as it is. A user that is not there is made.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from gatehouse.gateways.admission.administration import UserChanges
from gatehouse.gateways.admission.scram import salted_secret
from gatehouse.gateways.kafka.api.acls import MAX_ASKED, administration_of, together
from gatehouse.gateways.kafka.api.parts import AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    DUPLICATE_RESOURCE,
    NONE,
    POLICY_VIOLATION,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
    UNSUPPORTED_SASL_MECHANISM,
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request

if TYPE_CHECKING:
    from gatehouse.gateways.admission.accounts import ScramSecret, User
    from gatehouse.gateways.kafka.session import KafkaSession

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
MIN_ITERATIONS: Final = 4_096            # as Kafka
MAX_ITERATIONS: Final = 16_384
MAX_SALT_BYTES: Final = 1_024            # of the salt, and of what was salted


def describe_scram(request: Request) -> Iterator[None]:
    """Answer the SCRAM mechanisms of all users, or of those that are named."""
    asked, session = request.decode(DescribeUserScramCredentialsRequest), request.session
    rows: list[Row] = []
    error, text = NONE, None
    try:
        users = administration_of(session).accounts.users
    except Refused as refusal:
        error, text = refusal.code, str(refusal)
    else:
        times = Counter(user.name for user in asked.users or ())
        for name in times or [user.name for user in users.values() if user.scram]:
            rows.append(_described(name, users.get(name)))
            if times[name] > 1:
                refuse(rows[-1], Refused(DUPLICATE_RESOURCE, "the request names this user twice"))
                rows[-1].credential_infos = []
            yield
    request.answer(DescribeUserScramCredentialsResponse, throttle_time_ms=0, error_code=error, error_message=text,
                   results=rows)


def _described(name: str, user: User | None) -> Row:
    row = Row(user=name, error_code=NONE, error_message=None, credential_infos=[
        Row(mechanism=NUMBERS[mechanism], iterations=secret.iterations)
        for mechanism, secret in sorted(user.scram.items())] if user is not None else [])
    if not row.credential_infos:
        refuse(row, Refused(RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"))
    return row


def alter_scram(request: Request) -> Iterator[None]:
    """Make all changes of a user at once, or none of them."""
    asked, session = request.decode(AlterUserScramCredentialsRequest), request.session
    named = Counter((change.name, change.mechanism) for change in (*asked.deletions, *asked.upsertions))
    rows = {name: Row(user=name, error_code=NONE, error_message=None) for name, _ in named}
    changes: dict[str, dict[str, ScramSecret | None]] = {name: {} for name in rows}
    parts = AskedParts(lambda: request.answer(AlterUserScramCredentialsResponse, throttle_time_ms=0,
                                              results=list(rows.values())))
    many = len(asked.deletions) + len(asked.upsertions) > MAX_ASKED
    for change in (*asked.deletions, *asked.upsertions):
        yield
        try:
            if many:
                raise Refused(POLICY_VIOLATION, f"at most {MAX_ASKED} credentials are changed in one request")
            mechanism = MECHANISMS.get(change.mechanism)
            if mechanism is None:
                raise Refused(UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
            if named[change.name, change.mechanism] > 1:
                raise Refused(DUPLICATE_RESOURCE, "a user's credential is changed once in a request")
            changes[change.name][mechanism] = _secret(mechanism, change) if hasattr(change, "salt") else None
        except Refused as refusal:
            refuse(rows[change.name], refusal)
    with together(session):
        for name, row in rows.items():
            if row.error_code == NONE:
                parts.begin(row, partial(_change_scram, session, name, changes[name]))
    parts.settle()


def _secret(mechanism: str, asked: Any) -> ScramSecret:
    """Raises Refused."""
    if not asked.name:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if not MIN_ITERATIONS <= asked.iterations <= MAX_ITERATIONS:
        raise Refused(UNACCEPTABLE_CREDENTIAL, f"iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if not 0 < len(asked.salted_password) <= MAX_SALT_BYTES or not 0 < len(asked.salt) <= MAX_SALT_BYTES:
        raise Refused(UNACCEPTABLE_CREDENTIAL, f"salt and salted password have 1 to {MAX_SALT_BYTES} bytes")
    return salted_secret(mechanism, asked.salted_password, asked.salt, asked.iterations)


def _change_scram(session: KafkaSession, name: str, secrets: dict[str, ScramSecret | None], part: AskedPart) -> None:
    accounts = administration_of(session)
    user = accounts.accounts.users.get(name)
    for mechanism, secret in secrets.items():
        if secret is None and (user is None or mechanism not in user.scram):
            raise Refused(RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    accounts.put_user(session.author(), name, UserChanges(scram=secrets), part.on_changed)


DESCRIBE_SCRAM = Api(key=50, name="DescribeUserScramCredentials", first_version=0, last_version=0, first_flexible=0,
                     dispatch=describe_scram, shows=True, message=DescribeUserScramCredentialsRequest)
ALTER_SCRAM = Api(key=51, name="AlterUserScramCredentials", first_version=0, last_version=0, first_flexible=0,
                  dispatch=alter_scram, message=AlterUserScramCredentialsRequest)
