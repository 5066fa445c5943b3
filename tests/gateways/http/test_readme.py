"""What users are told agrees with the code."""
from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import gatehouse.gateways.http
from gatehouse.gateways.admission.admission import Denied, NotAuthenticated
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.problems import PROBLEMS
from gatehouse.gateways.http.routes import build_table
from gatehouse.kernel import errors

README = (Path(gatehouse.gateways.http.__file__).parent / "README.md").read_text()
NOT_HERE = {"kernel_error", "out_of_order_sequence", "fenced_producer",
            "group_full", "member_id_required", "unknown_member", "fenced_member", "stale_generation",
            "rebalancing", "inconsistent_protocol", "unknown_place", "fenced_epoch", "stale_epoch", "instance_taken",
            "unknown_assignor", "invalid_pattern", "session_refused", "too_many_sessions", "too_many_subscriptions",
            "too_many_received", "other_producer", "no_transaction", "transaction_ending", "invalid_timeout"}
"""Codes that no call of this door can end in: they belong to idempotent and transactional producers, to members of
groups that share out partitions, to guards, and to clients whose sessions outlive their connections."""


def test_every_call_is_in_the_readme() -> None:
    for endpoint in build_table().endpoints:
        assert endpoint.pattern.replace("...", "") in README


def test_every_problem_is_explained() -> None:
    for code, problem in PROBLEMS.items():
        assert 400 <= problem.status < 600
        assert problem.title
        assert problem.help.endswith("."), code


def test_every_refusal_of_the_kernel_and_of_admission_has_its_status() -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.KernelError)]
    for code in (*(kind.code for kind in kinds), Denied.code, NotAuthenticated.code):
        assert (code in PROBLEMS) != (code in NOT_HERE), code


def test_every_setting_is_explained_and_bounded() -> None:
    for setting in fields(HttpConfig):
        assert setting.metadata["help"].endswith(".")
        assert isinstance(setting.default, bool | tuple) or "min" in setting.metadata
