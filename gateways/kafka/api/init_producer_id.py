"""InitProducerId 0 to 5: a producer id for idempotent producing.

As in Kafka, a producer without a transactional id always gets a new id with epoch 0, even if it names the one it has.
With a transactional id it is refused, as FindCoordinator refuses it, where stock clients ask first.
"""
from __future__ import annotations

from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from gatehouse.gateways.kafka.error_codes import NONE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import Stored


class NewProducer:
    """Waits until the id is durable: an id that a restart could give again would merge two producers."""

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request = request

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            answer(self.request, code_of(stored.error))
        else:
            answer(self.request, NONE, stored.positions[0][0], 0)


def dispatch(request: Request) -> None:
    asked = request.decode(InitProducerIdRequest)
    if asked.transactional_id is not None:
        answer(request, TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    try:
        request.session.guard.new_producer_id(request.session, NewProducer(request))
    except KernelError as refusal:
        answer(request, code_of(refusal))


def answer(request: Request, error: int, producer_id: int = -1, producer_epoch: int = -1) -> None:
    request.answer(InitProducerIdResponse, throttle_time_ms=0, error_code=error, producer_id=producer_id,
                   producer_epoch=producer_epoch)


INIT_PRODUCER_ID = Api(key=22, name="InitProducerId", first_version=0, last_version=5, first_flexible=2,
                       dispatch=dispatch, message=InitProducerIdRequest)
