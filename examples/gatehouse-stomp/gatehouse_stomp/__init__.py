"""The STOMP 1.2 door: an example of a door from outside."""
from __future__ import annotations

from gatehouse.gateways.contract import GatewaySpec
from gatehouse_stomp.column import SPELLING, STOMP
from gatehouse_stomp.session import StompConfig, StompSession

GATEWAY = GatewaySpec(name="stomp", contract=1, config=StompConfig, default_listen=("127.0.0.1:61613",),
                      session=StompSession, columns=(STOMP,), spelling=SPELLING)
