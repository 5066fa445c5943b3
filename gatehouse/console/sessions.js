// Sessions that outlive their connections: whose they are, what waits, what they were not given, and ending one.

import { ask, get, path } from "./api.js";
import { fill, h, name, number, visible } from "./dom.js";
import { listing } from "./listing.js";
import { confirmed, heading } from "./page.js";

export function sessions(page) {
  const list = listing(page, {
    path: () => "/v1/sessions", rows: (answer) => answer.sessions, key: (row) => row.client_id, caption: "Sessions", interval: 2000,
    empty: "No session outlives its connection.",
    columns: [
      { title: "Client", cell: (row) => name(row.client_id) },
      { title: "User", cell: (row) => name(row.user) },
      { title: "State", cell: (row) => row.connected ? "connected" : "asleep" },
      { title: "Ends", cell: (row) => row.expires ? new Date(row.expires).toLocaleString() : "–" },
      { title: "Filters", signature: (row) => String(row.subscriptions),
        cell: (row) => row.subscriptions ? filters(page, row) : "–" },
      { title: "Waiting", number: true, cell: (row) => number(row.waiting) },
      { title: "In flight", number: true, cell: (row) => number(row.in_flight) },
      { title: "Not given", number: true, cell: (row) => number(Object.values(row.dropped).reduce((sum, count) => sum + count, 0)) },
      { title: "Actions", hidden: true, signature: () => "",
        cell: (row) => h("button", { type: "button", "aria-label": `End the session of ${visible(row.client_id)}`, onclick: () => end(row) }, "End") },
    ],
  });
  async function end(row) {
    const question = h("span", {}, "End the session of ", name(row.client_id), ` with the ${number(row.waiting)} messages that wait for it?`);
    if (!await confirmed(question, "End it")) return;
    await page.attempt(() => ask("DELETE", path("v1", "sessions", row.client_id)));
    list.again();
  }
  return h("div", {}, heading("Sessions"), list.element);
}

/** How many there are; which, once somebody wants to know. */
function filters(page, row) {
  const list = h("ul", {}, h("li.soft", {}, "…"));
  const element = h("details", {}, h("summary", {}, number(row.subscriptions)), list);
  element.addEventListener("toggle", () => element.open && page.attempt(async () => {
    const session = await get(path("v1", "sessions", row.client_id), {}, page.signal);
    fill(list, session.filters.map((each) => h("li", {}, name(each.filter), ` QoS ${each.qos}`)));
  }));
  return element;
}
