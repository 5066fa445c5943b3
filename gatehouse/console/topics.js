// Topics with what they hold; one topic with its partitions and its messages as they come.

import { get, path } from "./api.js";
import { h, link, moment, name, number, route, duration, visible } from "./dom.js";
import { listing } from "./listing.js";
import { heading } from "./page.js";
import { Table } from "./table.js";
import { LiveMessages } from "./live.js";

const DETAILS_MS = 3000;
const PARTITIONS_SHOWN = 64;
const SETTINGS = { retention_ms: "Retention", message_ttl_ms: "Time to live", delete_retention_ms: "Deletions kept",
  max_message_bytes: "Largest message", compact: "Compacted", interpret_headers: "Headers interpreted" };

export function topics(page) {
  const list = listing(page, {
    path: () => "/v1/topics", query: () => ({ counts: "true" }), field: "topics", key: (row) => row.name,
    caption: "Topics", filter: "Filter by name", empty: "There are no topics yet. A topic is made by its first message.",
    columns: [
      { title: "Topic", cell: (row) => link(route("topics", row.name), name(row.name)) },
      { title: "Messages", number: true, cell: (row) => number(row.messages) },
      { title: "Partitions", number: true, cell: (row) => number(row.partitions) },
      { title: "Groups", number: true, cell: (row) => number(row.groups) },
      { title: "Largest lag", number: true, cell: (row) => row.groups ? number(row.lag) : "–" },
      { title: "Made", cell: (row) => moment(row.created) },
    ],
  });
  return h("div", {}, heading("Topics"), list.element);
}

export function topic(page, hub, topicName) {
  const facts = h("dl.facts.wide");
  const bounds = new Table("Partitions", [
    { title: "Partition", number: true, cell: (row) => number(row.partition) },
    { title: "Messages", number: true, cell: (row) => number(row.high_watermark - row.log_start_offset) },
    { title: "First offset", number: true, cell: (row) => number(row.log_start_offset) },
    { title: "Next offset", number: true, cell: (row) => number(row.high_watermark) },
  ], (row) => row.partition, "No partitions.");
  const partitions = h("details", {}, h("summary", {}, "Partitions"), bounds.element);
  const live = new LiveMessages(page, topicName);
  live.listen();
  page.every(DETAILS_MS, async () => {
    const found = await get(path("v1", "topics", topicName), {}, page.signal);
    const messages = found.bounds.reduce((sum, one) => sum + one.high_watermark - one.log_start_offset, 0);
    facts.replaceChildren(...Object.entries({ Messages: number(messages), Partitions: number(found.partitions), ...settings(found) })
      .flatMap(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
    bounds.update(found.bounds.slice(0, PARTITIONS_SHOWN));
  });
  return h("div", {}, heading(h("span", {}, name(topicName)), link(route("publish", topicName), "Publish here")), facts,
    partitions, live.element);
}

function settings(found) {
  const shown = {};
  for (const [field, title] of Object.entries(SETTINGS)) {
    const value = found[field];
    if (value !== null && value !== false && value !== undefined) {
      shown[title] = value === true ? "yes" : field.endsWith("_ms") ? duration(value) : visible(number(value));
    }
  }
  return shown;
}
