"""The HTTP door: publish with one request, read pages with a cursor, manage topics. See README.md for what it does not
do."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.contract import CONTRACT, GatewaySpec
from gatehouse.gateways.http.addresses import SPELLING
from gatehouse.gateways.http.column import HTTP
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.door import DOOR, NAME
from gatehouse.gateways.http.opening import connection_settings, encode_refusal, open_door, stop_door
from gatehouse.gateways.http.session import HttpSession

GATEWAY: Final = GatewaySpec(name=NAME, contract=CONTRACT, door=DOOR, config=HttpConfig,
                             default_listen=("127.0.0.1:8080",),
                             session=HttpSession, opened=open_door, stopping=stop_door,
                             connection_settings=connection_settings, refusal=encode_refusal, alpn=("http/1.1",),
                             reads_when_congested=True, columns=(HTTP,), spelling=SPELLING)
