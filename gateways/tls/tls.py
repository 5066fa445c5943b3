"""TLS of one listener: its settings, and the context that its connections are made with.

TLS 1.2 and 1.3, the ciphers that Python and OpenSSL hold to be good, no compression, no renegotiation. A context is
made anew at every reload, so that what a certificate authority no longer stands for is not resumed either.
"""
from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from gatehouse.gateways.tls.certificates import add_lists, ends_ms_of, ends_of, issuer_of

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """`tls = { ... }` of a listener, or of a door for all of its listeners. Files are PEM."""

    cert: str = field(metadata={
        "help": "File with the certificate, followed by those that lead to the authority that clients know."})
    key: str = field(metadata={"help": "File with its private key, without a pass phrase."})
    client_ca: str | None = field(default=None, metadata={
        "help": "File with the authorities whose client certificates are believed; left out, none are asked for."})
    client_required: bool = field(default=False, metadata={
        "help": "Whether a client without a certificate is refused; otherwise it may log in by other means."})
    client_crl: str | None = field(default=None, metadata={
        "help": "File with the revocation lists of those authorities that sign clients' certificates; a certificate "
                "that is on one, or whose authority has none that is up to date, is refused. Left out, nothing is "
                "looked up."})
    min_version: str = field(default="1.2", metadata={
        "choices": tuple(VERSIONS), "help": "The lowest version of TLS that is spoken."})
    handshake_timeout_s: float = field(default=10.0, metadata={
        "min": 0.1, "max": 600.0, "help": "Seconds in which a client must have finished its handshake."})

    def __post_init__(self) -> None:
        if self.client_required and self.client_ca is None:
            raise ValueError("client_required needs client_ca: the authorities whose certificates are believed")
        if self.client_crl is not None and self.client_ca is None:
            raise ValueError("client_crl needs client_ca: the authorities whose certificates are believed")


class TlsFault(Exception):
    """A file of a TLS table cannot be used. `setting` is the table's key, the text says why."""

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


class Resumed:
    """What OpenSSL does not look at again where a client goes on with an earlier session: whether its certificate has
    run out since, or the list of its authority. `wall_ms` is the time since 1970."""

    def __init__(self, settings: TlsSettings, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._list_ends: dict[str, datetime] = {}
        if settings.client_crl is not None:
            with contextlib.suppress(ValueError, OSError):           # which its context has read
                self._list_ends = ends_of(Path(settings.client_crl))

    def is_good(self, tls: ssl.SSLObject) -> bool:
        """Whether a client that has resumed a session may be let in."""
        shown, now_ms = tls.getpeercert(binary_form=True), self._wall_ms()
        if not shown:
            return True
        list_ends = self._list_ends.get(issuer_of(shown)) if self._list_ends else None
        return ends_ms_of(tls.getpeercert()) > now_ms and (list_ends is None or list_ends.timestamp() * 1000 > now_ms)


def server_context(settings: TlsSettings, alpn: Sequence[str] = (), *, tickets: bool = True) -> ssl.SSLContext:
    """The context of a listener, its files read. `alpn` names what is spoken inside. `tickets`: whether
    clients are given what they may resume a session of TLS 1.3 with. Raises TlsFault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if alpn:
        context.set_alpn_protocols(alpn)
    if not tickets:
        context.num_tickets = 0
    _load_certificate(context, settings)
    if settings.client_ca is not None:
        _load_authorities(context, settings.client_ca)
        if settings.client_crl is not None:
            _load_lists(context, settings.client_crl)
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_required else ssl.CERT_OPTIONAL
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for setting, name in (("cert", settings.cert), ("key", settings.key)):
        _check_readable(setting, name)
    try:
        context.load_cert_chain(settings.cert, settings.key, password=_no_pass_phrase)
    except _NeedsPassPhrase:
        raise TlsFault("key", f"{settings.key} is protected by a pass phrase; give a key without one") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFault("key", f"{settings.key} is not the key of {settings.cert}") from None
        reason = error.reason or "no PEM file"
        raise TlsFault("cert", f"{settings.cert} and {settings.key} are no certificate and key in PEM ({reason})"
                       ) from None


def _load_authorities(context: ssl.SSLContext, name: str) -> None:
    _check_readable("client_ca", name)
    try:
        context.load_verify_locations(name)
    except ssl.SSLError as error:
        raise TlsFault("client_ca", f"{name} holds no certificates in PEM ({error.reason})") from None


def _load_lists(context: ssl.SSLContext, name: str) -> None:
    _check_readable("client_crl", name)
    try:
        add_lists(context, name)
    except (ValueError, OSError) as error:               # of which ssl.SSLError is one
        raise TlsFault("client_crl", f"{name} cannot be used: {error}") from None


def _check_readable(setting: str, name: str) -> None:
    try:
        with open(name, "rb"):
            pass
    except OSError as error:
        raise TlsFault(setting, f"cannot read {name}: {error.strerror}") from None


class _NeedsPassPhrase(Exception):
    pass


def _no_pass_phrase() -> str:
    """Without this OpenSSL would ask on the terminal."""
    raise _NeedsPassPhrase
