"""`GET /v1/ws`: publish, subscribe, pop and settle over one connection, in JSON frames (`docs/http-streams.md`).

    handshake.py      the HTTP request that becomes a WebSocket
    frames.py         what a frame says, and what is wrong with one
    connection.py     one client: reads frames, publishes, writes answers
    requests.py       the frames that take a while: pop, ack, extend, release
    subscription.py   what a client is sent as far as its credit goes: one stream, the checks of a group

WebSocket frames as bytes are in `gateways/websocket/codec.py`.
"""
