"""What a client did that ends its channel or its connection, with AMQP's reply code (0-9-1, 1.2, "Constants").

A soft error closes the channel, a hard one the connection; which is which is the specification's. Texts are
`NAME - what was wrong`, as RabbitMQ writes them, because clients and people look for those.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.errors import CreateDenied, KernelError

NO_METHOD: Final = (0, 0)

SOFT: Final = {
    311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 313: "NO_CONSUMERS", 403: "ACCESS_REFUSED", 404: "NOT_FOUND",
    405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED",
}
HARD: Final = {
    320: "CONNECTION_FORCED", 402: "INVALID_PATH", 501: "FRAME_ERROR", 502: "SYNTAX_ERROR", 503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME", 506: "RESOURCE_ERROR", 530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
NAMES: Final = SOFT | HARD
REPLY_TEXT_BYTES_MAX: Final = 255      # a short string


class AmqpError(Exception):
    """Closes the channel if it is a ChannelFault, else the connection.

    `method` is what the client had asked (class, method), (0, 0) until somebody who knows sets it.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{NAMES[code]} - {text}")
        self.code = code
        self.method = NO_METHOD

    @property
    def reply_text(self) -> str:
        """Cut to what a short string holds, never within a character."""
        return str(self).encode()[:REPLY_TEXT_BYTES_MAX].decode(errors="ignore")


class ChannelFault(AmqpError):
    """A soft error: the channel is closed, the connection lives on."""


class ConnectionFault(AmqpError):
    """A hard error."""


class SyntaxFault(ConnectionFault):
    """Arguments that cannot be read: lengths that lie, unknown field types."""

    def __init__(self, text: str) -> None:
        super().__init__(502, text)


def not_found(what: str, name: str, vhost: str) -> ChannelFault:
    return ChannelFault(404, f"no {what} '{name}' in vhost '{vhost}'")


def precondition(text: str) -> ChannelFault:
    return ChannelFault(406, text)


def refused(text: str) -> ChannelFault:
    return ChannelFault(403, text)


def not_placed(error: KernelError) -> ChannelFault:
    """The refusal of a publish that no topic takes, or whose topic its sender may not create."""
    return refused(str(error)) if isinstance(error, CreateDenied) else precondition(str(error))


def in_use(what: str, name: str, vhost: str, how: str) -> ChannelFault:
    return precondition(f"{what} '{name}' in vhost '{vhost}' {how}")


def locked(name: str, vhost: str) -> ChannelFault:
    return ChannelFault(405, f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be "
                             "originally declared on another connection or the exclusive property value does not match "
                             "that of the original declaration.")
