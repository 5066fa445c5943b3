// The last values that addresses were told to keep.

import { get } from "./api.js";
import { h, name, route, time, visible } from "./dom.js";
import { opening, preview } from "./message.js";
import { field, heading } from "./page.js";
import { Table } from "./table.js";

const MAX = 100;

export function retained(page, hub, filter = "#") {
  const input = h("input", { required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "none", value: filter });
  const table = new Table("Retained values", [
    { title: "Address", cell: (row) => name(row.address) },
    { title: "Since", cell: (row) => time(row.timestamp) },
    { title: "Door", cell: (row) => visible(row.door) },
    { title: "Message", signature: (row) => row.id, cell: (row) => opening(row, preview(row)) },
  ], (row) => row.address, "No address that matches keeps a value.");
  let rows = [];
  let cursor = null;
  const more = h("button", { type: "button", hidden: true, onclick: () => page.attempt(load) }, "More");
  async function load() {
    const levels = filter.split("/").map(encodeURIComponent).join("/");
    let answer;
    try {
      answer = await get(`/v1/retained/${levels}`, { max: MAX, cursor }, page.signal);
    } catch (error) {
      if (error.code !== "nothing_retained") throw error;
      answer = { messages: [], cursor: null };
    }
    rows = rows.concat(answer.messages ?? [answer]);
    cursor = answer.cursor ?? null;
    table.update(rows);
    more.hidden = cursor === null;
  }
  page.attempt(load);
  const look = (event) => {
    event.preventDefault();
    if (input.value === filter) { rows = []; cursor = null; page.attempt(load); } else location.hash = route("retained", input.value);
  };
  return h("div", {}, heading("Retained"), h("form.bar", { onsubmit: look },
    field("Address or filter", input, "+ is any one level, # any number"), h("button", { type: "submit" }, "Look up")),
  table.element, h("div.pager", {}, more));
}
