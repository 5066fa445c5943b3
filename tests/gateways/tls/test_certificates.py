"""The name of a user in a certificate."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.tls.certificates import NAME_CHARACTERS_MAX, check_rule, ends_ms_of, name_in

CERTIFICATE: dict[str, Any] = {      # as ssl.SSLSocket.getpeercert gives it
    "subject": ((("organizationName", "Plant"),), (("organizationalUnitName", "line1"),), (("commonName", "s7"),)),
    "subjectAltName": (("DNS", "s7.example"), ("DNS", "other.example"), ("email", "s7@example"),
                       ("URI", "spiffe://plant/s7"), ("IP Address", "127.0.0.1")),
    "serialNumber": "0A1B",
}


@pytest.mark.parametrize(("rule", "name"), [
    ("cn", "s7"), ("san_dns", "s7.example"), ("san_email", "s7@example"), ("san_uri", "spiffe://plant/s7"),
    ("{cn}", "s7"), ("{o}/{ou}/{cn}", "Plant/line1/s7"), ("device-{serial}", "device-0A1B"),
])
def test_rules(rule: str, name: str) -> None:
    check_rule(rule)
    assert name_in(CERTIFICATE, rule) == name


@pytest.mark.parametrize("rule", ["", "common", "{", "}", "{}", "{0}", "plain", "{cn", "{cn.x}", "{{cn}}", "{cn[0]}",
                                  "{cn!r}", "{cn:>10}", "{nobody}", "{cn}{cn.__class__}"])
def test_what_is_no_rule(rule: str) -> None:
    with pytest.raises(ValueError, match="is none of cn, san_dns"):
        check_rule(rule)


@pytest.mark.parametrize(("text", "ends_ms"), [
    ("Jan  1 00:00:00 1970 GMT", 0), ("Nov 22 16:16:48 2026 GMT", 1_795_364_208_000),
    ("Dec 31 23:59:59 9999 GMT", 253_402_300_799_000)])
def test_when_a_certificate_ends(text: str, ends_ms: int) -> None:
    assert ends_ms_of({**CERTIFICATE, "notAfter": text}) == ends_ms


def test_no_certificate_has_no_end() -> None:
    assert ends_ms_of(None) == ends_ms_of({}) == 0


@pytest.mark.parametrize("certificate", [
    None, {}, {"subject": ()}, {"subject": ((("commonName", ""),),)}, {"subject": ((("commonName", "a\nb"),),)},
    {"subject": ((("commonName", "a\0b"),),)}, {"subject": ((("commonName", "x" * (NAME_CHARACTERS_MAX + 1)),),)},
    {"subject": ((("organizationName", "Plant"),),)},
])
def test_a_certificate_without_a_usable_name_names_nobody(certificate: dict[str, Any] | None) -> None:
    assert name_in(certificate, "cn") is None


def test_a_template_needs_all_of_its_parts() -> None:
    assert name_in({"subject": ((("commonName", "s7"),),)}, "{ou}/{cn}") is None
