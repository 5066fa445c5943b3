// Messages that wait for their time, and recalling them.

import { ask, path } from "./api.js";
import { duration, h, name, number, time, visible } from "./dom.js";
import { listing } from "./listing.js";
import { opening, preview } from "./message.js";
import { confirmed, heading } from "./page.js";

export function scheduled(page) {
  const list = listing(page, {
    path: () => "/v1/scheduled", field: "scheduled", key: (row) => row.id, caption: "Scheduled messages",
    empty: "No message waits for its time.",
    columns: [
      { title: "Due in", cell: (row) => duration(Math.max(0, row.due - Date.now())) },
      { title: "At", cell: (row) => time(row.due) },
      { title: "Address", cell: (row) => name(row.address) },
      { title: "Repeats", cell: (row) => row.repeat ? `${visible(row.repeat)}, ${number(row.times)} so far` : "once" },
      { title: "Message", signature: (row) => row.id, cell: (row) => opening(row, preview(row)) },
      { title: "Actions", hidden: true, signature: (row) => row.id,
        cell: (row) => h("button", { type: "button", "aria-label": `Recall the message for ${visible(row.address)}`,
          onclick: () => recall(row) }, "Recall") },
    ],
  });
  async function recall(row) {
    if (!await confirmed(h("span", {}, "Recall the message for ", name(row.address), "? It will not be delivered."), "Recall it")) return;
    await page.attempt(() => ask("DELETE", path("v1", "scheduled", row.id)));
    list.again();
  }
  return h("div", {}, heading("Scheduled"), list.element);
}
