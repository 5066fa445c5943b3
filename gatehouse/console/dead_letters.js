// What a group gave up, why, and sending it back.

import { ask } from "./api.js";
import { count, fill, h, link, name, number, route, time, visible } from "./dom.js";
import { listing } from "./listing.js";
import { opening, preview } from "./message.js";
import { confirmed, field, heading } from "./page.js";

const QUEUE_PREFIX = "$dead-letters/";
const REASONS = { attempts: "too many attempts", rejected: "rejected", expired: "expired", overflow: "queue full",
  unanswered: "nobody answered" };

export function deadLetters(page, hub, groupName) {
  return groupName ? ofGroup(page, groupName) : ofAll(page);
}

function ofAll(page) {
  const group = h("input", { required: true, spellcheck: "false", autocomplete: "off" });
  const list = listing(page, {
    path: () => "/v1/queues", query: () => ({ counts: "true", contains: QUEUE_PREFIX }), caption: "Groups with dead letters",
    rows: (answer) => answer.queues.filter((one) => one.name.startsWith(QUEUE_PREFIX)), key: (row) => row.name,
    empty: "No group has given up a message.",
    columns: [
      { title: "Group", cell: (row) => link(route("dead-letters", groupOf(row)), name(groupOf(row))) },
      { title: "Dead letters", number: true, cell: (row) => number(row.ready) },
    ],
  });
  const open = (event) => { event.preventDefault(); location.hash = route("dead-letters", group.value); };
  return h("div", {}, heading("Dead letters"), list.element, h("form.card", { onsubmit: open },
    field("Group", group, "A group's dead letters by its name"), h("div.buttons", {}, h("button", { type: "submit" }, "Show"))));
}

function groupOf(row) {
  return row.name.slice(QUEUE_PREFIX.length);
}

function why({ reason, attempts, transaction }) {
  return `${REASONS[reason] ?? visible(reason)}, ${count(attempts, transaction ? "check" : "attempt")}`;
}

function ofGroup(page, groupName) {
  const done = h("span.good", { role: "status" });
  const list = listing(page, {
    path: () => "/v1/dead-letters", query: () => ({ group: groupName }), field: "messages", key: (row) => row.id,
    caption: `Dead letters of ${visible(groupName)}`, empty: "This group has given up nothing.",
    columns: [
      { title: "Died", cell: (row) => time(row.dead_letter.at) },
      { title: "Why", cell: (row) => why(row.dead_letter) },
      { title: "Address", cell: (row) => name(row.address) },
      { title: "Message", signature: (row) => row.id, cell: (row) => opening(row, preview(row)) },
      { title: "Actions", hidden: true, signature: (row) => row.id,
        cell: (row) => h("button", { type: "button", "aria-label": `Redrive the message for ${visible(row.address)}`,
          onclick: () => redrive({ ids: [row.id] }) }, "Redrive") },
    ],
  });
  async function redrive(which) {
    fill(done);
    await page.attempt(async () => {
      let redriven = 0;
      let answer;
      do {
        answer = await ask("POST", "/v1/dead-letters/redrive", { body: { group: groupName, ...which } });
        redriven += answer.redriven;
      } while (answer.more && answer.redriven);
      fill(done, `${number(redriven)} sent back${answer.left.length ? `, ${number(answer.left.length)} stay` : ""}`);
      if (answer.left.length) throw new Error(answer.left[0].detail);
    });
    list.restart();
  }
  async function redriveAll() {
    const question = h("span", {}, "Send all dead letters of ", name(groupName), " back to where they came from?");
    if (await confirmed(question, "Redrive all")) await redrive({ all: true });
  }
  return h("div", {}, heading(h("span", {}, "Dead letters of ", name(groupName)),
    h("button", { type: "button", onclick: redriveAll }, "Redrive all"), done), list.element);
}

