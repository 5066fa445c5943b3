"""A client with a session, for tests: keeps what it was handed, answers when it is told to."""
from __future__ import annotations

from gatehouse.kernel.message import EXACTLY_ONCE, TRANSIENT, Stored
from gatehouse.kernel.sessions.attached import Attached
from gatehouse.kernel.sessions.session_values import NEVER, Outgoing, Released, Subscribed
from tests.kernel.rig import Rig

QOS_BITS = {0: TRANSIENT, 1: 0, 2: EXACTLY_ONCE}
MQTT = 2


class Client:
    """One client id; `session` is the connection's hold on its session."""

    def __init__(self, rig: Rig, client_id: str = "c1", user: str = "ann", tenant: str = "/") -> None:
        self.rig = rig
        self.client_id = client_id
        self.user = user
        self.tenant = tenant
        self.session: Attached | None = None
        self.inbox: list[Outgoing | Released] = []
        self.ended: list[str] = []
        self.answers: list[object] = []
        self.forbidden: set[str] = set()

    # what the kernel calls

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        self.inbox += messages

    def may_have(self, address: str) -> bool:
        return address not in self.forbidden

    def on_session_ended(self, reason: str) -> None:
        self.ended.append(reason)

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            self.answers.append(answer.error or answer.token)

    # what a test does

    @property
    def held(self) -> Attached:
        assert self.session is not None
        return self.session

    def connect(self, *, clean: bool = False, expiry_ms: int = NEVER, window: int = 10) -> bool:
        """Whether the session was there."""
        self.inbox, self.ended, self.answers = [], [], []
        self.session = self.rig.kernel.sessions.attach(
            self.tenant, self.client_id, self.user, self, clean=clean, expiry_ms=expiry_ms, window=window, owner=self,
            token="open")
        self.rig.run()
        assert self.answers == ["open"]
        self.session.hold(False)
        self.rig.run()
        return self.session.present

    def subscribe(self, filter_text: str, qos: int = 1, **options: int) -> bool:
        is_new = self.held.subscribe(Subscribed(filter_text, qos, **options))     # type: ignore[arg-type]
        self.rig.run()
        return is_new

    def sleep(self, expiry_ms: int = NEVER) -> None:
        self.held.sleep(expiry_ms)
        self.session = None
        self.rig.run()

    def take(self) -> list[Outgoing | Released]:
        """What was handed out since the last call."""
        self.rig.run()
        inbox, self.inbox = self.inbox, []
        return inbox

    def values(self) -> list[bytes | None]:
        return [message.value for message in self.take() if isinstance(message, Outgoing)]

    def acknowledge(self, messages: list[Outgoing | Released]) -> None:
        assert self.held.acknowledge([message.packet_id for message in messages]) == []
        self.rig.run()

    def take_and_acknowledge(self) -> list[bytes | None]:
        """Everything that comes, a window at a time."""
        values: list[bytes | None] = []
        while messages := self.take():
            values += [message.value for message in messages if isinstance(message, Outgoing)]
            self.acknowledge(messages)
        return values


def publish(rig: Rig, address: str, *values: bytes, qos: int = 1, attributes: int = 0) -> None:
    rig.publish(address, *values, attributes=MQTT | QOS_BITS[qos] | attributes)
