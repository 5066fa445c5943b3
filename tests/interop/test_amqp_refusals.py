"""What the AMQP door says to each of the cases of `tests.rabbitmq`, beside what RabbitMQ said to them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import tests.rabbitmq
from tests.rabbitmq.asking import Answers, ask
from tests.rabbitmq.cases import CASES, LOGINS
from tests.rabbitmq.differences import DIFFERENCES
from tests.running_hub import running_hub

THEIRS: Answers = json.loads(Path(tests.rabbitmq.__file__).with_name("answers.json").read_text())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with running_hub(tmp_path_factory.mktemp("hub"), "amqp") as hub:
        answers = ask(hub.port("amqp"))
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said
        return answers


def test_every_case_was_asked_of_rabbitmq() -> None:
    assert [*CASES, *(f"login: {name}" for name in LOGINS)] == list(THEIRS)
    assert DIFFERENCES.keys() <= THEIRS.keys()


@pytest.mark.parametrize("name", THEIRS)
def test_the_door_answers_as_rabbitmq(name: str, ours: Answers) -> None:
    if name in DIFFERENCES:
        assert ours[name] == DIFFERENCES[name].ours != THEIRS[name]
    else:
        assert ours[name] == THEIRS[name]
