"""Revocation lists: what is read of a file, and whom it takes back."""
from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate

from gatehouse.gateways.tls.certificates import ends_of, find_revoked
from tests.certificates import Authority, Pair


def der(pair: Pair) -> bytes:
    return load_pem_x509_certificate(pair.cert.read_bytes()).public_bytes(Encoding.DER)


def test_a_list_takes_back_its_own_authoritys_certificates(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    own, other = Authority(tmp_path), Authority(tmp_path / "other", "Other")
    good, bad, foreign = own.issue("good"), own.issue("bad"), other.issue("foreign")
    list_of_own, list_of_other = own.revoke(bad, foreign), other.revoke(file="b")
    shown = {1: der(good), 2: der(bad), 7: der(foreign)}
    assert find_revoked([str(list_of_own), str(list_of_other), str(tmp_path / "missing")], shown) == [2]
    both = tmp_path / "both.crl"
    both.write_bytes(b"a line of text\n" + list_of_other.read_bytes() + other.revoke(foreign).read_bytes())
    assert find_revoked([str(both)], shown) == [7], "several in one file, the newer behind the older"
    assert find_revoked([], shown) == []


def test_until_when_a_list_is_good(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    soon, late = authority.revoke(ends=timedelta(days=1), file="a"), authority.revoke(ends=timedelta(days=9), file="b")
    both = tmp_path / "both"
    both.write_bytes(late.read_bytes() + soon.read_bytes())
    (end,) = ends_of(both).values()
    assert timedelta(days=8) < end - datetime.now(UTC) < timedelta(days=10)
