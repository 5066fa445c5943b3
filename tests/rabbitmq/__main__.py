"""Compare the AMQP door with Debian's rabbitmq-server, refusal by refusal: code, text, and what each ends.

    python -m tests.rabbitmq            start both, ask both, print where they differ and no reason is given
    python -m tests.rabbitmq --write    and keep RabbitMQ's answers in answers.json, for tests without a RabbitMQ

Where they may differ, and why, stands in `differences`.
"""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from bench.rabbitmq import start_rabbitmq
from bench.servers import start_hub, work_folder
from tests.rabbitmq.asking import ask
from tests.rabbitmq.differences import DIFFERENCES

ANSWERS: Final = Path(__file__).with_name("answers.json")
PLUGINS: Final = ("rabbitmq_consistent_hash_exchange",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep RabbitMQ's answers")
    options = parser.parse_args()
    with work_folder() as folder:
        hub = start_hub(folder / "hub", doors=("amqp",))
        try:
            rabbit = start_rabbitmq(folder / "rabbitmq", PLUGINS)
            try:
                theirs, ours = ask(rabbit.ports["amqp"]), ask(hub.ports["amqp"])
            finally:
                rabbit.stop()
        finally:
            hub.stop()
    if options.write:
        ANSWERS.write_text(json.dumps(theirs, indent=1, ensure_ascii=False) + "\n")
    wrong = [name for name, said in theirs.items()
             if ours[name] != (DIFFERENCES[name].ours if name in DIFFERENCES else said)]
    for name in wrong:
        print(f"{name}\n  RabbitMQ  {theirs[name]}\n  hub       {ours[name]}")
    print(f"{len(theirs)} cases, {len(DIFFERENCES)} differ for a reason, {len(wrong)} without one")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
