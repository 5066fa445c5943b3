// Queues: AMQP's, dead letters, backlogs of shared filters. One queue: what is in it, purging, moving, deleting.

import { ask, get, path } from "./api.js";
import { ago, count, duration, fill, h, link, moment, name, number, route, time, visible } from "./dom.js";
import { listing } from "./listing.js";
import { opening, preview } from "./message.js";
import { confirmed, field, heading } from "./page.js";

const DETAILS_MS = 3000;

export function queues(page) {
  const list = listing(page, {
    path: () => "/v1/queues", query: () => ({ counts: "true" }), field: "queues", key: (row) => row.name,
    caption: "Queues", filter: "Filter by name",
    empty: "There are no queues. AMQP clients and shared filters make them.",
    columns: [
      { title: "Queue", cell: (row) => link(route("queues", row.name), name(row.name)) },
      { title: "Ready", number: true, cell: (row) => number(row.ready) },
      { title: "Leased", number: true, cell: (row) => number(row.leased) },
      { title: "Waiting", number: true, cell: (row) => number(row.waiting) },
      { title: "Oldest", number: true, cell: (row) => row.oldest_ms ? ago(row.oldest_ms, Date.now()) : "–" },
      { title: "Settled", number: true, cell: (row) => number(row.settled) },
      { title: "Made", cell: (row) => moment(row.created) },
    ],
  });
  return h("div", {}, heading("Queues"), list.element);
}

function spellSetting(title, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return title.endsWith("_ms") ? duration(value) : visible(String(value));
}

export function queue(page, hub, queueName) {
  const done = h("span.good", { role: "status" });
  const facts = h("dl.facts.wide");
  const to = h("input", { required: true, spellcheck: "false", autocomplete: "off" });
  const list = listing(page, {
    path: () => path("v1", "queues", queueName, "messages"), field: "messages", key: (row) => row.id,
    caption: `Messages in ${visible(queueName)}`, empty: "Nothing is in this queue.",
    columns: [
      { title: "Published", cell: (row) => time(row.timestamp) },
      { title: "Address", cell: (row) => name(row.address) },
      { title: "Held by somebody", cell: (row) => row.leased ? "yes" : "no" },
      { title: "Message", signature: (row) => row.id, cell: (row) => opening(row, preview(row)) },
    ],
  });
  page.every(DETAILS_MS, async () => {
    const [found, { bindings }] = await Promise.all([get(path("v1", "queues", queueName), {}, page.signal),
      get(path("v1", "queues", queueName, "bindings"), {}, page.signal)]);
    const { name: _, door: __, created, oldest_ms: ___, ...settings } = found;
    const shown = Object.entries(settings).filter(([, value]) => value !== "")
      .map(([title, value]) => [title.replace(/_ms$/, "").replaceAll("_", " "), spellSetting(title, value)]);
    fill(facts, ...[...shown, ["made", moment(created)], ["bound to", bindings.map((one) => visible(one.filter)).join(", ") || "nothing"]]
      .flatMap(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
  });
  async function purge() {
    if (!await confirmed(h("span", {}, "Take everything out of ", name(queueName), " that is ready? It is gone then."), "Purge it")) return;
    fill(done);
    await page.attempt(async () => {
      const answer = await ask("POST", path("v1", "queues", queueName, "purge"));
      fill(done, `${count(answer.purged, "message")} purged`);
    });
    list.restart();
  }
  async function remove() {
    if (!await confirmed(h("span", {}, "Delete ", name(queueName), " with everything in it?"), "Delete it")) return;
    if (await page.attempt(() => ask("DELETE", path("v1", "queues", queueName)))) location.hash = route("queues");
  }
  async function move(event) {
    event.preventDefault();
    fill(done);
    await page.attempt(async () => {
      let moved = 0;
      let answer;
      do {
        answer = await ask("POST", path("v1", "queues", queueName, "move"), { body: { queue: to.value } });
        moved += answer.moved;
      } while (answer.more && answer.moved && !answer.left.length);
      fill(done, `${count(moved, "message")} moved`);
      if (answer.left.length) throw new Error(answer.left[0].detail);
    });
    list.restart();
  }
  return h("div", {}, heading(h("span", {}, name(queueName)), h("button", { type: "button", onclick: purge }, "Purge"),
    h("button.danger", { type: "button", onclick: remove }, "Delete"), done), facts, list.element,
  h("form.card", { onsubmit: move }, field("Move to queue", to, "The name of a queue; what is ready goes there"),
    h("div.buttons", {}, h("button", { type: "submit" }, "Move"))));
}
