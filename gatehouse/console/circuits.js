// What the hub depends on and groups that may be paused, whether they are asked, and stopping or trying that by hand.

import { ask, path } from "./api.js";
import { h, name, number, time, visible } from "./dom.js";
import { listing } from "./listing.js";
import { confirmed, heading } from "./page.js";

export function circuits(page) {
  const list = listing(page, {
    path: () => "/v1/circuits", field: "circuits", key: (row) => row.id, caption: "Circuits",
    empty: "The hub depends on nothing that may be down.",
    columns: [
      { title: "Circuit", cell: (row) => name(row.id) },
      { title: "State", cell: (row) => row.by_hand ? "open by hand" : row.circuit },
      { title: "Tried at", cell: (row) => row.until === null ? "–" : time(row.until) },
      { title: "Opened", cell: (row) => number(row.opened) },
      { title: "Why", cell: (row) => visible(row.reason) },
      { title: "Actions", hidden: true, signature: (row) => row.circuit,
        cell: (row) => row.circuit === "closed" ? button(row, "Open", "open") : button(row, "Close", "closed") },
    ],
  });
  function button(row, label, wanted) {
    return h("button", { type: "button", "aria-label": `${label} the circuit ${visible(row.id)}`, onclick: () => turn(row, wanted) }, label);
  }
  async function turn(row, wanted) {
    const question = h("span", {}, "Open the circuit ", name(row.id), "? Nothing is asked over it until it is closed, or the hub ends (a group: over that, too).");
    if (wanted === "open" && !await confirmed(question, "Open it")) return;
    await page.attempt(() => ask("PUT", path("v1", "circuits", row.id), { body: { circuit: wanted } }));
    list.again();
  }
  return h("div", {}, heading("Circuits"), list.element);
}
