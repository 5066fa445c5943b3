"""`gatehouse trace` and `gatehouse why`: what happened to a message, and why it did not arrive somewhere."""
from __future__ import annotations

from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, table, time_text

HEADS: Final = ("at", "after", "what", "of", "who", "where", "more")
FOUND: Final = ("id", "at", "address", "trace_id")
TIMES: Final = frozenset(("at", "due", "until", "begun", "expired_at"))
TOLD: Final = ("at", "what", "address", "reason", "who")
OF_CLIENTS: Final = {"of_user": "user", "of_client_id": "client_id", "refused_at": "address"}
LINK: Final = "link"                 # the kind of a row: the message leaves by one, and the other hub knows its origin
NAMES: Final = {"message_key": "key", "address": "address", "trace_id": "trace_id", "correlation_id": "correlation_id",
                "topic": "topic", "origin": "origin"}


@click.command()
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--key", "message_key", help="Messages with this key.")
@click.option("--address", help="Messages to this address.")
@click.option("--trace-id", help="Messages of this trace, 32 hex digits.")
@click.option("--correlation-id", help="Messages with this correlation id.")
@click.option("--origin", help="The message that came over a link, by HUB/ID of the hub that stored it first; HUB/ID "
              "as the ID does the same.")
@click.option("--of-user", help="What was told of this user: publishes that were refused, connections, subscriptions.")
@click.option("--of-client-id", help="The same of a client id.")
@click.option("--refused-at", help="The same of an address: publishes that were refused there, subscriptions to it.")
@click.option("--topic", help="With --partition and --offset: the message there, followed or not.")
@click.option("--partition", type=click.IntRange(0), default=0, help="Its partition.")
@click.option("--offset", type=click.IntRange(0), help="Its offset.")
@click.option("--from", "from_time", help="Not before this time: RFC 3339, or milliseconds since 1970.")
@click.option("--to", "to_time", help="Not after this time.")
@click.option("--max", "limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="How many at most.")
@hub_options
def trace(message_id: str | None, from_time: str | None, to_time: str | None, limit: int, partition: int,
          offset: int | None, url: str, json_wanted: bool, **ways: str | None) -> None:
    """Show what happened to a message.

    When it was stored and by whom, who was handed it, what came of that, and where it stands now.

    Without an ID the newest messages are listed that one of --key, --address, --trace-id and --correlation-id finds;
    the journey is shown where there is one of them, or where --topic and --offset say which. --of-user, --of-client-id
    and --refused-at list what was told of clients: publishes that were refused, connections and subscriptions.
    """
    if message_id is not None and "/" in message_id:
        message_id, ways["origin"] = None, message_id
    times = {name: value for name, value in (("from", from_time), ("to", to_time)) if value is not None}
    wanted = {NAMES[name]: value for name, value in ways.items() if value is not None and name in NAMES}
    of_clients = {OF_CLIENTS[name]: value for name, value in ways.items() if value is not None and name in OF_CLIENTS}
    if (message_id is None) != (len(wanted) + len(of_clients) == 1):
        raise click.UsageError("give an ID, or one of --key, --address, --trace-id, --correlation-id, --topic, "
                               "--origin, --of-user, --of-client-id and --refused-at")
    if of_clients:
        with asking(url) as hub:
            _list_told(hub.client_events(max=str(limit), **times, **of_clients), json_wanted)
        return
    if "topic" in wanted:
        if offset is None:
            raise click.UsageError("--topic goes with --offset")
        wanted |= {"partition": str(partition), "offset": str(offset)}
    wanted |= times
    with asking(url) as hub:
        if message_id is None:
            messages = hub.find_messages(max=str(limit), **wanted)
            if not messages:
                raise exits.Refused("it is not among the newest messages; --from says from when on to look" if "origin"
                                    in wanted else "nothing is recorded that is found so; messages that were not "
                                    "followed are found by their id, or by --topic, --partition and --offset",
                                    exits.FAILED)
            if len(messages) > 1:
                _list(messages, json_wanted)
                return
            message_id = messages[0]["id"]
        journey = hub.trace(message_id)
    if json_wanted:
        click.echo(as_json(journey))
    else:
        click.echo(text_of(journey))


@click.command()
@click.argument("message_id", metavar="MESSAGE")
@click.argument("consumer", metavar="CONSUMER")
@click.option("--of-user", help="Whether this user may read it there is asked first.")
@hub_options
def why(message_id: str, consumer: str, of_user: str | None, url: str, json_wanted: bool) -> None:
    """Say why a message did not arrive at a consumer.

    MESSAGE is its id; CONSUMER is a group, a queue as `$queue/NAME`, or either as a door calls it,
    `$share/GROUP/FILTER`.
    """
    with asking(url) as hub:
        answer = hub.why(message_id, consumer, of_user)
    if json_wanted:
        click.echo(as_json(answer))
        return
    evidence = {name: time_text(value, "milliseconds") if name in TIMES and isinstance(value, int) else value
                for name, value in answer["evidence"].items()}
    click.echo("\n".join([f"{answer['reason']}: {answer['text']}", *([pairs(evidence)] if evidence else [])]))


def _list(messages: list[dict[str, Any]], json_wanted: bool) -> None:
    if json_wanted:
        for message in messages:
            click.echo(as_json(message))
        return
    click.echo(table(FOUND, [[message["id"], time_text(message["at"], "milliseconds"), message["address"],
                              message["trace_id"]] for message in messages]))


def _list_told(events: list[dict[str, Any]], json_wanted: bool) -> None:
    if json_wanted:
        for event in events:
            click.echo(as_json(event))
        return
    click.echo(table(TOLD, [[time_text(event["at"], "milliseconds"), event["what"], event.get("address", ""),
                             event.get("reason", ""), _who(event)] for event in events]))


def text_of(journey: dict[str, Any]) -> str:
    """A journey for people."""
    head = {name: journey[name] for name in ("id", "address", "topic", "queue", "partition", "offset", "trace_id",
                                             "followed") if journey[name] is not None}
    if any(each["kind"] == LINK for each in journey["stands"]):
        head["origin"] = journey["origin"]
    rows = [[time_text(step["at"], "milliseconds"), "" if step["after"] is None else f"+{step['after']} ms",
             step["what"] if step["recorded"] else f"{step['what']} (from the log)", step.get("group", ""),
             _who(step), _where(step), _more(step)] for step in journey["steps"]]
    lines = [pairs(head), "", table(HEADS, rows)]
    if journey["stands"]:
        lines += ["", table(("group", "kind", "state", "attempts", "until"), [
            [each["group"], each["kind"], each["state"], each.get("attempts", 0),
             time_text(each["until"], "milliseconds") if "until" in each else ""] for each in journey["stands"]])]
    return "\n".join(lines)


def _who(step: dict[str, Any]) -> str:
    if "origin" in step:
        by = f" by link {step['link']}" if "link" in step else " over a link"
        return f"{step.get('door', '')}{by}, there {step['origin']}".strip()
    who = [str(step[name]) for name in ("door", "user", "client_id", "peer") if name in step]
    return " ".join(who + ["(by whom: not recorded)"] * ("publisher" in step))


def _where(step: dict[str, Any]) -> str:
    if "topic" in step:
        return f"{step['topic']}/{step['partition']}" + (f"@{step['offset']}" if "offset" in step else "")
    return f"queue {step['queue']}" if "queue" in step else step.get("address", "")


def _more(step: dict[str, Any]) -> str:
    said = [f"attempt {step['attempt']}"] if "attempt" in step else []
    said += [f"{name} {step[name]}" for name in ("transaction", "asked") if name in step]
    said += [step[name] for name in ("reason",) if name in step]
    said += [f"to {step['number']} live subscribers"] if "number" in step else []
    if "until" in step:
        said.append(f"until {time_text(step['until'], 'milliseconds')}")
    if "left_out" in step:
        said.append(f"{step['left_out']} errors before it were not recorded")
    return ", ".join(said)
