// Links to hubs in other networks: this hub, the meeting point and the other hubs as a drawing, and what each link does.

import { ask, get, path } from "./api.js";
import { bytes, count, duration, fill, h, moment, name, number, visible } from "./dom.js";
import { confirmed, field, heading } from "./page.js";
import { svg } from "./svg.js";
import { Table } from "./table.js";

const INTERVAL_MS = 2000;
const ROW = 56;
const BOX = { width: 204, height: 36 };
const LEFT = 4;
const MIDDLE = 298;
const RIGHT = 592;
const WIDTH = RIGHT + BOX.width + 4;
const INVITED = ["not joined", "joining"];
const WHY = { deleted: "retention had deleted it", too_large: "larger than the meeting point carries",
  parted: "a hub was restored from an older copy", sent_again: "sent once more: the other hub had lost it",
  topic_gone: "the topic was deleted" };
const CUT = 26;                    // characters of a name that a box has room for

export function links(page, hub) {
  let invited = null;                // the link whose invitation is shown
  const drawing = h("div.drawing");
  const facts = h("dl.facts.wide");
  const told = h("p.card.invitation", { role: "status", hidden: true });
  const table = new Table("Links", [
    { title: "Link", cell: (row) => name(row.name) },
    { title: "Other hub", cell: (row) => row.peer ? name(row.peer) : "–" },
    { title: "State", signature: (row) => `${row.state} ${row.fault ?? ""}`,
      cell: (row) => h("div", {}, h(`span.${kindOf(row.state)}`, {}, row.state), row.fault ? h("small", {}, visible(row.fault)) : null) },
    { title: "Not there yet", number: true, cell: (row) => row.lag ? number(row.lag.messages) : "–" },
    { title: "Behind", number: true, cell: (row) => row.lag?.ms ? duration(row.lag.ms) : "–" },
    { title: "Sent", number: true, cell: (row) => row.sent ? `${number(row.sent.messages)}, ${bytes(row.sent.bytes)}` : "–" },
    { title: "Received", number: true, cell: (row) => row.received ? `${number(row.received.messages)}, ${bytes(row.received.bytes)}` : "–" },
    { title: "Parked", number: true, cell: (row) => row.received ? number(row.received.parked) : "–" },
    { title: "Kept for it", number: true, cell: (row) => row.spool?.wanted ? `${number(row.spool.kept_messages)}, ${bytes(row.spool.kept_bytes)}` : "–" },
    { title: "Lost", number: true, cell: (row) => row.received ? number(row.sent.lost + row.received.lost) : "–" },
    { title: "Actions", hidden: true, signature: (row) => row.state, cell: actions },
  ], (row) => row.name, "The configuration of this hub has no link.");
  const history = new Table("Lost, or came twice", [
    { title: "Link", cell: (row) => name(row.link) },
    { title: "Way", cell: (row) => row.way },
    { title: "Why", cell: (row) => WHY[row.why] ?? visible(row.why) },
    { title: "Topic", cell: (row) => name(row.topic) },
    { title: "Partition", number: true, cell: (row) => number(row.partition) },
    { title: "From offset", number: true, cell: (row) => number(row.first) },
    { title: "Messages", number: true, cell: (row) => row.count ? number(row.count) : "not known" },
    { title: "When", cell: (row) => moment(row.at_ms) },
  ], (row) => `${row.link} ${row.way} ${row.why} ${row.topic} ${row.partition} ${row.first} ${row.at_ms}`, "Nothing.");
  const lost = h("section", { hidden: true }, h("h2", {}, "Lost, or came twice"), history.element);
  const nowhere = h("p.empty", { hidden: true }, "The configuration of this hub has no [relay].");
  const again = page.every(INTERVAL_MS, async () => {
    if (!nowhere.hidden) return;
    const relay = await get("/v1/relay", {}, page.signal).catch((error) => {
      if (error.code !== "no_links") throw error;
      nowhere.hidden = false;
    });
    for (const form of forms) form.hidden = !relay;
    if (!relay) return;
    fill(facts, [["this hub's key", h("code", {}, relay.key)], ["meeting point", visible(relay.url)],
      ["connection", h(`span.${kindOf(relay.state)}`, {}, relay.state, relay.fault ? `: ${visible(relay.fault)}` : "")],
    ].flatMap(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
    fill(drawing, draw(hub.status.hub, relay));
    table.update(relay.links);
    const losses = relay.links.flatMap((link) => [["sent", link.sent], ["received", link.received]].flatMap(([way, side]) =>
      (side?.lost_ranges ?? []).map((loss) => ({ ...loss, link: link.name, way }))));
    lost.hidden = !losses.length;
    history.update(losses.sort((one, other) => other.at_ms - one.at_ms));
    told.hidden ||= !relay.links.some((link) => link.name === invited && INVITED.includes(link.state));
  });
  function actions(row) {
    const button = (title, act) => h("button", { type: "button", onclick: act, "aria-label": `${title} ${visible(row.name)}` }, title);
    const act = (what) => async () => { await page.attempt(() => ask("POST", path("v1", "relay", "links", row.name, what))); again(); };
    if (row.state === "not configured") return button("Forget", () => forget(row));
    return h("div.buttons", {}, INVITED.includes(row.state) ? button("Invite", () => invite(row))
      : row.state === "paused" || row.state === "stopped" ? button("Resume", act("resume")) : button("Pause", act("pause")));
  }
  async function invite(row) {
    await page.attempt(async () => {
      const answer = await ask("POST", path("v1", "relay", "links", row.name, "invite"), { body: {} });
      fill(told, "Join with this on the other hub, once and within an hour; show it to nobody else: ", h("code", {}, answer.invitation));
      invited = row.name;
      told.hidden = false;
    });
    again();
  }
  async function forget(row) {
    const question = h("span", {}, "Forget who is at the other end of ", name(row.name), "? Its key is worth nothing from then on.");
    if (!await confirmed(question, "Forget it")) return;
    await page.attempt(() => ask("DELETE", path("v1", "relay", "links", row.name)));
    again();
  }
  const forms = [joining(page, again), explaining(page)];
  return h("div", {}, heading("Links"), nowhere, facts, drawing, table.element, lost, told, ...forms);
}

function kindOf(state) {
  if (state === "open" || state === "online") return "good";
  return state === "stopped" || state === "offline" || state === "waiting" ? "bad" : "soft";
}

// --- the drawing ----------------------------------------------------------------------------------------------------

/** This hub, the meeting point, and a box for each other hub; a line is as its link is. */
function draw(hubName, relay) {
  const rows = relay.links.filter((link) => link.peer);
  if (!rows.length) return null;
  const height = Math.max(rows.length, 1) * ROW + 8;
  const center = height / 2;
  const inWords = rows.map((row) => `${visible(row.peer)}: ${row.state}`).join(", ");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", class: "links",
    "aria-label": `This hub's meeting point is ${relay.state}. Hubs behind it: ${inWords}` });
  picture.append(line(LEFT + BOX.width, center, MIDDLE, center, kindOf(relay.state)),
    box(LEFT, center, visible(hubName), "this hub"),
    box(MIDDLE, center, "meeting point", relay.state));
  rows.forEach((row, at) => {
    const y = at * ROW + ROW / 2 + 4;
    picture.append(line(MIDDLE + BOX.width, center, RIGHT, y, kindOf(row.state)),
      box(RIGHT, y, visible(row.peer), `${row.state}${row.lag?.messages ? `, ${count(row.lag.messages, "message")} to send` : ""}`));
  });
  return picture;
}

function line(x1, y1, x2, y2, kind) {
  return svg("line", { x1, y1, x2, y2, class: kind });
}

function box(x, y, title, below) {
  const group = svg("g", {});
  const text = (content, dy, kind) => {
    const element = svg("text", { x: x + BOX.width / 2, y: y + dy, "text-anchor": "middle", class: kind });
    element.textContent = content;
    return element;
  };
  group.append(svg("rect", { x, y: y - BOX.height / 2, width: BOX.width, height: BOX.height, rx: 6 }),
    text(title.length > CUT ? title.slice(0, CUT - 1) + "…" : title, -2, "title"), text(below, 13, "below"));
  return group;
}

// --- forms ----------------------------------------------------------------------------------------------------------

function joining(page, again) {
  const text = h("input", { required: true, spellcheck: "false", autocomplete: "off" });
  const done = h("span.good", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    fill(done);
    await page.attempt(async () => {
      const answer = await ask("POST", "/v1/relay/join", { body: { invitation: text.value.trim() } });
      text.value = "";
      fill(done, "joined ", name(answer.link));
    });
    again();
  };
  return h("form.card", { onsubmit: submit }, field("Join with an invitation", text, "What the other hub's people have made"),
    h("div.buttons", {}, h("button", { type: "submit" }, "Join"), done));
}

function explaining(page) {
  const link = h("input", { required: true, spellcheck: "false", autocomplete: "off" });
  const address = h("input", { required: true, spellcheck: "false", autocomplete: "off" });
  const answer = h("p", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    fill(answer);
    await page.attempt(async () => {
      const told = await get(path("v1", "relay", "links", link.value.trim(), "explain"), { address: address.value }, page.signal);
      const there = told.out.taken_there === null ? "whether the other hub takes it is not known yet"
        : told.out.taken_there ? "the other hub takes it" : "the other hub does not take it";
      fill(answer, told.out.sent ? `Sent, and ${there}. ` : "Not sent. ",
        told.in.received ? h("span", {}, "From there it is taken, and is here ", name(told.in.address_here), ".") : "From there it is not taken.");
    });
  };
  return h("form.card", { onsubmit: submit }, h("div.columns", {}, field("Link", link), field("Address", address, "As the sending hub calls it")),
    h("div.buttons", {}, h("button", { type: "submit" }, "Explain")), answer);
}
