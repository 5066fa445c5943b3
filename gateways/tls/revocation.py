"""Revocation lists of `client_crl` (RFC 5280, 5): what is wrong with a file of them, until when it is good, and which
certificates it takes back.

OpenSSL checks a client's own certificate against them in its handshake, and refuses every certificate of an authority
whose list is missing or out of date: who cannot tell what was revoked lets nobody in.
"""
from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.x509 import CertificateRevocationList

BEGIN: Final = b"-----BEGIN X509 CRL-----"
END: Final = b"-----END X509 CRL-----"
MAX_FILE_BYTES: Final = 64 << 20


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
