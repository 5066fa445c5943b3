"""Where the door answers otherwise than RabbitMQ 3.10, and why."""
from __future__ import annotations

from typing import Final, NamedTuple

CRASH: Final = "RabbitMQ's process ends with a crash, and closes without a reason or with 541"
NEWER: Final = "as RabbitMQ 4"
OWN_TEXT: Final = "the code is the specification's, the text says what was wrong and repeats no bytes of the client's"
STRICTER: Final = "RabbitMQ takes it, and it means nothing"
SECRET: Final = "who may not use a tenant does not learn whether there is one"

OK: Final = "Queue.DeclareOk messages 0 consumers 0"
QOS: Final = "Basic.QosOk"


class Difference(NamedTuple):
    ours: list[str]                        # what the door says to each step
    why: str


def _queue(name: str, why: str) -> str:
    return (f"Channel.Close 406 PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {why} "
            f"({'60, 20' if name == 'x-stream-offset' else '50, 10'})")


def _offset(shown: str) -> Difference:
    return Difference([OK, QOS, _queue("x-stream-offset", f"{{invalid_stream_offset_arg,{shown}}}")], CRASH)


def _ends(code: int, text: str, class_id: int = 0, method_id: int = 0) -> list[str]:
    return [f"Connection.Close {code} {text} ({class_id}, {method_id})"]


DIFFERENCES: Final[dict[str, Difference]] = {
    # ---- what 4 does otherwise
    "x-queue-type ''": Difference([OK], f"{NEWER}: it stands for no type"),
    **{f"a publish of delivery mode {mode}": Difference(
        [OK, "", "Basic.GetOk"], f"{NEWER}: only with 2 a message is durable") for mode in (0, 3, 255)},
    "a locator that nobody knows": Difference(
        [_queue("x-queue-leader-locator", "invalid_queue_locator_arg")], f"{NEWER}: classic queues have it, too"),
    "an unknown type": Difference(["Channel.Close 406 PRECONDITION_FAILED - unknown exchange type 'moon' (40, 10)"],
                                  NEWER),
    "stream, a reject": Difference([OK, "", QOS, "Basic.ConsumeOk", "Basic.Deliver exchange  key q", ""],
                                   f"{NEWER}: it makes room for more, as an acknowledgement does"),
    # ---- what the door can and RabbitMQ cannot
    "classic takes or refuses x-delivery-limit": Difference([OK], "classic queues may have such a limit, too"),
    "quorum, global prefetch": Difference([OK, QOS, "Basic.ConsumeOk"], "it is carried out"),
    "exclusive consumer of a quorum queue": Difference(
        [OK, "Basic.ConsumeOk", "Channel.Close 403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use (60, 20)"],
        "it is carried out: RabbitMQ lets a second one in, which waits"),
    # ---- what RabbitMQ takes, and nobody means
    "quorum x-delivery-limit '1'": Difference(
        [_queue("x-delivery-limit", '"expected integer, got longstr"')], STRICTER),
    "quorum x-delivery-limit -5": Difference([_queue("x-delivery-limit", "{value_negative,-5}")], STRICTER),
    # ---- where RabbitMQ crashes
    **{f"stream x-max-age {said!r}": Difference([_queue("x-max-age", "invalid_max_age")], CRASH)
       for said in ("", "D", "-1D", "client-local")},
    "stream, an offset that is none": _offset('{longstr,<<"moon">>}'),
    "stream, an offset that is empty": _offset('{longstr,<<"">>}'),
    "stream, an offset of a bool": _offset("{bool,true}"),
    "hash: by a header that is a number": Difference(
        ["Channel.Close 406 PRECONDITION_FAILED - Invalid argument 'hash-header': the value '1' of type 'signedint' "
         "(40, 10)"], CRASH),
    "properties cut off": Difference(_ends(502, "SYNTAX_ERROR - content_type is longer than its content header",
                                           60, 40), CRASH),
    "an unknown class": Difference(_ends(502, "SYNTAX_ERROR - there is no method 99.1", 99, 1), CRASH),
    "an unknown method": Difference(_ends(502, "SYNTAX_ERROR - there is no method 50.99", 50, 99), CRASH),
    "a field of an unknown type": Difference(
        _ends(502, "SYNTAX_ERROR - a table with a value of the unknown type 'q'"), CRASH),
    "a table cut off": Difference(_ends(502, "SYNTAX_ERROR - a table whose name has no value"), CRASH),
    "a text cut off": Difference(_ends(502, "SYNTAX_ERROR - a value longer than its table"), CRASH),
    "login: an unknown mechanism": Difference(
        _ends(530, "NOT_ALLOWED - MOON is none of the mechanisms that were offered", 10, 11), CRASH),
    # ---- texts
    "expiration above ten years": Difference(
        [OK, "Channel.Close 406 PRECONDITION_FAILED - invalid expiration '4611686018427387904': "
             "{value_too_large,4611686018427387904} (60, 40)"], "RabbitMQ breaks the line"),
    "a deliver from a client": Difference(_ends(503, "COMMAND_INVALID - unimplemented method", 60, 60),
                                          "it is refused before its content is awaited"),
    "a method cut off": Difference(_ends(502, "SYNTAX_ERROR - queue.declare is cut off"), OWN_TEXT),
    "an empty method frame": Difference(_ends(502, "SYNTAX_ERROR - a method frame without a method"), OWN_TEXT),
    "a frame of an unknown type": Difference(_ends(501, "FRAME_ERROR - a frame of the unknown type 7"), OWN_TEXT),
    "a body on channel 0": Difference(_ends(505, "UNEXPECTED_FRAME - a frame of type 3 on channel 0"), OWN_TEXT),
    "login: an unknown virtual host": Difference(
        _ends(530, "NOT_ALLOWED - access to vhost '/moon' refused for user 'anonymous'", 10, 40), SECRET),
    "login: no virtual host": Difference(
        _ends(530, "NOT_ALLOWED - access to vhost '' refused for user 'anonymous'", 10, 40), SECRET),
}
