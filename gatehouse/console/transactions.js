// Transactions: what is undecided and for how long, who was asked, what was decided and by whom; deciding by hand.

import { ask, path } from "./api.js";
import { ago, count, duration, h, link, moment, name, number, route, visible } from "./dom.js";
import { listing } from "./listing.js";
import { confirmed, heading } from "./page.js";

const STATES = new Map([["open", "undecided"], ["committed", "committed"], ["rolled_back", "rolled back"], ["expired", "expired"]]);
const AGES = new Map([["", "any age"], ["60", "older than a minute"], ["600", "older than 10 minutes"],
  ["3600", "older than an hour"], ["86400", "older than a day"]]);

export function transactions(page, hub, groupName) {
  const choice = (label, values) => h("select", { "aria-label": label, onchange: () => list.restart() },
    [...values].map(([value, title]) => h("option", { value }, title)));
  const state = choice("State", STATES);
  const age = choice("Age", AGES);
  const group = h("input", { "aria-label": "Group", placeholder: "Group", spellcheck: "false", autocomplete: "off",
    value: groupName ?? "" });
  const list = listing(page, {
    path: () => "/v1/transactions", field: "transactions", key: (row) => row.id, caption: "Transactions",
    query: () => ({ state: state.value, group: group.value.trim(), older_than: age.value }),
    empty: "There are no such transactions.",
    columns: [
      { title: "First address", cell: (row) => h("div", {}, name(row.address), h("small", {}, row.id)) },
      { title: "Group", cell: (row) => h("div", {}, row.group ? link(route("transactions", row.group), name(row.group)) : "–",
        h("small", {}, "by ", name(row.by))) },
      { title: "Messages", number: true, cell: (row) => number(row.messages) },
      { title: "Age", number: true, cell: (row) => ago(row.begun, Date.now()) },
      { title: "Checks", signature: (row) => `${row.checks.length} ${row.state}`, cell: checks },
      { title: "Then", cell: then },
      { title: "Actions", hidden: true, signature: (row) => row.state, cell: (row) => row.state === "open" ? actions(row) : "" },
    ],
  });
  function actions(row) {
    const button = (title, act) => h("button", { type: "button", onclick: act,
      "aria-label": `${title} the transaction of ${visible(row.address)}` }, title);
    return h("div.buttons", {}, button("Commit", () => decide(row, "commit", "Commit it")),
      button("Roll back", () => decide(row, "rollback", "Roll it back")),
      button("Check", () => send(row, "check")));
  }
  async function decide(row, what, answer) {
    const question = h("span", {}, "Decide in the place of ", name(row.by), ` about ${count(row.messages, "message")}, the first to `,
      name(row.address), "? This cannot be taken back.");
    if (await confirmed(question, answer)) await send(row, what);
  }
  async function send(row, what) {
    await page.attempt(() => ask("POST", path("v1", "transactions", row.id, what), { body: what === "check" ? undefined : {} }));
    list.again();
  }
  const form = h("form.bar", { onsubmit: (event) => { event.preventDefault(); list.restart(); } }, state, age, group,
    h("button", { type: "submit" }, "Show"));
  return h("div", {}, heading("Transactions"), form, list.element);
}

/** Who was asked, and when. */
function checks(row) {
  if (!row.checks.length) return `none of ${number(row.check.times)}`;
  const asked = row.checks.map((one) => h("li", {}, `${moment(one.at)}: `, one.to ? name(one.to) : "nobody was there"));
  return h("details", {}, h("summary", {}, `${number(row.checks.length)} of ${number(row.check.times)}`), h("ul", {}, asked));
}

function then(row) {
  if (row.state !== "open") return h("span", {}, `${moment(row.decided)} by `, row.decided_by ? name(row.decided_by) : "the hub");
  if (!row.next) return "–";
  const what = !row.group || row.checks.length >= row.check.times ? "given up" : "asked";
  return row.next > Date.now() ? `${what} in ${duration(row.next - Date.now())}` : `${what} now`;
}
