// Queues: AMQP's, dead letters, backlogs of shared filters.

import { ago, h, moment, name, number } from "./dom.js";
import { listing } from "./listing.js";
import { heading } from "./page.js";

export function queues(page) {
  const list = listing(page, {
    path: () => "/v1/queues", query: () => ({ counts: "true" }), field: "queues", key: (row) => row.name,
    caption: "Queues", filter: "Filter by name",
    empty: "There are no queues. AMQP clients and shared filters make them.",
    columns: [
      { title: "Queue", cell: (row) => name(row.name) },
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
