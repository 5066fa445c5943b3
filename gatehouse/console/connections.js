// Who is connected, to what they listen, and ending a connection.

import { ask, get, PAGE_ID, path } from "./api.js";
import { ago, bytes, fill, h, name, number, visible } from "./dom.js";
import { listing } from "./listing.js";
import { confirmed, heading } from "./page.js";

const SHOWN = 100;                 // filters or consumers of one connection
const CONSOLE = "console ";        // and the page's name: client id of a console's connections

export function connections(page) {
  const list = listing(page, {
    path: () => "/v1/connections", rows: (answer) => folded(answer.connections), key: (row) => row.id, caption: "Connections", interval: 2000,
    filter: "Filter by client, user or peer", empty: "Nobody is connected.",
    columns: [
      { title: "Client", cell: clientOf },
      { title: "Door", cell: (row) => visible(row.door) },
      { title: "Peer", cell: (row) => name(row.peer) },
      { title: "User", cell: (row) => row.user ? name(row.user) : "–" },
      { title: "Since", number: true, cell: (row) => row.since ? ago(row.since, Date.now()) : "–" },
      { title: "TLS", cell: (row) => row.tls ? visible(row.tls) : "no" },
      { title: "Listens to", signature: (row) => String(row.subscriptions),
        cell: (row) => row.subscriptions ? subscriptions(page, row) : "–" },
      { title: "Unsent", number: true, cell: (row) => row.unsent_bytes ? bytes(row.unsent_bytes) : "0" },
      { title: "Actions", hidden: true, signature: () => "",
        cell: (row) => row.client_id === CONSOLE + PAGE_ID ? "" : h("button", { type: "button", "aria-label": `Close the connection of ${visible(row.client_id || row.peer)}`,
          onclick: () => close(row) }, "Close") },
    ],
  });
  async function close(row) {
    const question = h("span", {}, "Close the connection of ", name(row.client_id || row.peer),
      "? Most clients connect again by themselves.");
    if (!await confirmed(question, "Close it")) return;
    for (const id of row.ids ?? [row.id]) await page.attempt(() => ask("DELETE", path("v1", "connections", id)));
    list.again();
  }
  return h("div", {}, heading("Connections"), list.element);
}

/** A browser opens several connections for one page: they are one row. */
function folded(rows) {
  const pages = new Map();
  const shown = [];
  for (const row of rows) {
    const known = row.client_id.startsWith(CONSOLE) ? pages.get(row.client_id) : null;
    if (known) {
      known.pages += 1;
      known.ids.push(row.id);
      known.since = Math.min(known.since, row.since);
      known.unsent_bytes += row.unsent_bytes;
    } else if (row.client_id.startsWith(CONSOLE)) {
      pages.set(row.client_id, { ...row, id: row.client_id, ids: [row.id], pages: 1 });
      shown.push(pages.get(row.client_id));
    } else shown.push(row);
  }
  return shown;
}

function clientOf(row) {
  if (!row.pages) return row.client_id ? name(row.client_id) : h("span.soft", {}, "unnamed");
  const which = { [CONSOLE + PAGE_ID]: "this page", [CONSOLE + "files"]: "files of consoles" }[row.client_id];
  return h("span.soft", {}, `${which ?? "another console"} (${number(row.pages)})`);
}

/** How many there are; which, once somebody wants to know. */
function subscriptions(page, row) {
  const list = h("ul", {}, h("li.soft", {}, "…"));
  const element = h("details", {}, h("summary", {}, number(row.subscriptions)), list);
  element.addEventListener("toggle", () => element.open && page.attempt(async () => {
    const { details } = await get(path("v1", "connections", row.id), {}, page.signal);
    const all = textsOf(details);
    fill(list, all.slice(0, SHOWN).map((one) => h("li", {}, name(one))),
      all.length > SHOWN ? h("li.soft", {}, `and ${number(all.length - SHOWN)} more`) : null);
  }));
  return element;
}

/** Filters of an MQTT connection, queues that an AMQP one consumes, whatever else a door tells as a list. */
function textsOf(details) {
  if (Array.isArray(details.filters)) return details.filters.map(String);
  if (!Array.isArray(details.channels)) return [JSON.stringify(details)];
  return details.channels.flatMap((channel) => Array.isArray(channel.consumers)
    ? channel.consumers.map((one) => typeof one === "string" ? one : JSON.stringify(one)) : [JSON.stringify(channel)]);
}
