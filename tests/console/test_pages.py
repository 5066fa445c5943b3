"""The console as people use it: every page of it, on a hub with every door."""
from __future__ import annotations

import json
import threading
from struct import pack

import paho.mqtt.client as mqtt

from gatehouse.kernel.records.batch import MAX_TIMESTAMP_MS
from tests.console.asking import ask, bury, group_path, publish
from tests.kernel.batches import encode_record, wrap

EVIL = '<img src=x onerror=alert(1)>"\'><script>alert(2)</script>'
PAGES = ["", "topics", "topics/wide", "groups", "groups/keepers", "queues", "queues/wide", "connections", "sessions",
         "publish", "scheduled", "dead-letters", "dead-letters/keepers", "retained", "transactions",
         "transactions/shop", "trace", "links", "circuits", "users"]


def test_the_overview_is_live(hub, open_tab):
    tab = open_tab(hub)
    tab.wait_text("Overview", "h1")
    for door in ("mqtt", "http", "amqp", "kafka"):
        tab.wait_text(door, "td.first")
    tab.wait_text("live", "#link-state")
    tab.wait_text("Disk free", ".tile")
    before = tab.text("tbody")
    publish(hub, *({"address": "overview/a", "value": "x"} for _ in range(500)))
    tab.wait(f"document.querySelector('tbody').innerText !== {json.dumps(before)}")
    tab.wait("[...document.querySelectorAll('svg.spark .line')].some(one => one.getAttribute('d').length > 20)")


def test_topics_are_filtered_and_paged(hub, open_tab):
    for number in range(120):
        ask(hub, "PUT", f"/v1/topics/many-{number:03d}", {"partitions": 1})
    publish(hub, *({"address": "many-119/a", "value": "x"} for _ in range(1234)))
    ask(hub, "PUT", "/v1/topics/another", {})
    tab = open_tab(hub, "topics")
    tab.wait_text("another")
    tab.type("Filter by name", "MANY-")
    tab.wait_gone("another", "tbody")
    tab.wait_text("many-049")
    assert "many-050" not in tab.text()
    tab.click("button", "Next")
    tab.wait_text("many-099")
    tab.wait_gone("many-049")
    tab.click("button", "Next")
    tab.wait_text("1,234", "tr")
    tab.click("button", "Back")
    tab.wait_text("many-050")
    tab.type("Filter by name", "no such name")
    tab.wait_text("Nothing here has “no such name” in its name.", ".empty")


def test_what_is_published_appears_at_once_whatever_it_is(hub, open_tab):
    publish(hub, {"address": "seen/before", "value": "stored before"})
    tab = open_tab(hub, "topics/seen")
    tab.wait_text("stored before", ".messages")
    publish(hub, {"address": "seen/json", "value": '{"big":12345678901234567890,"list":[1,{"a":null}]}',
                  "headers": [["unit", "C"], ["unit", "F"]], "content_type": "application/json"},
            {"address": "seen/binary", "value_base64": "AAH/aGVsbG8="},
            {"topic": "seen", "key": "ended", "value": None})
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    client.publish("seen/by-mqtt", "21.5")
    tab.wait_text("by-mqtt", ".messages")
    client.disconnect()
    client.loop_stop()
    tab.wait_text("8 B, binary", ".messages")
    tab.wait_text("no value", ".messages")
    tab.click("summary", "json")
    tab.wait_text('"big": 12345678901234567890,\n  "list": [', "pre")
    assert "unit\nC\nunit\nF" in tab.text(".messages")
    tab.click("summary", "binary")
    tab.wait_text("000000  00 01 ff 68 65 6c 6c 6f", "pre")
    tab.wait_text("...hello", "pre")


def test_a_message_is_shown_whatever_time_its_sender_wrote(hub, open_tab):
    """The last moment that a producer may write; later ones are refused."""
    batch = wrap(encode_record(0, b"k", b"from afar"), 1, base_ms=MAX_TIMESTAMP_MS, max_ms=MAX_TIMESTAMP_MS)
    ask(hub, "PUT", "/v1/topics/afar", {"partitions": 1})
    ask(hub, "PUT", "/v1/groups/far", {"start": "earliest"})
    ask(hub, "POST", "/v1/topics/afar/batches", pack("<II", 0, len(batch)) + batch)
    publish(hub, {"address": "afar/now", "value": "from here"})
    tab = open_tab(hub, "topics/afar")
    for value in ("from afar", "from here"):
        tab.wait_text(value, ".messages")
    tab.click(".messages summary", "from afar")
    tab.wait_text("9999", ".details")
    bury(hub, "far", "afar", 2)
    tab = open_tab(hub, "dead-letters/far")
    tab.wait_text("from afar", "td")


def test_a_topic_is_followed_through_a_filter_paused_and_cleared(hub, open_tab):
    tab = open_tab(hub, "topics/watched")
    ask(hub, "PUT", "/v1/topics/watched", {})
    tab.wait_text("live, 0 since you look")
    tab.type("Only messages that", "unit = 'C'")
    tab.click("button", "Apply")
    tab.wait_text("live, 0 since you look")
    publish(hub, *({"address": f"watched/{unit}", "value": unit, "headers": [["unit", unit]]} for unit in "FCK"))
    tab.wait_text("live, 1 since you look")
    assert tab.evaluate("document.querySelectorAll('.messages li').length") == 1
    tab.click("button", "Pause")
    publish(hub, {"address": "watched/later", "value": "later", "headers": [["unit", "C"]]})
    tab.wait_text("paused, 2 since you look")
    assert "later" not in tab.text(".messages")
    tab.click("button", "Go on")
    tab.wait_text("later", ".messages")
    tab.click("button", "Clear")
    tab.wait_text("No messages yet", ".empty")
    tab.type("Only messages that", "unit =")
    tab.click("button", "Apply")
    tab.wait_text("expected a name or a value")


def test_a_fast_topic_shows_the_newest(hub, open_tab):
    ask(hub, "PUT", "/v1/topics/fast", {"partitions": 1})
    tab = open_tab(hub, "topics/fast")
    tab.wait_text("live, 0 since you look")
    for part in range(10):
        publish(hub, *({"address": "fast/a", "value": f"number {part * 1000 + number}"} for number in range(1000)))
    tab.wait_text("live, 10,000 since you look")
    tab.wait_text("number 9999", ".messages")
    assert tab.evaluate("document.querySelectorAll('.messages li').length") == 100


def test_publish_by_hand(hub, open_tab):
    tab = open_tab(hub, "publish")
    tab.type("Address", "hand/made")
    tab.type("Value", '{"n": 1}')
    tab.type("Headers", "Unit: C\nother: two words")
    tab.type("Content type", "application/json")
    tab.click("button.main")
    tab.wait_text("Stored in hand, partition")
    (message,) = ask(hub, "GET", "/v1/topics/hand/messages")["messages"]
    assert (message["address"], message["value"], message["headers"], message["content_type"]) == (
        "hand/made", '{"n": 1}', [["Unit", "C"], ["other", "two words"]], "application/json")
    tab.type("Headers", "no colon")
    tab.click("button.main")
    tab.wait_text("“no colon” is no header", ".problem")
    tab.type("Headers", "")
    tab.evaluate("document.querySelectorAll('textarea')[1].value = ''")
    tab.type("Address", "$reserved/x")
    tab.click("button.main")
    tab.wait("document.querySelector('.problem') || document.querySelector('.good')")


def test_circuits_are_opened_and_closed(hub, open_tab):
    tab = open_tab(hub, "circuits")
    tab.wait_text("catalogue:database")
    tab.click("button", "Open the circuit catalogue:database")
    tab.click("dialog button", "Open it")
    tab.wait_text("open by hand")
    assert ask(hub, "GET", "/v1/circuits/catalogue:database")["by_hand"]
    tab.click("button", "Close the circuit catalogue:database")
    tab.wait_gone("open by hand", "tbody")
    assert ask(hub, "GET", "/v1/circuits/catalogue:database")["circuit"] == "closed"


def test_scheduled_messages_are_recalled(hub, open_tab):
    first, second = publish(hub, {"address": "later/first", "value": "wake up", "delay": 3600},
                            {"address": "later/second", "value": "tick", "repeat": "0 8 29 2 *"})
    tab = open_tab(hub, "scheduled")
    tab.wait_text("later/first")
    tab.wait_text("0 8 29 2 *, 0 so far")
    tab.click("button", "Recall the message for later/first")
    tab.click("dialog button", "Cancel")
    assert ask(hub, "GET", f"/v1/scheduled/{first['id']}")["state"] == "waiting"
    tab.click("button", "Recall the message for later/first")
    tab.click("dialog button", "Recall it")
    tab.wait_gone("later/first", "tbody")
    assert ask(hub, "GET", f"/v1/scheduled/{first['id']}")["state"] == "recalled"
    ask(hub, "DELETE", f"/v1/scheduled/{second['id']}")
    tab.wait_text("No message waits for its time.")


def test_a_queue_is_looked_into_moved_purged_and_deleted(hub, open_tab):
    for queue in ("inbox", "outbox"):
        ask(hub, "PUT", f"/v1/queues/{queue}", {})
        ask(hub, "PUT", f"/v1/queues/{queue}/bindings", {"filter": f"{queue}/#"})
    publish(hub, *({"address": "inbox/a", "value": f"letter {number}"} for number in range(3)))
    tab = open_tab(hub, "queues")
    tab.wait_text("inbox")
    tab.click("main a", "inbox")
    tab.wait("document.querySelectorAll('tbody tr').length === 3")
    tab.wait_text("letter 2")
    tab.wait_text("inbox/#")
    tab.type("Move to queue", "outbox")
    tab.press("Enter", 13)
    tab.wait_text("3 messages moved")
    tab.wait_text("Nothing is in this queue.")
    assert ask(hub, "GET", "/v1/queues/outbox")["ready"] == 3
    tab.go("queues/outbox")
    tab.wait("document.querySelectorAll('tbody tr').length === 3")
    tab.click("button", "Purge")
    tab.click("dialog button", "Purge it")
    tab.wait_text("3 messages purged")
    tab.click("button", "Delete")
    tab.click("dialog button", "Delete it")
    tab.wait_text("inbox", "td.first")
    tab.wait_gone("outbox", "tbody")
    ask(hub, "DELETE", "/v1/queues/inbox")


def test_dead_letters_go_back(hub, open_tab):
    ask(hub, "PUT", "/v1/groups/billing", {})
    publish(hub, *({"address": f"orders/{number}", "value": f"order {number}"} for number in range(4)))
    popped = bury(hub, "billing", "orders", 4)
    tab = open_tab(hub, "groups")
    tab.wait_text("billing")
    tab.click("main a", "billing")
    tab.wait_text("Settings", "h2")
    tab.click("main a", "Dead letters")
    tab.wait("document.querySelectorAll('tbody tr').length === 4")
    assert "rejected, 1 attempt" in tab.text("tbody")
    tab.click("button", f"Redrive the message for {popped[0]['address']}")
    tab.wait_text("1 sent back")
    tab.wait("document.querySelectorAll('tbody tr').length === 3")
    tab.click("button", "Redrive all")
    tab.click("dialog button", "Redrive all")
    tab.wait_text("3 sent back")
    tab.wait_text("This group has given up nothing.")
    assert len(bury(hub, "billing", "orders", 4)) == 4


def test_the_journey_of_a_message_and_why_it_is_not_there(hub, open_tab, shots):
    ask(hub, "PUT", "/v1/groups/shippers", {})
    publish(hub, {"address": "parcels/1", "value": "a parcel"})
    letter, = bury(hub, "shippers", "parcels", 1)
    ask(hub, "POST", "/v1/dead-letters/redrive", {"group": "shippers", "all": True})
    tab = open_tab(hub, "trace")
    tab.type("Value", letter["id"])
    tab.press("Enter", 13)
    tab.wait_text("redriven", ".timeline")
    steps = tab.evaluate("[...document.querySelectorAll('.timeline b')].map((what) => what.textContent)")
    assert steps == ["stored", "given up", "redriven"]
    assert "parcels, partition" in tab.text(".facts") and "object" not in tab.text("main")
    assert "(from the log)" in tab.text(".timeline") and "rejected" in tab.text(".timeline")
    tab.wait_text("shippers", "tbody")
    tab.type("Why not at", "nobody")
    tab.press("Enter", 13)
    tab.wait_text("there is no group or queue 'nobody'")
    tab.screenshot(shots / "trace.png")


def test_retained_values_are_looked_up(hub, open_tab):
    publish(hub, *({"address": f"kept/{line}/temp", "value": f"{line}0.5", "retain": True} for line in range(1, 4)),
            {"address": "kept/door", "value": "closed", "retain": True})
    tab = open_tab(hub, "retained")
    tab.wait_text("closed")
    tab.type("Address or filter", "kept/+/temp")
    tab.press("Enter", 13)
    tab.wait("document.querySelectorAll('tbody tr').length === 3")     # never so on the page of "#"
    tab.type("Address or filter", "kept/2/temp")
    tab.press("Enter", 13)
    tab.wait("document.querySelectorAll('tbody tr').length === 1")
    tab.type("Address or filter", "kept/nothing")
    tab.press("Enter", 13)
    tab.wait_text("No address that matches keeps a value.")


def test_nothing_that_comes_from_the_hub_is_html(hub, open_tab):
    stored = publish(
            hub, {"topic": "evil", "key": EVIL, "value": EVIL, "headers": [[EVIL, EVIL]], "content_type": "text/html"},
            {"topic": "evil", "key": "turned\u202egnp.exe", "value": "a\u0007b"},
            {"address": "evil/later", "value": EVIL, "delay": 3600, "headers": [["x", EVIL]]},
            {"address": "evil/kept", "value": EVIL, "retain": True})
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=EVIL)
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.subscribe(f"{EVIL}/+")
    client.loop_start()
    group = EVIL.replace("/", "")
    ask(hub, "PUT", group_path(group), {})
    bury(hub, group, "evil", 1)
    tab = open_tab(hub, "topics/evil")
    tab.wait("document.querySelectorAll('details.message').length === 3")        # what comes later moves what is there
    for _ in range(2):
        tab.click("details.message:not([open]) summary", "onerror")
    for text in (f"Key\n{EVIL}", f"{EVIL}\n{EVIL}", "turned\\u{202e}gnp.exe", "a\\u{7}b"):
        tab.wait_text(text, ".messages")
    for place in ("groups", "queues", "connections", "scheduled", "retained/%23",
                  f"dead-letters/{tab.evaluate(f'encodeURIComponent({json.dumps(group)})')}"):
        tab.go(place)
        tab.wait_text("onerror=alert", "main")
        assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0, place
    ask(hub, "DELETE", f"/v1/scheduled/{stored[2]['id']}")
    client.disconnect()
    client.loop_stop()


def test_a_phone_needs_no_scrolling_sideways(hub, open_tab):
    wide = "w" * 200
    stored = publish(
            hub, {"address": f"wide/{wide}", "value": wide * 20, "headers": [[wide, wide]]},
            {"address": f"wide/{wide}", "value": wide, "delay": 3600},
            {"address": f"wide/{wide}", "value": "x", "retain": True},
            {"address": "wide/binary", "value_base64": "AAEC" * 50})
    ask(hub, "PUT", "/v1/groups/keepers", {})
    ask(hub, "PUT", "/v1/queues/wide", {})
    ask(hub, "PUT", f"/v1/groups/{wide}", {})
    bury(hub, "keepers", "wide", 1)
    tab = open_tab(hub, width=390, height=844)
    for place in PAGES:
        tab.go(place)
        tab.wait("document.querySelector('#view .empty:not([hidden]), #view tbody tr, #view form, #view .messages li')")
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert not tab.overflows(), place
    ask(hub, "DELETE", f"/v1/scheduled/{stored[1]['id']}")


def test_tables_fit_every_width(hub, open_tab):
    for width in (768, 1024, 1180, 1280):
        tab = open_tab(hub, width=width)
        tab.wait_text("kafka", "td.first")
        assert not tab.overflows(), width
        assert tab.evaluate("""[...document.querySelectorAll(".table")].every(one =>
            one.scrollWidth <= one.clientWidth)"""), width


def test_a_page_for_readers_of_screens_and_keys(hub, open_tab):
    """One heading of the first order, landmarks, labels on every field, a focus that follows, no key traps."""
    tab = open_tab(hub)
    tab.wait("document.querySelector('h1')")
    for place in PAGES:
        tab.go(place)
        tab.wait("document.activeElement.tagName === 'H1' || !location.hash.slice(2)", f"focus on the heading: {place}")
        assert tab.evaluate("document.querySelectorAll('h1').length") == 1
        assert tab.evaluate("""[...document.querySelectorAll("input, select, textarea")].filter(one =>
            one.checkVisibility() && !one.labels?.length && !one.getAttribute("aria-label")).length""") == 0, place
        assert tab.evaluate("""[...document.querySelectorAll("button, a")].filter(one => one.checkVisibility()
            && !one.textContent.trim() && !one.getAttribute("aria-label")).length""") == 0, place
    assert tab.evaluate("document.querySelectorAll('main, nav[aria-label], header').length") == 3
    assert tab.evaluate("document.querySelector('nav [aria-current=page]').textContent") == "Users"


def test_light_and_dark_are_different(hub, open_tab):
    colours = [open_tab(hub, dark=dark).evaluate("getComputedStyle(document.body).backgroundColor")
               for dark in (False, True)]
    assert colours[0] != colours[1]


def test_a_connection_is_closed(hub, open_tab):
    closed = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="thermostat-17")
    client.on_disconnect = lambda *_: closed.set()
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.subscribe([("plant/+/temp", 1), ("orders/#", 0)])
    client.reconnect_delay_set(60, 60)
    client.loop_start()
    tab = open_tab(hub, "connections")
    tab.type("Filter by client", "THERMO")
    tab.wait("document.querySelectorAll('tbody tr').length === 1")
    tab.wait_text("mqtt", "tbody tr")
    tab.wait_text("2", "summary")
    tab.click("summary", "2")
    tab.wait_text("plant/+/temp", "tbody li")
    tab.wait_text("orders/#", "tbody li")
    tab.click("button", "Close the connection of thermostat-17")
    tab.click("dialog button", "Close it")
    assert closed.wait(60), "the client was told nothing"
    tab.wait_text("Nothing here has “THERMO” in its name.", ".empty")
    client.loop_stop()


def test_transactions_are_decided_by_hand(hub, open_tab):
    begun = [ask(hub, "POST", "/v1/transactions", {
        "group": "shop", "messages": [{"address": f"sales/{number}", "value": f"sale {number}"}],
        "check": {"after": 600, "every": 600}})["id"] for number in range(3)]
    tab = open_tab(hub, "transactions")
    tab.wait_text("sales/2")
    tab.wait_text(begun[2])
    tab.wait_text("none of 15")
    tab.click("button", "Check the transaction of sales/0")
    tab.wait_text("1 of 15")
    tab.click("summary", "1 of 15")
    tab.wait_text("nobody was there")
    tab.click("button", "Commit the transaction of sales/0")
    tab.click("dialog button", "Commit it")
    tab.wait_gone("sales/0", "tbody")
    tab.click("button", "Roll back the transaction of sales/1")
    tab.click("dialog button", "Roll it back")
    tab.wait_gone("sales/1", "tbody")
    states = [ask(hub, "GET", f"/v1/transactions/{one}")["state"] for one in begun]
    assert states == ["committed", "rolled_back", "open"]
    assert [one["value"] for one in ask(hub, "GET", "/v1/topics/sales/messages")["messages"]] == ["sale 0"]
    tab.evaluate("""(() => { const state = document.querySelector("select");
        state.value = "committed"; state.dispatchEvent(new Event("change")); })()""")
    tab.wait_text("sales/0", "tbody")
    tab.wait_text("by anonymous", "tbody")
    tab.click("a", "shop")
    tab.wait_text("sales/2", "tbody")
    tab.wait_gone("sales/0", "tbody")
    ask(hub, "POST", f"/v1/transactions/{begun[2]}/rollback", {})
