// A table that is kept up to date in place: rows stay the same elements while their key stays, so that what has the
// focus or is being read does not jump away.

import { fill, h } from "./dom.js";

/** columns: [{title, cell: (row) => text or element, number: right-aligned, hidden: title for readers only,
 *             signature: (row) => text that changes when the cell must be made again; else its text}] */
export class Table {
  constructor(caption, columns, key, empty) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.body = h("tbody", { role: "rowgroup" });
    const heads = columns.map((column) => h(column.number ? "th.num" : "th", { scope: "col", role: "columnheader" },
      column.hidden ? h("span.unseen", {}, column.title) : column.title));
    this.table = h("table", { role: "table" }, h("caption.unseen", {}, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), this.body);
    this.empty = h("p.empty", {}, empty);
    this.element = h("div.table", {}, this.table, this.empty);
    this.update([]);
    this.empty.hidden = true;
  }

  update(rows) {
    const seen = new Map();
    for (const row of rows) seen.set(this.key(row), this.rows.get(this.key(row)) ?? this.newRow());
    for (const [key, known] of this.rows) if (!seen.has(key)) known.element.remove();
    let before = null;
    rows.forEach((row) => {
      const known = seen.get(this.key(row));
      const place = before ? before.nextSibling : this.body.firstChild;
      if (known.element !== place) this.body.insertBefore(known.element, place);
      before = known.element;
      this.columns.forEach((column, at) => this.updateCell(known, column, at, row));
    });
    this.rows = seen;
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
  }

  newRow() {
    const cells = this.columns.map((column) => h(column.number ? "td.num" : "td", { role: "cell",
      data: column.hidden ? {} : { label: column.title } }));
    if (cells.length) cells[0].classList.add("first");
    return { element: h("tr", { role: "row" }, cells), cells, signatures: [] };
  }

  updateCell(known, column, at, row) {
    const content = column.signature ? null : column.cell(row);
    const signature = column.signature ? column.signature(row) : content?.textContent ?? String(content);
    if (known.signatures[at] === signature) return;
    known.signatures[at] = signature;
    fill(known.cells[at], column.signature ? column.cell(row) : content);
  }
}
