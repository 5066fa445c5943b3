"""For every test: Hypothesis tries the same examples in each run, others with GATEHOUSE_EXAMPLES=random (`make soak`);
how long an example takes says how busy the machine is, and nothing of what is tested."""
from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("random", settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("GATEHOUSE_EXAMPLES", "same"))
if settings.default.derandomize:
    # It makes examples of the constants in the modules that are loaded by now, too: others whenever other tests ran
    # before in this process, and where the modules are compiled.
    providers._get_local_constants = providers.Constants

# Spark looks up this machine's name to find its address; in a container nobody may know that name.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

# What takes longest begins first, and what needs Spark stays together: two processes end at about the same time.
FIRST = ("tests/spark/", "tests/openapi/", "tests/simulation/", "tests/gatehouse/demo/", "tests/faults/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by FIRST; the rest stays as it was collected."""
    ranks = {folder: rank for rank, folder in enumerate(FIRST)}
    items.sort(key=lambda item: min((rank for folder, rank in ranks.items() if item.nodeid.startswith(folder)),
                                    default=len(FIRST)))


# Processes that tests start find the packages where this one does: in the wheel that `make test` runs on, or here.
os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
