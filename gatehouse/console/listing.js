// A list that the hub gives page by page: filtered by name, kept up to date, never more of it here than is shown.

import { get } from "./api.js";
import { h } from "./dom.js";
import { Table } from "./table.js";

const ROWS = 50;
const INTERVAL_MS = 3000;
const TYPING_MS = 250;

/** what: {path, field: of the answer, query, columns, key, caption, empty, filter: label or null, rows(answer), which may take its time,
 *         interval} */
export function listing(page, what) {
  const table = new Table(what.caption, what.columns, what.key, what.empty);
  const cursors = [""];                                   // of the pages up to the one that is shown
  let next = null;
  let contains = "";
  const again = page.every(what.interval ?? INTERVAL_MS, async () => {
    const asked = `${contains}\n${cursors.length}`;
    const answer = await get(what.path(), { max: ROWS, contains, cursor: cursors[cursors.length - 1],
      ...what.query?.() }, page.signal);
    if (asked !== `${contains}\n${cursors.length}`) return;
    const rows = what.rows ? await what.rows(answer) : answer[what.field];
    if (asked !== `${contains}\n${cursors.length}`) return;
    next = answer.cursor;
    table.update(rows);
    table.empty.textContent = contains ? `Nothing here has “${contains}” in its name.` : what.empty;
    back.disabled = cursors.length === 1;
    forward.disabled = !next;
    pager.hidden = back.disabled && forward.disabled;
    place.textContent = `Page ${cursors.length}`;
  });
  const back = h("button", { type: "button", onclick: () => { cursors.pop(); again(); } }, "Back");
  const forward = h("button", { type: "button", onclick: () => { cursors.push(next); again(); } }, "Next");
  const place = h("span", { role: "status" });
  const pager = h("div.pager", { hidden: true }, back, place, forward);
  const element = h("div.listing", {}, what.filter ? filterBox(what.filter, (text) => {
    contains = text;
    cursors.length = 1;
    again();
  }) : null, table.element, pager);
  return { element, again, table, restart: () => { cursors.length = 1; again(); } };
}

/** A box that tells what is typed into it, once typing pauses. */
function filterBox(label, onText) {
  let timer = null;
  return h("input.filter", { type: "search", "aria-label": label, placeholder: label, spellcheck: "false",
    autocomplete: "off", oninput: (event) => {
      clearTimeout(timer);
      const text = event.target.value.trim();
      timer = setTimeout(() => onText(text), TYPING_MS);
    } });
}
