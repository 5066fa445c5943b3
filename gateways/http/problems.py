"""Every refusal of this door: RFC 9457 problem documents with a stable `code`, and the status each code answers with.

    {"type": "urn:gatehouse:problem:unknown_topic", "title": "Unknown topic", "status": 404,
     "detail": "there is no topic 'plnat'", "code": "unknown_topic", ...}

`code` is for programs and never changes; `title` belongs to the code; `detail` is for people. Codes of the kernel and
of admission keep their names, so the same refusal reads alike on every door. Pure: no socket, no clock.
"""
from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:gatehouse:problem:"


class Problem(NamedTuple):
    """What a code answers with. `help` is what the README says about it."""

    status: int
    title: str
    help: str


PROBLEMS: Final[dict[str, Problem]] = {
    # --- what was asked
    "malformed_request": Problem(400, "Malformed request", "The bytes are no HTTP request; the connection is closed."),
    "invalid_parameter": Problem(400, "Invalid parameter", "A query parameter has a value that it cannot have."),
    "unknown_parameter": Problem(400, "Unknown parameter", "The call has no such query parameter."),
    "invalid_header": Problem(400, "Invalid header", "A request header has a value that it cannot have."),
    "invalid_body": Problem(400, "Invalid body", "The body is not the JSON document that the call takes."),
    "invalid_frame": Problem(400, "Invalid frame", "A WebSocket frame that says nothing this hub knows."),
    "too_many_requests": Problem(429, "Too many requests", "More subscriptions on one connection than there may be."),
    "forbidden_url": Problem(403, "Forbidden URL", "A webhook may not post there; see `webhook_allow`."),
    "unknown_webhook": Problem(404, "Unknown webhook", "There is no such webhook."),
    "drills_not_allowed": Problem(403, "Drills not allowed", "`hub.allow_drills` does not say that this hub may be in "
                                                             "trouble on demand."),
    "drill_under_way": Problem(409, "Drill under way", "One drill at a time."),
    "unknown_circuit": Problem(404, "Unknown circuit", "The hub has no such circuit, or nothing is asked over it now."),
    "too_many_webhooks": Problem(429, "Too many webhooks", "There are as many webhooks as there may be."),
    "invalid_cloud_event": Problem(400, "Invalid CloudEvent", "No CloudEvent of version 1.0."),
    "invalid_cursor": Problem(400, "Invalid cursor", "The cursor was not made by this hub for this topic."),
    "invalid_address": Problem(400, "Invalid address", "The address cannot be decoded, or is none to publish to."),
    "unroutable": Problem(400, "Unroutable", "The address has no topic: its first level is no topic name, and no route "
                                             "gives it one."),
    "invalid_filter": Problem(400, "Invalid filter", "A filter that is empty, too long, or of too many levels."),
    "invalid_delay": Problem(400, "Invalid delay", "More than ten years ahead, or a repetition that never falls due."),
    "invalid_schedule": Problem(400, "Invalid schedule", "No interval and no cron expression, or one that never is."),
    "invalid_selector": Problem(400, "Invalid selector", "The `filter` cannot be read; `position` says where."),
    "too_many_partitions": Problem(400, "Too many partitions",
                                   "More partitions could hold what matches than a stream can say "
                                                       "its place in; name a topic, or give the filter a first level."),
    "invalid_topic": Problem(400, "Invalid topic", "No legal topic name, or settings that cannot be."),
    "corrupt_batch": Problem(400, "Corrupt batch", "A record batch whose CRC, length or count lies, or that does not "
                                                   "decompress."),
    "invalid_record": Problem(400, "Invalid record", "Records of a batch that are not what the batch claims."),
    "invalid_timestamp": Problem(400, "Invalid timestamp", "A record before 1970 or beyond the year 9999, or a batch "
                                                           "that states a false largest timestamp."),
    "unsupported_batch": Problem(400, "Unsupported batch", "A record batch of a kind that is not taken here."),
    "not_found": Problem(404, "Not found", "No call has this path."),
    "unknown_topic": Problem(404, "Unknown topic", "The topic does not exist and is not created by this call."),
    "unknown_transaction": Problem(404, "Unknown transaction",
                                   "It was never begun, or its decision is no longer remembered."),
    "already_decided": Problem(409, "Already decided", "The transaction was decided otherwise; `state` says how."),
    "transaction_too_large": Problem(413, "Transaction too large", "More messages or bytes than one may have."),
    "too_many_transactions": Problem(503, "Too many transactions", "As many are undecided as the hub keeps."),
    "invalid_check_back": Problem(400, "Invalid check-back", "Times or numbers that no check-back can have."),
    "no_answer": Problem(504, "No answer", "The request is stored, and nothing answered it in time."),
    "no_links": Problem(409, "No links", "The hub's configuration has no `[relay]`."),
    "unknown_link": Problem(404, "Unknown link", "There is no link of that name, or none with another hub yet."),
    "key_not_pinned": Problem(409, "Key not pinned",
                              "There is no next key, or the other hub of a link has not pinned it yet."),
    "bad_invitation": Problem(400, "Bad invitation", "It does not read, is over, was used, or is for another hub."),
    "unknown_session": Problem(404, "Unknown session", "No client of this id has a session that outlives its "
                                                       "connection."),
    "unknown_connection": Problem(404, "Unknown connection", "No connection with this id is open."),
    "unknown_scheduled": Problem(404, "Unknown scheduled message",
                                 "Nothing with this id waits for its time, or did within the last day."),
    "unknown_message": Problem(404, "Unknown message",
                               "Nothing is known of this message, or the user may not read where it lies."),
    "unknown_partition": Problem(404, "Unknown partition",
                                 "The topic exists; that partition number of it does not."),
    "unknown_queue": Problem(404, "Unknown queue", "There is no queue of that name."),
    "nothing_retained": Problem(404, "Nothing retained", "The address retains no value, or it has expired."),
    "method_not_allowed": Problem(405, "Method not allowed", "The path exists; `Allow` lists its methods."),
    "not_acceptable": Problem(406, "Not acceptable", "The call answers with no type that `Accept` names."),
    "invalid_group": Problem(400, "Invalid group", "A name or settings that no group can have."),
    "invalid_queue": Problem(400, "Invalid queue", "Settings that no queue can have."),
    "unknown_receipt": Problem(400, "Unknown receipt", "A receipt handle that this hub never gave, or gave to another "
                                                       "group."),
    "unknown_group": Problem(404, "Unknown group", "There is no such group, or it does not read that topic."),
    "assigned_group": Problem(409, "Assigned group", "The group commits offsets; messages cannot be leased from it."),
    "leased_group": Problem(409, "Leased group", "Messages of the group are leased; nobody commits offsets for it."),
    "group_has_members": Problem(409, "Group has members", "Members of the group read: nobody else moves its offsets, "
                                                           "and it is not deleted."),
    "queue_exists": Problem(409, "Queue exists", "A queue of that name exists with other settings."),
    "queue_not_empty": Problem(409, "Queue not empty", "Something is in the queue, and it was to be deleted if not."),
    "unknown_binding": Problem(404, "Unknown binding", "The queue has no such binding that was made here."),
    "receipt_expired": Problem(410, "Receipt expired", "The lease has ended: its time ran out, it was released, or its "
                                                       "message is settled."),
    "receipt_denied": Problem(403, "Receipt denied", "A message asks for a receipt at an address where its sender may "
                                                     "not publish, or that is none; nothing was stored."),
    "queue_full": Problem(507, "Queue full", "The queue is at its limit; nothing was stored."),
    "unknown_backup": Problem(404, "Unknown backup", "No such backup has begun, or it has ended; begin another."),
    "too_many_backups": Problem(409, "Too many backups", "As many backups as may be are being read."),
    "already_delivered": Problem(409, "Already delivered", "The message can no longer be recalled."),
    "too_many_topics": Problem(429, "Too many topics", "Users may make no more topics: there are as many as may be, "
                                                       "or the user has made as many as one may, or makes them "
                                                       "too fast. What administrators create is not bounded."),
    "topic_exists": Problem(409, "Topic exists", "A topic of that name exists already."),
    "partitions_remain": Problem(409, "Partitions remain", "Partitions can be added to a topic and not be taken away."),
    "topic_replaced": Problem(410, "Topic replaced", "The cursor belongs to a deleted topic that had the same name."),
    "precondition_failed": Problem(412, "Precondition failed", "What `If-Match` or `If-None-Match` says is not so; "
                                                               "nothing was changed."),
    "body_too_large": Problem(413, "Body too large", "The body is larger than `max_body_bytes`."),
    "message_too_large": Problem(413, "Message too large", "The message is larger than the topic's limit."),
    "unsupported_media_type": Problem(415, "Unsupported media type", "The call takes no such content type or coding."),
    "offset_out_of_range": Problem(416, "Offset out of range",
                                   "The partition holds no such offset; the bounds are given."),
    "range_not_satisfiable": Problem(416, "Range not satisfiable", "The file ends before the range begins."),
    "expectation_failed": Problem(417, "Expectation failed", "Only `Expect: 100-continue` is known."),
    "upgrade_required": Problem(426, "Upgrade required", "The call is a WebSocket."),
    "nothing_stored": Problem(422, "Nothing stored", "Every message was refused, and not for one reason; `messages` "
                                                    "says why each was."),
    "idempotency_conflict": Problem(422, "Idempotency conflict",
                                    "The `Idempotency-Key` came before, with another message."),
    "target_too_long": Problem(414, "Target too long", "The path and the query are longer than the hub reads."),
    # --- users and rights
    "invalid_user": Problem(400, "Invalid user", "A name, password, quota or key that no user can have."),
    "invalid_rule": Problem(400, "Invalid rule", "No rule of the rights; `detail` says what is wrong with it."),
    "invalid_limit": Problem(400, "Invalid limit", "No limit that can be; `detail` says what is wrong with it."),
    "unknown_limit": Problem(404, "Unknown limit", "There is no limit of that id."),
    "unknown_user": Problem(404, "Unknown user", "There is no user of that name."),
    "unknown_key": Problem(404, "Unknown key", "The user has no API key of that id."),
    "unknown_rule": Problem(404, "Unknown rule", "There is no rule of that id."),
    "user_exists": Problem(409, "User exists", "A user of that name exists already."),
    "last_administrator": Problem(409, "Last administrator", "Nobody would be left who may administer the hub."),
    "from_file": Problem(409, "From the file", "It stands in the configuration file, and is changed there."),
    "accounts_unavailable": Problem(503, "Accounts unavailable",
                                    "The database of users and rights does not answer; nothing was changed."),
    # --- who asked
    "not_authenticated": Problem(401, "Not authenticated", "A user and password are needed, or these are wrong."),
    "not_authorized": Problem(403, "Not authorized", "The user has no right to do this."),
    "create_denied": Problem(403, "Create denied", "The topic does not exist, and the user may not create it."),
    "host_not_allowed": Problem(421, "Host not allowed", "The request asks for a name that is not in `allowed_hosts`."),
    "origin_not_allowed": Problem(403, "Origin not allowed", "A web page of an origin not in `cors_origins` asked."),
    # --- how fast
    "body_too_slow": Problem(408, "Body too slow", "The body did not arrive in `body_timeout_s`; nothing was stored."),
    "no_room_left": Problem(429, "No room left", "As much is stored as a limit lets there be."),
    "overloaded": Problem(503, "Overloaded", "The hub has more to do than it can and lets nobody new in for a while. "
                                             "Come again."),
    "too_many_connections": Problem(429, "Too many connections", "A limit of connections is reached."),
    "over_quota": Problem(429, "Over quota", "The user's quota, or another limit, is used up; `Retry-After` says for "
                                                "how long."),
    "headers_too_large": Problem(431, "Headers too large", "A header field is too long, or there are too many."),
    "busy": Problem(503, "Busy", "The hub has too much in flight; nothing was stored, try again."),
    "too_many_scheduled": Problem(503, "Too many scheduled", "`max_scheduled` messages wait for their time already."),
    "stopping": Problem(503, "Stopping", "The hub is shutting down and takes nothing new."),
    # --- what the hub can do
    "internal_error": Problem(500, "Internal error", "A fault of the hub; its log says which."),
    "storage_failed": Problem(500, "Storage failed", "Stored data could not be read back."),
    "not_built": Problem(501, "Not built", "A part of HTTP, or of this interface, that this hub does not do."),
    "version_not_supported": Problem(505, "Version not supported", "HTTP/1.1 and HTTP/1.0 are spoken here."),
    "outcome_unknown": Problem(504, "Outcome unknown", "The request passed its deadline; it may still take effect. "
                                                       "Safe to repeat with the same `Idempotency-Key`."),
    "kept_full": Problem(507, "Kept full", "What must outlive retention has reached `kept_bytes`; nothing was stored."),
    "storage_full": Problem(507, "Storage full", "The disk took no more; nothing was stored."),
}

UNLISTED: Final = Problem(500, "Internal error", "")
"""What a code that is not in the table answers with: a refusal nobody expected on this door is the hub's fault."""


class Refusal(Exception):
    """A request is refused; becomes the answer. `headers` go out with it, `members` into the document."""

    def __init__(self, code: str, detail: str, *, headers: dict[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers or {}
        self.members = members


def problem_of(code: str) -> Problem:
    """The table's entry of a code, or `UNLISTED`."""
    return PROBLEMS.get(code, UNLISTED)


def document_of(code: str, detail: str, members: dict[str, Any] | None = None) -> dict[str, Any]:
    """The problem document as a dictionary; `members` are its extension members."""
    problem = problem_of(code)
    document: dict[str, Any] = {"type": TYPE_PREFIX + code, "title": problem.title, "status": problem.status,
                                "detail": detail, "code": code}
    if members:
        document.update(members)
    return document


def encode_problem(code: str, detail: str, members: dict[str, Any] | None = None) -> bytes:
    """The problem document as JSON."""
    return orjson.dumps(document_of(code, detail, members))
