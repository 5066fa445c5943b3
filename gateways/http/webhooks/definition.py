"""What a webhook is told, as JSON: by whoever defines it, and as the hub keeps it, secrets and all. Pure."""
from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import orjson

from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.webhooks.signing import key_of, new_secret
from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.groups.group_settings import MAX_NAME_BYTES

BINARY: Final = "binary"
STRUCTURED: Final = "structured"
BATCH: Final = "batch"
MODES: Final = (BINARY, STRUCTURED, BATCH)
MAX_CONCURRENCY: Final = 64
MAX_BATCH: Final = 1_000
MAX_MORE_URLS: Final = 15
MAX_TIMEOUT_S: Final = 60.0
OLD_SECRET_MS: Final = 24 * 3_600_000
"""How long a secret that was replaced still signs."""

TEXTS: Final = ("url", "topic", "group", "checks", "mode", "secret")
SECRET_FIELDS: Final = frozenset(("secret", "old_secret", "old_secret_until_ms"))


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook as it is kept."""

    url: str
    more_urls: tuple[str, ...] = ()
    """Further targets of the same receiver: each POST goes to one of them."""

    topic: str = ""
    group: str = ""
    checks: str = ""
    """Instead of `topic`: the group whose transactions the receiver is asked about."""

    mode: str = BINARY
    concurrency: int = 4
    """POSTs under way at one time."""

    max_batch: int = 100
    """Events in one POST of the mode `batch`."""

    timeout: float = 10.0
    """Seconds in which a POST must be answered."""

    enabled: bool = True
    disabled_because: str = ""
    secret: str = ""
    old_secret: str = ""
    old_secret_until_ms: int = 0
    created: int = 0

    @property
    def urls(self) -> list[str]:
        """Of every target, by its number."""
        return [self.url, *self.more_urls]

    def keys(self, now_ms: int) -> list[bytes]:
        """What a POST is signed with now."""
        keys = [key_of(self.secret)]
        if self.old_secret and now_ms < self.old_secret_until_ms:
            keys.append(key_of(self.old_secret))
        return keys

    def encode(self) -> bytes:
        """For the log."""
        return orjson.dumps(asdict(self))

    def describe(self) -> dict[str, Any]:
        """For people: without its secrets."""
        return {name: value for name, value in asdict(self).items() if name not in SECRET_FIELDS}


def decode_webhook(value: bytes) -> Webhook:
    """The webhook that is kept in these bytes; fields that a later version added are passed over."""
    names = {field.name for field in fields(Webhook)}
    given = {name: value for name, value in orjson.loads(value).items() if name in names}
    return Webhook(**{**given, "more_urls": tuple(given.get("more_urls", ()))})


def read_webhook(name: str, document: dict[str, Any], existing: Webhook | None, now_ms: int) -> tuple[Webhook, str]:
    """The webhook that a document defines, and the secret to show, "" where it is an old one. Refuses `invalid_body`.

    What the document leaves out is as by default; a secret that it does not give is kept, or made.
    """
    rotate = document.pop("rotate_secret", False)
    if not isinstance(rotate, bool):
        raise _refusal("'rotate_secret' is true or false")
    _check(document)
    given = document.pop("secret", None)
    if "checks" not in document:
        document.setdefault("group", f"webhook.{name}")
    document["more_urls"] = tuple(document.get("more_urls", ()))
    webhook = Webhook(**document, created=now_ms if existing is None else existing.created)
    _check_names(webhook)
    if existing is None:
        return replace(webhook, secret=given or new_secret()), "" if given else "new"
    return _with_secret(webhook, existing, given, rotate, now_ms)


def _with_secret(webhook: Webhook, existing: Webhook, given: str | None, rotate: bool, now_ms: int
                 ) -> tuple[Webhook, str]:
    if not rotate and given in (None, existing.secret):
        return replace(webhook, secret=existing.secret, old_secret=existing.old_secret,
                       old_secret_until_ms=existing.old_secret_until_ms), ""
    return replace(webhook, secret=given or new_secret(), old_secret=existing.secret,
                   old_secret_until_ms=now_ms + OLD_SECRET_MS), "" if given else "new"


def _check(document: dict[str, Any]) -> None:
    names = ("url", "more_urls", "topic", "group", "checks", "mode", "concurrency", "max_batch", "timeout", "enabled",
             "secret")
    for name, value in document.items():
        if name not in names:
            raise _refusal(f"a webhook has no {name[:64]!r}; there are: {', '.join(names)}, rotate_secret")
        if name in TEXTS and not isinstance(value, str):
            raise _refusal(f"{name!r} is a text")
    more_urls = document.get("more_urls", [])
    if not isinstance(more_urls, list) or len(more_urls) > MAX_MORE_URLS \
            or not all(isinstance(url, str) for url in more_urls):
        raise _refusal(f"'more_urls' is a list of up to {MAX_MORE_URLS} texts")
    if "url" not in document:
        raise _refusal("a webhook needs a 'url'")
    if ("topic" in document) == ("checks" in document) or "checks" in document and "group" in document:
        raise _refusal("a webhook has a 'topic' and a 'group' that reads it, or 'checks', a group that it answers for")
    if document.get("mode", BINARY) not in MODES:
        raise _refusal(f"'mode' is one of: {', '.join(MODES)}")
    if not isinstance(document.get("enabled", True), bool):
        raise _refusal("'enabled' is true or false")
    for name, most in (("concurrency", MAX_CONCURRENCY), ("max_batch", MAX_BATCH)):
        if type(document.get(name, 1)) is not int or not 1 <= document.get(name, 1) <= most:
            raise _refusal(f"{name!r} is a whole number from 1 to {most}")
    if type(document.get("timeout", 1)) not in (int, float) or not 0.1 <= document.get("timeout", 1) <= MAX_TIMEOUT_S:
        raise _refusal(f"'timeout' is a number of seconds from 0.1 to {MAX_TIMEOUT_S:g}")
    if "secret" in document:
        try:
            key_of(document["secret"])
        except ValueError as error:
            raise _refusal(str(error)) from None


def _check_names(webhook: Webhook) -> None:
    if not webhook.checks and not is_topic_name(webhook.topic):
        raise _refusal("'topic' is no topic's name")
    group, name = (webhook.checks, "checks") if webhook.checks else (webhook.group, "group")
    if not 0 < len(group.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise _refusal(f"{name!r} has 1 to {MAX_NAME_BYTES} bytes")


def _refusal(detail: str) -> Refusal:
    return Refusal("invalid_body", detail)
