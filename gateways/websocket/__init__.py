"""WebSocket as a link for byte-stream doors: their packets in binary frames, by the HTTP door's listeners.

    codec.py     bytes of frames in, payload out, and back (RFC 6455 section 5). Pure.
    session.py   a `contract.Session` round the door's own. Pure.
    opening.py   the HTTP request that becomes a connection of the door
"""
