"""The log by configuration: how much of it, and in which form."""
from __future__ import annotations

import json
import logging
from pathlib import Path

from gatehouse.logs import JsonLines
from tests.running_hub import RunningHub, config_of


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("gatehouse.gateways", logging.INFO, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def test_a_line_is_one_object_with_what_it_tells_of() -> None:
    line = json.loads(JsonLines().format(record("%s said\n%s", "a peer", "no", fields={"door": "amqp", "peer": "x"})))
    assert (line["level"], line["logger"], line["message"]) == ("info", "gatehouse.gateways", "a peer said\nno")
    assert (line["door"], line["at"][-1], len(line["at"])) == ("amqp", "Z", 24)


def test_a_fault_has_its_traceback_in_the_line() -> None:
    try:
        raise ValueError("mine")
    except ValueError as error:
        made = record("failed")
        made.exc_info = (ValueError, error, error.__traceback__)
    said = JsonLines().format(made)
    assert "\n" not in said and "ValueError: mine" in json.loads(said)["traceback"]


def test_a_hub_writes_the_lines_that_its_configuration_asks_for(tmp_path: Path) -> None:
    hub = RunningHub(tmp_path, '[hub]\nlog_format = "json"\n' + config_of(("http",)))
    hub.wait_ready()
    code, said = hub.stop()
    lines = [json.loads(line) for line in said.splitlines()]
    assert code == 0 and any(line["message"] == "stopped" for line in lines)


def test_what_is_less_than_the_level_is_not_told(tmp_path: Path) -> None:
    hub = RunningHub(tmp_path, '[hub]\nlog_level = "warning"\n' + config_of(("http",)))
    hub.wait_ready()
    assert " INFO " not in hub.stop()[1]
