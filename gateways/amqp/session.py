"""One AMQP 0-9-1 connection: its opening, its frames and channels, heartbeats, the end. What a channel does
is `channel`.

Rules kept here: frames take effect in the order they came; a burst of publishes on one channel is one append, a burst
of acknowledgements one call; a client's fault ends in channel.close or connection.close with the specification's code,
never in an exception; after connection.close nothing counts but its answer. A refused channel (channel.close) is not
listened to until the client has agreed (channel.close-ok) or closes it itself.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.admission import NotAuthenticated
from gatehouse.gateways.amqp import codec, login
from gatehouse.gateways.amqp.asked import NOT_HONOURED
from gatehouse.gateways.amqp.broker import DOOR_NAME, Broker
from gatehouse.gateways.amqp.channel import RESOURCE_ERROR, Channel
from gatehouse.gateways.amqp.channel_requests import ChannelRequests
from gatehouse.gateways.amqp.codec import FRAME_OVERHEAD, HEARTBEAT, METHOD
from gatehouse.gateways.amqp.errors import AmqpError, ChannelFault, ConnectionFault
from gatehouse.gateways.amqp.login import Identity
from gatehouse.gateways.amqp.methods import IDS, Arguments, decode_method, encode_method, start_of
from gatehouse.gateways.amqp.publishing import AmqpSender, Contents
from gatehouse.gateways.amqp.rights import AmqpRights
from gatehouse.gateways.connections.wrong_port import came_to
from gatehouse.gateways.door_side import PART_MESSAGES
from gatehouse.gateways.slowing import BEHIND, COUNTS, GOES, LAST, SlowedSession, Sort

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.amqp.config import AmqpConfig
    from gatehouse.gateways.amqp.vhost import VirtualHost
    from gatehouse.gateways.contract import Link, Services
    from gatehouse.gateways.door_side import Gatherer, Submitter
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Stored

SLOW_STEPS_PER_TURN: Final = 500       # frames that are no plain publish or ack, some 20 us each: what one client may
                                       # do before the others have their turn
CONNECTION_FORCED: Final = 320
FRAME_ERROR: Final = 501
CHANNEL_ERROR: Final = 504
NOT_ALLOWED: Final = 530

SILENCE_MS: Final = 3_000              # a client that says nothing for so long is left; RabbitMQ waits as long
STOPPING_MS: Final = 500               # the same when the hub stops
LEAVING_MS: Final = 500                # and for one that was told that it may go
LONGEST_MS: Final = 30_000             # one that goes on sending is cut off then
GOODBYE: Final = re.compile(rb"\x01\0\0.{4}\0\x0a\0(?P<method>[\x32\x33])", re.DOTALL)
GOODBYE_BYTES: Final = 11              # how much of the frame that is: connection.close, or close-ok

PUBLISH: Final = start_of("basic.publish")
CLOSE: Final = start_of("connection.close")
CHANNEL_OPEN: Final = start_of("channel.open")
CHANNEL_CLOSE: Final = start_of("channel.close")
CHANNEL_CLOSE_OK: Final = start_of("channel.close-ok")
CONTENT_BYTES_MAX: Final = 64 << 20    # of contents that have begun on all channels of a connection
PASSING: Final = frozenset(map(start_of, (
    "basic.ack", "basic.nack", "basic.reject", "basic.qos", "basic.consume", "basic.cancel", "basic.get",
    "basic.recover", "channel.flow-ok", "channel.close-ok")))


class State(Enum):
    HEADER = "waits for the protocol header"
    START = "waits for StartOk"
    CHECKING = "is being logged in"
    TUNE = "waits for TuneOk"
    OPENING = "waits for Open"
    OPEN = "open"
    CLOSING = "waits for CloseOk"
    ENDED = "ended"


# decision 357: looked up once
CHECKING: Final = State.CHECKING
OPEN: Final = State.OPEN
CLOSING: Final = State.CLOSING
ENDED: Final = State.ENDED

EXPECTED: Final = {State.START: "connection.start-ok", State.TUNE: "connection.tune-ok",
                   State.OPENING: "connection.open"}


class AmqpSession(SlowedSession):
    """One connection as its door has it: a `contract.Session`."""

    vhost: VirtualHost
    sender: AmqpSender
    rights: AmqpRights
    guard: Guard

    def __init__(self, link: Link, services: Services, config: AmqpConfig) -> None:
        super().__init__(link, services.now_ms)
        self.broker = Broker.of(services)
        self.wants_cancels = False
        self.body_max = 0
        self.message_bytes_max = services.kernel.settings.max_message_bytes
        self.consumer_timeout_ms = config.consumer_timeout_ms
        self.services = services
        self._kernel = services.kernel
        self._config = config
        self._state = State.HEADER
        self._frame_max = config.frame_max
        self._heartbeat_ms = 0
        self._capabilities: frozenset[str] = frozenset()
        self._client_properties: dict[str, Any] = {}       # for people
        self.identity = Identity(services.admission, link, self)
        self.channels = Channels(self)
        self.flow = services.admission.trace.flow(DOOR_NAME)
        self._opening = self._timers.add(self._on_late)    # and once it is closing: when it must be closed
        self._beating = self._timers.add(self._beat)       # when the next heartbeat leaves
        self._handing_out = self._timers.add(lambda _: self.channels.wake())       # limits let something out again
        self._blocking = self._timers.add(self._tell_blocked)          # when a client is told that it is not read
        self._heard_ms = services.now_ms()
        self._congested = False                            # publishes are not read
        self._blocked = False                              # and the client knows
        self._is_held = False                              # publishes wait, as the hub has too much to do
        self._stopping = False
        self._closing: Closing | None = None               # once connection.close was sent
        self._reason = ""                                  # of the end, then
        self._opening.at(self._heard_ms + config.handshake_timeout_ms)

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        self._heard_ms = self._now_ms()
        if self._closing is not None:
            self._take_goodbye(self._closing, data)
            return
        data = self._received.take(data)
        if not data:
            return
        if self._state is OPEN and not self._pacer.is_held:
            if (self._slowing is not None or self.guard.limited) and self._takes_slowly(data, self.guard):
                if self._slows(self.guard).is_held and not self._congested:
                    self._congested = self._is_held = True
                    self._blocking.at(self._heard_ms + self._config.blocked_after_ms)
                return
        try:
            self._take_frames(data)
            self.channels.finish_turn()
        except AmqpError as error:
            self.fail(error)

    def _take_sorted(self, data: bytes) -> bytes:
        """Take whole frames, a publish that is in part here too, and the rest on its way. Returns those that have to
        wait for something else than a limit."""
        if self._is_held and self._slowing is not None and not self._slowing.is_held:
            self._is_held = False
            self._on_relief()
        pos = len(data)
        try:
            pos, _ = self._take_open(data, 0, has_all=True)
            self.channels.finish_turn()
        except AmqpError as error:
            self.fail(error)
        if self._state is OPEN:
            return data[pos:]
        if self._closing is not None:
            self._take_goodbye(self._closing, data[pos:])
        return b""

    def _take_frames(self, data: bytes) -> None:
        pos = 0
        if self._state is State.HEADER:
            if not login.PROTOCOL_HEADER.startswith(data[:8]):
                self._link.write(login.PROTOCOL_HEADER)    # 4.2.2: the version that would be spoken, then the end
                self._end(f"protocol_header: {came_to(data, 'AMQP', 'this is not AMQP 0-9-1')}")
                return
            if len(data) < 8:
                self._received.keep(data, 0, 8)
                return
            pos = self._start()
        pos, needed = self._take_open(data, pos, has_all=False)
        if self._closing is not None:
            self._take_goodbye(self._closing, data[pos:])  # which it may have sent before it heard of ours
        elif self._state is not ENDED:
            self._received.keep(data, pos, needed)

    def _take_open(self, data: bytes, pos: int, *, has_all: bool) -> tuple[int, int]:
        """Take frames from `pos` on. `has_all`: a publish that is in part here is begun, and not waited for. Returns
        where the first frame begins that was not taken, and its size, 0 where that is not known."""
        slow_steps = 0
        channels = self.channels
        while self._state not in (ENDED, CHECKING, CLOSING) and not self._pacer.is_held:
            channel = channels.open.get(data[pos + 1:pos + 3])
            if channel is not None and channel.contents.begun is None and channel.tx is None:
                sender = self.sender
                if sender.version != (self.vhost.version, self.guard.version):
                    sender.refresh()
                before = pos
                pos, why, needed = codec.decode_publishes(data, pos, channel.raw, self.body_max, sender.routes,
                                                          sender.head, channel.publishing.pending)
                if channel.publishing.pending:
                    channels.note_unfinished(channel)
                if why == codec.NEED_MORE and not has_all:
                    return pos, needed
                tags: list[int] = []
                pos = codec.decode_acks(data, pos, channel.raw, tags)
                if tags:
                    channels.take_acks(channel, tags)
                if pos != before:
                    continue
            size = codec.frame_size(data, pos, self._frame_max)
            if size == 0 or pos + size > len(data):
                return pos, size
            slow_steps += 1
            if slow_steps > SLOW_STEPS_PER_TURN:
                self._pacer.pause_until(self._heard_ms)
                return pos, 0
            try:
                self._take_frame(data, pos, size)
            except AmqpError as error:
                self.fail(error)
            pos += size
        return pos, 0

    def _start(self) -> int:
        self._state = State.START
        self._write_method(0, login.encode_start(self.services.hub_name, self._link.certificate,
                                                   allow_anonymous=self.services.admission.allow_anonymous))
        return len(login.PROTOCOL_HEADER)

    def _take_frame(self, data: bytes, pos: int, size: int) -> None:
        """One whole frame. Raises AmqpError for what ends the connection."""
        kind, number = data[pos], data[pos + 1] << 8 | data[pos + 2]
        if data[pos + size - 1] != codec.FRAME_END:
            raise ConnectionFault(501, f"a frame of {size} bytes that does not end with the octet 206")
        payload = data[pos + 7:pos + size - 1]
        if kind == codec.HEARTBEAT:
            if number:
                raise ConnectionFault(505, "type 8, all octets = <<>>")
        elif number == 0:
            self._take_connection_frame(kind, payload)
        elif self._state is not OPEN:
            raise ConnectionFault(CHANNEL_ERROR, "a frame on a channel before the connection is open")
        else:
            self.channels.take_frame(kind, number, payload)

    # --- the connection's own methods --------------------------------------------------------------------------------

    def _take_connection_frame(self, kind: int, payload: bytes) -> None:
        if kind != codec.METHOD:
            raise ConnectionFault(505 if kind in (codec.HEADER, codec.BODY) else 501,
                                  f"a frame of type {kind} on channel 0")
        name, arguments = decode_method(payload)
        try:
            if name == "connection.close":
                self._close_asked()
            elif self._state is not OPEN:
                self._take_opening(name, arguments)
            elif name == "connection.update-secret":
                self._update_secret(arguments["secret"])
            else:
                raise ConnectionFault(CHANNEL_ERROR, "unexpected method in connection state running")
        except AmqpError as error:
            error.method = error.method if any(error.method) else IDS[name]
            raise

    def _take_opening(self, name: str, arguments: Arguments) -> None:
        if name != EXPECTED[self._state]:
            raise ConnectionFault(503, f"{name} instead of {EXPECTED[self._state]}")
        if name == "connection.start-ok":
            self._log_in(arguments)
        elif name == "connection.tune-ok":
            channel_max, self._frame_max, heartbeat_s = login.check_tune(self._config, arguments)
            self.channels.limit(channel_max)
            self._heartbeat_ms = heartbeat_s * 1000
            self.body_max = self._frame_max - codec.FRAME_OVERHEAD
            self._state = State.OPENING
        else:
            self._open(arguments["virtual_host"])

    def _log_in(self, arguments: Arguments) -> None:
        self._capabilities = login.client_capabilities(arguments["client_properties"])
        self._client_properties = login.shown_properties(arguments["client_properties"])
        self.wants_cancels = login.WANTS_CANCELS in self._capabilities
        self._state = CHECKING  # decision 91
        self._pacer.hold()
        self.identity.check(arguments, self._on_login, lambda: self._state is not CHECKING or self._link.gone)

    def _on_login(self, answer: Principal | NotAuthenticated) -> None:
        if self._state is not CHECKING:
            return
        self._pacer.release()
        self._state = State.TUNE
        try:
            if isinstance(answer, NotAuthenticated):
                raise answer
            self.identity.register(answer)
            self._write_method(0, login.encode_tune(self._config))
        except NotAuthenticated as refusal:
            self._refuse_login(refusal)
        if self._received.held_bytes:
            self.handle_data(b"")

    def _refuse_login(self, why: NotAuthenticated) -> None:
        reason = f"connect_refused: {self.identity.attempt}: {why}"
        if login.CLOSES_ON_REFUSAL in self._capabilities:
            self.count("connection_403")
            self._close(self.identity.refusal(why), reason)
        else:
            self._end(reason)

    def _open(self, virtual_host: str) -> None:
        self.identity.enter(virtual_host)
        self.vhost = self.broker.vhost(virtual_host)
        self.rights = AmqpRights(self.services.admission, self.identity.principal, self.vhost, self, self._link.peer)
        self._send_as_now()
        self._state = OPEN
        self.broker.totals.connections_opened += 1
        self._opening.at(0)
        if self._heartbeat_ms:
            self._beating.at(self._now_ms() + self._heartbeat_ms // 2)
        self._write_method(0, encode_method("connection.open-ok"))

    def _send_as_now(self) -> None:
        """Whatever is published is published by the principal of now."""
        self.guard = self.services.guard(DOOR_NAME, self.identity.principal, None, own_places=True,
                                         peer=self._link.peer)
        self.sender = AmqpSender(self.broker, self.services, self.vhost, self.rights, self.guard,
                                 self.note_not_honoured)
        if self._slowing is not None:
            self._slowing.publishes_as(self.guard)

    def _sorting(self) -> Sort:
        return partial(sort_frame, frame_max=self._frame_max, has_tx=self.channels.has_tx)

    def _can_be_refused(self) -> bool:
        return any(channel.publishing.confirms for channel in self.channels)

    def _update_secret(self, secret: bytes) -> None:
        """What comes behind it is taken once it is answered. Who needed no secret needs none now."""
        if self.identity.principal.anonymous:
            self._write_method(0, encode_method("connection.update-secret-ok"))
            return
        self.channels.finish_turn()            # published by who it is now
        self.hold()

        def told(answer: Principal | NotAuthenticated) -> None:
            if self._state is OPEN:
                try:
                    self._renew(answer)
                except ConnectionFault as fault:
                    self.fail(fault)
            self.go_on()

        self.identity.check_secret(secret, told)

    def _renew(self, answer: Principal | NotAuthenticated) -> None:
        self.identity.renew(answer, self.vhost.name)
        self.rights.renew(self.identity.principal)
        self.guard.settle()
        self._send_as_now()
        self.on_rights_changed()
        self._write_method(0, encode_method("connection.update-secret-ok"))

    @property
    def peer(self) -> str:
        """HOST:PORT of the client."""
        return self._link.peer

    @property
    def local(self) -> str:
        """The address that it came by."""
        return str(self._link.listen)

    # --- what channels use -------------------------------------------------------------------------------------------

    def count(self, event: str) -> None:
        """A refusal, for the metrics."""
        self.services.admission.trace.on_event(DOOR_NAME, event)

    def note_not_honoured(self, what: str) -> None:
        """Something that is taken without effect."""
        self.services.not_honoured.note(DOOR_NAME, what, NOT_HONOURED[what], self.identity.client)

    def write(self, frames: bytes) -> None:
        """To the client; nothing follows a goodbye."""
        if self._state is OPEN:
            self._link.write(frames)

    def _write_method(self, number: int, payload: bytes) -> None:
        self._link.write(codec.frame(codec.METHOD, number, payload))

    def append(self, messages: list[Message], owner: Submitter | None, token: object, repeat_key: str | None = None, *,
               refuses: bool = False, was_gathered: bool = False) -> None:
        """Append messages; once, however often they come with the same `repeat_key`. `refuses`: the client is told of
        each that is too much for a limit. What `was_gathered` was charged then. Raises KernelError."""
        size_bytes = sum([len(message[1] or b"") for message in messages])
        self.slow_down(self.guard.append(messages, owner, token, size_bytes, idempotency_key=repeat_key,
                                         refuses=refuses, was_gathered=was_gathered))

    def gather(self, messages: list[Message], gatherer: Gatherer, token: object, *, refuses: bool) -> bool:
        """Append a few messages with those of other connections; False: not these, `append` them."""
        if len(messages) > PART_MESSAGES:
            return False
        size_bytes = sum([len(message[1] or b"") for message in messages])
        if not self.guard.gather(messages, gatherer, token, size_bytes, refuses=refuses):
            return False
        self.slow_down(self.guard.gathered_wait_ms)
        return True

    def slow_down(self, wait_ms: int) -> None:
        """Something was taken: further publishes wait for `wait_ms`; say so where they wait for the disk."""
        if wait_ms:
            self._slows(self.guard).wait(wait_ms)
        if self._kernel.congested and not self._congested:
            self._congested = True
            self._kernel.on_relief(self._on_relief)
            self._blocking.at(self._heard_ms + self._config.blocked_after_ms)

    @property
    def unsent_max(self) -> int:
        """Bytes that may wait for the client to take them."""
        return self.services.unsent.allowed(self._config.max_unsent_bytes)

    def may_deliver(self) -> bool:
        return self._state is OPEN and self._link.unsent_bytes < self.unsent_max and (
            not self.guard.limits_out or self.out_room() > 0)

    def out_room(self, size_bytes: int = 1) -> int:
        """How many messages of about this size limits let out now; where there are none, consumers have their turn
        again later."""
        messages, room_bytes = self.guard.out_room()
        if not messages:
            self._handing_out.at(self._now_ms() + max(1, self.guard.out_wait_ms()))
            return 0
        return min(messages, max(1, room_bytes // size_bytes))

    def handed_out(self, messages: int, size_bytes: int, group: str = "") -> None:
        """So much was written: for counters and limits."""
        self.flow.messages_out += messages
        self.flow.bytes_out += size_bytes
        if self.guard.limits_out:
            self.guard.hand_out(messages, size_bytes, consumers=group)

    def on_settled(self) -> None:
        """A confirm has left: the end may have waited for it."""
        if self._stopping and self._is_settled():
            self._finish_stopping()

    # --- admission's `RegisteredSession`
    # --------------------------------------------------------------------------------------

    def on_principal_ended(self, reason: str) -> None:
        """Close the connection, as RabbitMQ does with those of a user that is deleted, or that its interface closes."""
        self.fail(ConnectionFault(CONNECTION_FORCED, reason))

    def on_rights_changed(self) -> None:
        """What is no longer allowed ends: consumers, and what the connection's own queues are bound to."""
        if self._state is not OPEN:
            return
        self.sender.forget()
        self.broker.unbind_own(self.vhost, self, self.rights.may_keep)
        self.channels.check_rights()

    # --- back-pressure -----------------------------------------------------------------------------------------------

    def _on_relief(self) -> None:
        self._congested = False
        self._blocking.at(0)
        if self._blocked and self._state is OPEN:
            self._blocked = False
            self._write_method(0, encode_method("connection.unblocked"))

    def _tell_blocked(self, now_ms: int) -> None:
        self._blocked = True
        if login.WANTS_BLOCKED in self._capabilities:
            reason = "nothing may be published for now" if self._is_held else "the disk is slower than its publishers"
            self._write_method(0, encode_method("connection.blocked", reason=reason))

    def hold(self) -> None:
        """Take nothing more of what has come until `go_on`, which is called as often."""
        self._pacer.hold()

    def go_on(self) -> None:
        """Take what has come again, later in this turn or in another: whoever held may be in the middle of a frame."""
        if self._state is OPEN:
            self._pacer.go_on(self._now_ms())
            self.on_settled()

    def handle_drained(self) -> None:
        self.channels.wake()

    # --- time --------------------------------------------------------------------------------------------------------

    def handle_timer(self, now_ms: int) -> None:
        self._timers.handle_timer(now_ms)

    def _on_late(self, now_ms: int) -> None:
        if self._closing is None:
            self._end("handshake_timeout")
        else:
            self._end("" if self._closing.by_client else "close_timeout: " + self._reason)

    def _beat(self, now_ms: int) -> None:
        """Send a heartbeat, or end the connection where nothing came for two intervals (and the hub was reading). Any
        traffic stands for a heartbeat (4.2.7)."""
        if now_ms - self._heard_ms >= 2 * self._heartbeat_ms and not self._is_not_read():
            self._end("heartbeat_timeout: nothing came for two intervals")
            return
        self._link.write(codec.HEARTBEAT_FRAME)
        self._beating.at(now_ms + self._heartbeat_ms // 2)

    def _is_not_read(self) -> bool:
        """Whether the hub itself may be the reason that nothing was heard."""
        return bool(self._pacer.waits or self._kernel.congested or not self._link.is_read
                    or self._slowing is not None and self._slowing.is_full)

    # --- the end -----------------------------------------------------------------------------------------------------

    def fail(self, error: AmqpError) -> None:
        """connection.close with a reason, then the end once the client has answered. What it asked for before stands,
        as far as that can be taken."""
        with suppress(AmqpError):
            self.channels.finish_turn()
        if self._state in (CLOSING, ENDED):
            return
        self.count("connection_" + str(error.code))
        if self._state is State.HEADER:
            self._end(str(error))
        else:
            self._close(error, str(error))

    def _close(self, error: AmqpError, reason: str, silence_ms: int = SILENCE_MS) -> None:
        class_id, method_id = error.method
        self._release()
        self._reason = reason
        self._write_method(0, encode_method("connection.close", code=error.code, text=error.reply_text,
                                            class_id=class_id, method_id=method_id))
        self._await_end(Closing(self._now_ms(), silence_ms))

    def _await_end(self, closing: Closing) -> None:
        self._state = CLOSING
        self._closing = closing
        self._timers.stop()
        self._opening.at(closing.ends_ms)
        self._received.clear()
        self._link.resume()

    def _close_asked(self) -> None:
        self.channels.finish_turn()
        if self.channels.hold_answers():       # decision 339
            self.hold()
            self.broker.queues.when_acked(self, None)
        else:
            self._leave()

    def on_stored(self, stored: list[Stored]) -> None:
        """What was acknowledged before the client asked for the end is on the disk, or its failure has been told."""
        if self._state is not CLOSING and self._state is not ENDED:
            self._leave()

    def _leave(self) -> None:
        self._release()
        self._write_method(0, encode_method("connection.close-ok"))
        self._await_end(Closing(self._now_ms(), LEAVING_MS, by_client=True))

    def _take_goodbye(self, closing: Closing, data: bytes) -> None:
        if not closing.is_answered(data, self._heard_ms):
            self._opening.at(closing.ends_ms)
        else:
            if closing.asked_too:
                self._write_method(0, encode_method("connection.close-ok"))
            self._end(self._reason)

    def handle_stopping(self) -> None:
        """The hub stops: confirms for what is on its way leave first."""
        if self._closing is not None:
            return
        if self._state is not OPEN:
            self._end("stopping")
        elif self._is_settled():
            self._finish_stopping()
        else:
            self._stopping = True
            self._link.pause()

    def _is_settled(self) -> bool:
        return not self._pacer.is_held and all(channel.settled for channel in self.channels)

    def _finish_stopping(self) -> None:
        self._stopping = False
        self._close(ConnectionFault(CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'"),
                    "stopping", STOPPING_MS)

    def handle_closed(self) -> None:
        if self._closing is not None and not self._closing.by_client:      # it hung up in place of an answer
            login.log_end(self._link.peer, self._reason)
        self._release()
        self._state = ENDED
        self._timers.stop()

    def _end(self, reason: str) -> None:
        if self._state is not ENDED:
            self._release()
            self._state = ENDED
            self._timers.stop()
            self._link.close(reason)

    def _release(self) -> None:
        """End all channels and drop the connection's exclusive queues. Idempotent."""
        if self._state is OPEN:
            self.guard.settle()
        if self._slowing is not None:
            self._slowing.on_closed()
        self.identity.leave()
        self.channels.end()
        if self._state is OPEN:
            self.broker.totals.connections_closed += 1
            self.broker.drop_exclusive(self.vhost, self)

    def held_bytes(self) -> int:
        """What has come and waits here: for the rest of a frame, or for a limit."""
        return self._received.held_bytes + (0 if self._slowing is None else self._slowing.waiting_bytes)

    def describe(self) -> dict[str, Any]:
        vhost = self.vhost.name if self._state is OPEN else ""
        return {"user": self.identity.user, "state": self._state.value, "vhost": vhost, "frame_max": self._frame_max,
                "channel_max": self.channels.channel_max, "heartbeat_s": self._heartbeat_ms // 1000,
                "client_properties": self._client_properties, **self.channels.describe()}


class Closing:
    """What comes after connection.close, the hub's or the client's: it is read and dropped until the client goes.

    A socket that is closed with bytes unread is reset by the system, and a client that was still sending would lose the
    connection.close that tells it why. So the client is listened to until it answers, goes, or falls silent, and not
    longer than `LONGEST_MS`. Where the client itself asked to close, the specification has it hang up once it is
    answered: it is given the time to do so (decision 286). Frames are not put together any more: the answer is looked
    for in the bytes, since what a client sends after a frame error has no frames to speak of.
    """

    def __init__(self, now_ms: int, silence_ms: int, *, by_client: bool = False) -> None:
        self.asked_too = False
        """Whether the answer was a connection.close of the client's own, which crossed ours."""

        self.by_client = by_client
        """Whether the client asked to close and was answered: only its hanging up is awaited."""

        self._silence_ms = silence_ms
        self._cut_ms = now_ms + LONGEST_MS
        self._heard_ms = now_ms
        self._tail = b""

    @property
    def ends_ms(self) -> int:
        """When the client has had its time, unless it says something."""
        return min(self._heard_ms + self._silence_ms, self._cut_ms)

    def is_answered(self, data: bytes, now_ms: int) -> bool:
        """Whether the client has agreed; `data` is what came next."""
        self._heard_ms = now_ms
        if self.by_client:
            return False
        data = self._tail + data
        match = GOODBYE.search(data)
        self._tail = data[1 - GOODBYE_BYTES:]
        self.asked_too = match is not None and match["method"] == b"\x32"
        return match is not None


def sort_frame(data: bytes, pos: int, *, frame_max: int, has_tx: Callable[[bytes], bool]) -> tuple[int, int, int]:
    """What a frame is while its client is slowed down for a limit, see `gateways.slowing`: (size, kind, stream) of the
    frame at a place; the stream is its channel.

    A message is a method, a header and bodies, on one channel one after the other: header and bodies go where their
    method went. Acknowledgements and what is asked about consumers pass it, unless the channel has transactions: there
    they belong to the commit that comes behind.
    """
    if pos + 7 > len(data):
        return 0, GOES, 0
    size = int.from_bytes(data[pos + 3:pos + 7], "big") + FRAME_OVERHEAD
    if size > frame_max:
        return len(data) - pos, LAST, 0
    channel, method = data[pos + 1:pos + 3], data[pos + 7:pos + 11]
    number = channel[0] << 8 | channel[1]
    if data[pos] == METHOD and method == PUBLISH:
        return size, COUNTS, number
    if number == 0:
        return size, LAST if data[pos] == METHOD and method == CLOSE else GOES, 0
    if data[pos] == HEARTBEAT or data[pos] == METHOD and method in PASSING and not has_tx(channel):
        return size, GOES, number
    return size, BEHIND, number


# --- the channels of a connection -------------------------------------------------------------------------------------

class Channels:
    """All of one connection: opened, fed, refused, closed."""

    def __init__(self, connection: AmqpSession) -> None:
        self.channel_max = 0
        self.open: dict[bytes, Channel] = {}
        """The channels that the hub listens to, by their number in two bytes."""

        self.tx_bytes = 0
        """Of publishes that wait for a commit, on all of them."""

        self._connection = connection
        self._content_bytes = 0                            # of contents that have begun and are not whole
        self._by_number: dict[int, Channel] = {}           # and those that were refused
        self._unfinished: dict[Channel, None] = {}

    def limit(self, channel_max: int) -> None:
        """How many channels there may be, as it was agreed."""
        self.channel_max = channel_max

    def keep_tx(self, size_bytes: int) -> None:
        """So much more of publishes waits for a commit; less where it is negative."""
        self.tx_bytes += size_bytes

    def has_tx(self, raw: bytes) -> bool:
        """Whether the channel of this number in two bytes has transactions."""
        channel = self.open.get(raw)
        return channel is not None and channel.tx is not None

    def __iter__(self) -> Iterator[Channel]:
        return iter([*self._by_number.values()])

    # ---- frames

    def take_frame(self, kind: int, number: int, payload: bytes) -> None:
        """One whole frame. Raises AmqpError for what ends the connection."""
        channel = self._by_number.get(number)
        if channel is None:
            self._open(kind, number, payload)
        elif channel.closing:
            if kind == codec.METHOD and payload[:4] in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
                self._drop(channel)
                if payload[:4] == CHANNEL_CLOSE:
                    channel.reply(encode_method("channel.close-ok"))
        else:
            try:
                self._take(channel, kind, payload)
            except ChannelFault as error:
                self.refuse(channel, error)

    def _take(self, channel: Channel, kind: int, payload: bytes) -> None:
        if kind == codec.METHOD:
            self._take_method(channel, payload)
        elif kind == codec.HEADER:
            channel.contents.take_header(payload)
        elif kind == codec.BODY:
            channel.contents.take_body(payload)
        else:
            raise ConnectionFault(FRAME_ERROR, f"a frame of the unknown type {kind}")
        if channel.publishing.pending:
            self._unfinished[channel] = None

    def _take_method(self, channel: Channel, payload: bytes) -> None:
        name, arguments = decode_method(payload)
        try:
            if name == "channel.close":
                self.finish_turn()
                self._connection.guard.settle()
                channel.hold_answers()
                channel.end()
                self._drop(channel)
                channel.reply(encode_method("channel.close-ok"))
            elif name == "channel.open":
                raise ConnectionFault(CHANNEL_ERROR, "second 'channel.open' seen")
            else:
                channel.take_method(name, arguments, payload)
        except AmqpError as error:
            error.method = error.method if any(error.method) else IDS[name]
            raise

    def take_acks(self, channel: Channel, tags: list[int]) -> None:
        """A burst of acknowledgements, negative tags standing for all before them too."""
        try:
            channel.ack_many(tags)
        except ChannelFault as error:
            error.method = IDS["basic.ack"]
            self.refuse(channel, error)

    # ---- what is put together

    def reserve(self, size: int) -> None:
        """A content of this size is on its way. Raises ConnectionFault 506 where too much is."""
        self._content_bytes += size
        if self._content_bytes > max(CONTENT_BYTES_MAX, self._connection.message_bytes_max):
            raise ConnectionFault(RESOURCE_ERROR, f"contents of more than {CONTENT_BYTES_MAX} bytes begun at once")

    def note_part(self, size: int) -> None:  # decision 231
        """A part of a content has come, and waits for the rest. Raises ConnectionFault 506 where the connections of
        this door have too much of that together."""
        broker = self._connection.broker
        broker.note_begun(size)
        if broker.begun_bytes > broker.begun_bytes_max:
            raise ConnectionFault(RESOURCE_ERROR, f"contents of more than {broker.begun_bytes_max} bytes begun at once "
                                                  "by all connections")

    def release(self, size: int, parts: int) -> None:
        """A content of this size, for which `reserve` was called, is whole or was dropped; `parts`: what had come."""
        self._content_bytes -= size
        self._connection.broker.note_begun(-parts)

    # ---- the end of a turn

    def note_unfinished(self, channel: Channel) -> None:
        """Remember a channel that has something to append or settle at the end of the turn."""
        self._unfinished[channel] = None

    def finish_turn(self) -> None:
        """Append and settle what the frames so far asked for. Raises AmqpError for what ends the connection."""
        while self._unfinished:
            channel = next(iter(self._unfinished))         # in the order they began: Spring publishes by many channels
            del self._unfinished[channel]
            try:
                channel.finish_turn()
            except ChannelFault as error:
                self.refuse(channel, error)

    def hold_answers(self) -> bool:
        """As each channel does. Whether any answer waits."""
        waiting = [channel.hold_answers() for channel in self]         # each of them, whatever the first says
        return any(waiting)

    # ---- opening and closing

    def _open(self, kind: int, number: int, payload: bytes) -> None:
        if kind != codec.METHOD or payload[:4] != CHANNEL_OPEN:
            if payload[:4] == CHANNEL_CLOSE_OK:
                return
            fault = ConnectionFault(CHANNEL_ERROR, "expected 'channel.open'")
            if kind == codec.METHOD:
                fault.method = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
            raise fault
        if len(self._by_number) >= self.channel_max:  # decision 325
            raise ConnectionFault(NOT_ALLOWED, f"number of channels opened ({len(self._by_number)}) has reached the "
                                               f"negotiated channel_max ({self.channel_max})")
        channel = self._by_number[number] = Channel(number, self._connection, Contents, ChannelRequests)
        self.open[channel.raw] = channel
        channel.reply(encode_method("channel.open-ok"))

    def refuse(self, channel: Channel, error: ChannelFault) -> None:
        """The channel is closed; what it had asked for before stands."""
        if self.open.get(channel.raw) is not channel:      # there may be another of its number by now
            return
        del self.open[channel.raw]
        self._unfinished[channel] = None
        self.finish_turn()
        self._connection.guard.settle()        # what is refused of that is told before another has its number
        self._connection.count(f"channel_{error.code}")
        channel.refuse(error)

    def _drop(self, channel: Channel) -> None:
        del self._by_number[channel.number]
        self.open.pop(channel.raw, None)

    def wake(self) -> None:
        """Deliver more on every channel: the client takes more."""
        for channel in self:
            channel.wake()

    def check_rights(self) -> None:
        """Consumers whose right has gone end."""
        for channel in self:
            channel.check_rights()

    def describe(self) -> dict[str, Any]:
        """For people."""
        return {"subscriptions": sum([len(channel.consumers) for channel in self]),
                "channels": [channel.describe() for channel in self]}

    def end(self) -> None:
        """The connection has ended. Idempotent."""
        ended, self._by_number, self.open, self._unfinished = self._by_number, {}, {}, {}
        for channel in ended.values():
            channel.end()
