"""What a certificate says: the name of a client's and when it ends, and until when a file's is valid; and which of them
revocation lists take back.

A rule (`[auth] certificate_user`) says which part of a verified client certificate is its user's name:

    cn          the common name of the subject
    san_dns     the first DNS name of the subject's alternative names; likewise san_email and san_uri
    a template  with those and `o`, `ou`, `serial` in braces: "{ou}/{cn}"

A certificate that lacks a part, or whose name is no printable text of at most `NAME_CHARACTERS_MAX`, has no name.

Of the lists of `client_crl` (RFC 5280, 5) it is said what is wrong with a file of them, and until when it is good.
OpenSSL checks a client's own certificate against them in its handshake, and refuses every certificate of an authority
whose list is missing or out of date: who cannot tell what was revoked lets nobody in.
"""
from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.x509 import CertificateRevocationList

NAME_CHARACTERS_MAX: Final = 256
SUBJECT: Final = {"cn": "commonName", "o": "organizationName", "ou": "organizationalUnitName"}
ALTERNATIVE: Final = {"san_dns": "DNS", "san_email": "email", "san_uri": "URI"}
PLAIN_RULES: Final = ("cn", *ALTERNATIVE)
PARTS: Final = (*SUBJECT, *ALTERNATIVE, "serial")

_PART: Final = re.compile(r"\{([^{}]*)\}")

PeerCertificate = Mapping[str, Any]
"""A peer's certificate as `ssl.SSLSocket.getpeercert` gives it; empty where the peer showed none or it was not
verified."""

BEGIN: Final = b"-----BEGIN X509 CRL-----"
END: Final = b"-----END X509 CRL-----"
MAX_FILE_BYTES: Final = 64 << 20


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


def read_lists(file: Path) -> list[CertificateRevocationList]:
    """The lists in a PEM file. Raises ValueError that says what is wrong with it, OSError."""
    from cryptography import x509  # only a hub with TLS spends the memory
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
    if b"-----BEGIN " in content.replace(BEGIN, b""):
        raise ValueError("it holds something else than revocation lists")     # a certificate there would be believed
    try:
        lists = [x509.load_pem_x509_crl(BEGIN + part.partition(END)[0] + END + b"\n")
                 for part in content.split(BEGIN)[1:]]
    except ValueError:
        lists = []
    if not lists:
        raise ValueError("it holds no revocation lists in PEM")
    return lists


def add_lists(context: ssl.SSLContext, file: str) -> None:
    """Have a context check clients' certificates against the lists. Raises ValueError, OSError, ssl.SSLError."""
    read_lists(Path(file))
    context.load_verify_locations(file)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF  # decision 100


def ends_of(file: Path) -> dict[str, datetime]:
    """Until when the list of each authority is good, the newest of several. Raises ValueError, OSError."""
    ends: dict[str, datetime] = {}
    for revocations in read_lists(file):
        if revocations.next_update_utc is not None:
            issuer = revocations.issuer.rfc4514_string()
            ends[issuer] = max(revocations.next_update_utc, ends.get(issuer, revocations.next_update_utc))
    return ends


def issuer_of(certificate: bytes) -> str:
    """Who has signed a certificate (DER), as `ends_of` names authorities."""
    from cryptography import x509
    return x509.load_der_x509_certificate(certificate).issuer.rfc4514_string()


def find_revoked(files: Iterable[str], certificates: Mapping[int, bytes]) -> list[int]:  # decision 100
    """The keys of those certificates (DER) that some list takes back. Takes 30 µs a certificate.

    A file that cannot be read takes none back: the reload that came upon it has said so.
    """
    from cryptography import x509
    lists: list[CertificateRevocationList] = []
    for file in files:
        with contextlib.suppress(ValueError, OSError):
            lists += read_lists(Path(file))
    read = {key: x509.load_der_x509_certificate(shown) for key, shown in certificates.items()}
    return [key for key, certificate in read.items() if any(
        some.issuer == certificate.issuer
        and some.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None
        for some in lists)]
