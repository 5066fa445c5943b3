"""What a certificate says: the name of a client's and when it ends, and until when a file's is valid.

A rule (`[auth] certificate_user`) says which part of a verified client certificate is its user's name:

    cn          the common name of the subject
    san_dns     the first DNS name of the subject's alternative names; likewise san_email and san_uri
    a template  with those and `o`, `ou`, `serial` in braces: "{ou}/{cn}"

A certificate that lacks a part, or whose name is no printable text of at most `NAME_CHARACTERS_MAX`, has no name.
"""
from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

NAME_CHARACTERS_MAX: Final = 256
SUBJECT: Final = {"cn": "commonName", "o": "organizationName", "ou": "organizationalUnitName"}
ALTERNATIVE: Final = {"san_dns": "DNS", "san_email": "email", "san_uri": "URI"}
PLAIN_RULES: Final = ("cn", *ALTERNATIVE)
PARTS: Final = (*SUBJECT, *ALTERNATIVE, "serial")

_PART: Final = re.compile(r"\{([^{}]*)\}")

PeerCertificate = Mapping[str, Any]
"""A peer's certificate as `ssl.SSLSocket.getpeercert` gives it; empty where the peer showed none or it was not
verified."""


def check_rule(rule: str) -> None:
    """Raises ValueError that says what a rule may be."""
    if rule in PLAIN_RULES:
        return
    parts = set(_PART.findall(rule))
    if not parts or not parts <= set(PARTS) or "{" in _PART.sub("", rule) or "}" in _PART.sub("", rule):
        raise ValueError(f"{rule!r} is none of {', '.join(PLAIN_RULES)} and no template of them, like '{{ou}}/{{cn}}' "
                         f"(parts are {', '.join(PARTS)})")


def name_in(certificate: PeerCertificate | None, rule: str) -> str | None:
    """The user's name in a verified certificate, or None."""
    if not certificate:
        return None
    template = f"{{{rule}}}" if rule in PLAIN_RULES else rule
    parts = {part: _part(certificate, part) for part in _PART.findall(template)}
    if not all(parts.values()):
        return None
    name = _PART.sub(lambda match: parts[match[1]], template)
    return name if name.isprintable() and len(name) <= NAME_CHARACTERS_MAX else None


def ends_ms_of(certificate: PeerCertificate | None) -> int:
    """When a verified certificate is no longer good, in ms since 1970, as OpenSSL sees it; 0 where there is none."""
    return ssl.cert_time_to_seconds(certificate["notAfter"]) * 1000 if certificate else 0


def _part(certificate: PeerCertificate, part: str) -> str:
    if part == "serial":
        return str(certificate.get("serialNumber", ""))
    if part in ALTERNATIVE:
        names = certificate.get("subjectAltName", ())
        return next((str(value) for kind, value in names if kind == ALTERNATIVE[part]), "")
    wanted = SUBJECT[part]
    return next((str(value) for level in certificate.get("subject", ()) for kind, value in level if kind == wanted), "")


def validity(file: Path) -> tuple[datetime, datetime]:
    """From when until when the first certificate in a PEM file is valid. Raises ValueError, OSError."""
    from cryptography import x509  # only a hub with TLS spends the memory
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc
