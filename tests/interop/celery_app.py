"""A Celery application as somebody would write it for RabbitMQ 4: quorum queues, tasks that are acknowledged when they
are done. Only the address is another one. Started by `test_celery`, which names it."""
from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

app = Celery("work", broker=os.environ["BROKER_URL"], backend=os.environ["RESULT_BACKEND"])
app.conf.update(
    task_default_queue="work", task_default_queue_type="quorum", task_default_exchange_type="topic",
    worker_detect_quorum_queues=True, broker_native_delayed_delivery_queue_type="quorum",
    broker_transport_options={"confirm_publish": True}, task_acks_late=True, task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task
def add(one, other):
    return one + other


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def third_time(self):
    """Fails twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    return self.request.retries


@app.task
def noted(path):
    """Leaves a line when it begins, and one when it may be done: once there is another file beside it."""
    with Path(path).open("a") as file:
        file.write("begun\n")
    while not Path(path).with_suffix(".go").exists():
        time.sleep(0.05)
    with Path(path).open("a") as file:
        file.write("done\n")
