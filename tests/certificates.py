"""Certificates for tests, made when they run: an authority of its own, and what it signs. Elliptic keys are quick."""
from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

YEAR = timedelta(days=365)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    cert: Path
    key: Path

    def toml(self, more: str = "") -> str:
        """The TLS table of a hub that shows this certificate; `more` are further settings."""
        return f'{{ cert = "{self.cert}", key = "{self.key}"{", " + more if more else ""} }}'


class Authority:
    """Signs certificates; everything lies in `folder`, its own certificate in `file`."""

    def __init__(self, folder: Path, name: str = "Test Authority") -> None:
        self.folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key, datetime.now(UTC) - YEAR, datetime.now(UTC) + YEAR)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, dns: str | None = None, begins: timedelta = -YEAR, ends: timedelta = YEAR,
              email: str | None = None, uri: str | None = None, unit: str | None = None,
              file: str | None = None) -> Pair:
        """A certificate for `name`, valid from `begins` until `ends` counted from now."""
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if unit is not None:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        others: list[x509.GeneralName] = [x509.DNSName(dns)] if dns else []
        others += [x509.RFC822Name(email)] if email else []
        others += [x509.UniformResourceIdentifier(uri)] if uri else []
        builder = self._builder(x509.Name(subject), key, now + begins, now + ends)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return self._write(file or name, certificate, key)

    def server(self, ends: timedelta = YEAR, file: str = "server", addresses: Sequence[str] = ()) -> Pair:
        """A certificate for a hub on this machine's loopback, and on these addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), key,
                                datetime.now(UTC) - YEAR, datetime.now(UTC) + ends)
        names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(address))
                                              for address in sorted({"127.0.0.1", *addresses}))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return self._write(file, builder.sign(self._key, hashes.SHA256()), key)

    def revoke(self, *pairs: Pair, ends: timedelta = YEAR, file: str = "revoked") -> Path:
        """A list of these certificates, good until then; put in place by renaming."""
        now = datetime.now(UTC)
        builder = (x509.CertificateRevocationListBuilder().issuer_name(self._name).last_update(now - YEAR)
                   .next_update(now + ends))
        for pair in pairs:
            serial = x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number
            builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder().serial_number(serial)
                                                      .revocation_date(now).build())
        path = self.folder / f"{file}.crl"
        fresh = path.with_suffix(".new")
        fresh.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        fresh.replace(path)
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime,
                 ends: datetime) -> x509.CertificateBuilder:
        return (x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
                .serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends))

    def _write(self, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        """Put in place by renaming, as tools that renew certificates do."""
        pair = Pair(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                    serialization.NoEncryption())
        for path, content in ((pair.cert, certificate.public_bytes(serialization.Encoding.PEM)), (pair.key, private)):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            fresh.replace(path)
        return pair
