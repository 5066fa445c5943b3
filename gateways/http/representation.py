"""In which form a client is answered, and which form it has already: media types, content codings and entity tags (RFC
9110, 8, 12 and 13). Pure.

What is large enough and worth it is compressed for who asks: zstd (RFC 8878) before gzip. A message's own bytes never
are, nor is what a stream writes, or what has a strong tag. `Content-Encoding` of a published value is a property of the
message and is kept with it; of a document (JSON, structured CloudEvents) it is the document's, and undone here, up to a
bound.

An entity tag tells whether a client has the answer already. Changes that are made only to what their sender has seen
(`If-Match`, `If-None-Match`) ask by strong tags, made of the document that is shown. Users and rules show settings
alone. Topics, groups and webhooks show how they do, too, so their tags have two parts:

    "DEFINITION"            a user, a rule
    "DEFINITION.ALL"        a topic, a group, a webhook

Who asks for it again has it if the whole tag is the same; a change asks about the definition alone, which a message
more or less does not touch. On other paths what would change something refuses both.
"""
from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson
import zstandard

from gatehouse.gateways.http.problems import Refusal

# --- media types --------------------------------------------------------------------------------------------------

_QUALITY: Final = re.compile(r";\s*q\s*=\s*(0(\.\d{0,3})?|1(\.0{0,3})?)\s*(;|$)", re.I | re.ASCII)
MAX_RANGES: Final = 64
"""The most ranges of one header that are read; those behind them count as not said."""


def accepts(accept: str, offered: Collection[str]) -> bool:
    """Whether an `Accept` header takes one of these media types. Of ranges that match, the most specific counts
    (12.5.1); what cannot be read is passed over."""
    ranges = [_range(part) for part in accept.split(",")[:MAX_RANGES]]
    return any(_quality(ranges, media) > 0 for media in offered)


def _range(part: str) -> tuple[str, float]:
    match = _QUALITY.search(part)
    return part.partition(";")[0].strip().lower(), float(match.group(1)) if match else 1.0


def _quality(ranges: list[tuple[str, float]], media: str) -> float:
    kind = media.partition("/")[0]
    for wanted in (media, f"{kind}/*", "*/*"):
        for name, quality in ranges:
            if name == wanted:
                return quality
    return 0.0


# --- content codings ----------------------------------------------------------------------------------------------

ZSTD: Final = "zstd"
GZIP: Final = "gzip"
IDENTITY: Final = "identity"
GZIP_LEVEL: Final = 1
ZSTD_LEVEL: Final = 1
GZIP_BITS: Final = 31                    # a window of 32 KiB and gzip's header
MAX_ZSTD_WINDOW: Final = 8 << 20         # RFC 8878, 3.1.1.1.2 recommends that decoders take at least 8 MB
TAG_BYTES: Final = 12
COMPRESSED_TYPES: Final = re.compile(r"application/([a-z.+-]*json|javascript)|text/|image/svg\+xml")
TAGGED: Final = frozenset(("/v1/topics", "/v1/topics/{topic}", "/v1/groups", "/v1/groups/{group}", "/v1/queues",
                           "/v1/queues/{queue}", "/v1/retained/{address...}", "/ui/{path...}"))
"""What is asked for again and again and often is the same."""

_CODING: Final = re.compile(r"\s*([a-z0-9*-]+)\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?)\s*)?")


def choose(accept_encoding: str) -> str | None:
    """The coding that who asked wants best of those that are known here; None: none of them."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        match = _CODING.fullmatch(part)
        if match is not None:
            weights[match[1]] = float(match[2] or 1)
    codings = {coding: weights.get(coding, weights.get("*", 0.0) if coding == GZIP else 0.0) for coding in (ZSTD, GZIP)}
    best = max(codings, key=lambda coding: codings[coding])  # of equals the first
    return best if codings[best] > 0 else None


def encode(body: bytes, coding: str) -> bytes:
    """The body in a coding."""
    if coding == ZSTD:
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
    return compressor.compress(body) + compressor.flush()


def decode(body: bytes, content_encoding: str, max_bytes: int) -> bytes:
    """A document as it was before it was coded. Refuses `unsupported_media_type`, `invalid_body`, `body_too_large`."""
    coding = content_encoding.strip().lower()
    if coding in ("", IDENTITY):
        return body
    if coding not in (GZIP, ZSTD):
        raise Refusal("unsupported_media_type", f"a document is sent as it is, or as {GZIP} or {ZSTD}",
                      headers={"Accept-Encoding": f"{GZIP}, {ZSTD}"})
    try:
        decoded = _gunzip(body, max_bytes) if coding == GZIP else _unzstd(body, max_bytes)
    except (zlib.error, zstandard.ZstdError):
        raise Refusal("invalid_body", f"the body is no {coding}") from None
    if len(decoded) > max_bytes:
        raise Refusal("body_too_large", f"the document has more than {max_bytes} bytes", max_body_bytes=max_bytes)
    return decoded


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(GZIP_BITS)
    decoded = decompressor.decompress(body, max_bytes + 1)
    if len(decoded) <= max_bytes and (not decompressor.eof or decompressor.unused_data):
        raise zlib.error("cut, or followed by something")
    return decoded


def _unzstd(body: bytes, max_bytes: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    with decompressor.stream_reader(body, read_across_frames=True) as reader:
        decoded = bytes(reader.read(max_bytes + 1))
    if len(decoded) <= max_bytes:
        _check_whole(decompressor, body)
    return decoded


def _check_whole(decompressor: zstandard.ZstdDecompressor, body: bytes) -> None:
    """The reader takes the beginning of a frame for all of it: an empty document, say, which means something."""
    rest = body
    while rest or not body:
        frame = decompressor.decompressobj()
        frame.decompress(rest)
        if not frame.eof:
            raise zstandard.ZstdError("cut")
        rest = frame.unused_data


# --- entity tags --------------------------------------------------------------------------------------------------

WEAK: Final = "W/"


def tag_of(body: bytes) -> str:
    """The weak entity tag of an answer: the same words in another coding are the same."""
    return f'{WEAK}"{blake2b(body, digest_size=TAG_BYTES).hexdigest()}"'


def matches(if_none_match: str, tag: str) -> bool:
    """Whether the client has it already (RFC 9110, 13.1.2: weak comparison)."""
    opaque = tag.removeprefix(WEAK)
    return any(entry.strip().removeprefix(WEAK) in ("*", opaque) for entry in if_none_match.split(","))


MATCHED: Final = frozenset(("/v1/users/{name}", "/v1/acl/{id}", "/v1/limits/{id}", "/v1/topics/{topic}",
                            "/v1/groups/{group}", "/v1/webhooks/{webhook}"))
"""Paths whose answers have a strong tag, and whose changes ask about it."""


def strong_tag(*parts: bytes) -> str:  # decision 75
    """The strong ETag made of these bytes: of a definition, and perhaps of all that is shown."""
    return f'"{".".join([blake2b(part, digest_size=TAG_BYTES).hexdigest() for part in parts])}"'


def check_conditions(headers: Mapping[str, str], definition: Mapping[str, Any] | None) -> None:
    """Refuses `precondition_failed`. `definition` is what is there now; None: nothing."""
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    if wanted is None and unwanted is None:
        return
    tag = None if definition is None else strong_tag(orjson.dumps(definition))
    if wanted is not None and not _is_one_of(wanted, tag):
        raise Refusal("precondition_failed", "there is nothing to change" if tag is None
                      else "it is another by now; look at it again")
    if unwanted is not None and tag is not None and matches(",".join(_definitions(unwanted)), tag):
        raise Refusal("precondition_failed", "it is there already")


def _is_one_of(wanted: str, tag: str | None) -> bool:
    """13.1.1: strong comparison, so that a weak tag is never one."""
    return tag is not None and any(definition in ("*", tag) for definition in _definitions(wanted))


def _definitions(tags: str) -> Iterator[str]:
    """Tags of definitions alone."""
    for tag in tags.split(","):
        definition, dot, _ = tag.strip().partition(".")
        yield f'{definition}"' if dot else definition
