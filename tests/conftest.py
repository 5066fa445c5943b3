"""For every test: Hypothesis tries the same examples in each run, others with GATEHOUSE_EXAMPLES=random (`make soak`);
how long an example takes says how busy the machine is, and nothing of what is tested.

And who runs what, where several processes share the tests: those that share something expensive stay in one of them.
"""
from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("random", settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("GATEHOUSE_EXAMPLES", "same"))
if settings.default.derandomize:
    # It makes examples of the constants in the modules that are loaded by now, too: others whenever other tests ran
    # before in this process, and where the modules are compiled.
    providers._get_local_constants = providers.Constants

# Spark looks up this machine's name to find its address; in a container nobody may know that name.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

# What takes longest begins first: a process that has nothing left waits for the last of them.
FIRST = ("tests/spark/", "tests/openapi/", "tests/house/", "tests/gatehouse/demo/", "tests/simulation/",
         "tests/faults/", "tests/relay/", "tests/interop/", "tests/gateways/test_copying_port.py", "tests/console/")

# One Spark, and one more for the tests that kill Sparks of their own; one browser; each file is parsed once for the
# tests of the house. Each test of a simulator is alone:
# they take long, and share nothing.
TOGETHER = {
    "tests/spark/test_faults.py": "killed Sparks", "tests/spark/jobs/test_archive_faults.py": "killed Sparks",
    "tests/spark/": "Spark", "tests/gatehouse/demo/": "killed Sparks", "tests/console/": "browser",
    "tests/house/": "house"}
ALONE = ("tests/simulation/", "tests/relay/test_simulation.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by FIRST; the rest stays as it was collected."""
    ranks = {folder: rank for rank, folder in enumerate(FIRST)}
    items.sort(key=lambda item: min((rank for folder, rank in ranks.items() if item.nodeid.startswith(folder)),
                                    default=len(FIRST)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in which networks the tests of links ran: who has no network namespaces has tested less."""
    kinds = Counter(value for reports in terminalreporter.stats.values() for report in reports
                    if getattr(report, "when", "") == "call"
                    for name, value in report.user_properties if name == "networks")
    for kind, count in sorted(kinds.items()):
        terminalreporter.write_line(f"two networks: {kind} ({count} tests)")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How `make test` shares the tests out."""
    return Sharing(config, log)


class Sharing(LoadScopeScheduling):
    """A process that has nothing left takes the next file, so what a file's tests share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ALONE):
            return nodeid
        return next((name for start, name in TOGETHER.items() if nodeid.startswith(start)), nodeid.partition("::")[0])


# Processes that tests start find the packages where this one does: in the wheel that `make test` runs on, or here.
os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
