// Groups: what is ready, leased and waiting for each, topic by topic.

import { get, path } from "./api.js";
import { ago, duration, h, link, name, number, route, visible } from "./dom.js";
import { listing } from "./listing.js";
import { heading } from "./page.js";
import { Table } from "./table.js";

const DETAILS_MS = 3000;
const QUEUE_PREFIX = "$dead-letters/";
const DEAD_PAGES = 5;              // of a thousand queues

export function groups(page) {
  const list = listing(page, {
    path: () => "/v1/groups", query: () => ({ counts: "true" }),
    rows: async (answer) => withDead(page, answer.groups.flatMap(perTopic), ""),
    key: (row) => `${row.name}\n${row.topic ?? ""}`, caption: "Groups", filter: "Filter by name",
    empty: "There are no groups yet. A group is made by its first consumer.",
    columns: [
      { title: "Group", cell: (row) => link(route("groups", row.name), name(row.name)) },
      { title: "Topic", cell: (row) => row.topic ? link(route("topics", row.topic), name(row.topic)) : "–" },
      { title: "Kind", cell: (row) => row.ordered ? `${row.kind}, ordered` : row.kind },
      ...countColumns(),
    ],
  });
  return h("div", {}, heading("Groups", link(route("dead-letters"), "Dead letters")), list.element);
}

function perTopic(one) {
  const { topics, ...rest } = one;
  return topics?.length ? topics.map((progress) => ({ ...rest, ...progress })) : [rest];
}

/** What lies in the groups' dead-letter queues now; what the groups count is all that died since the hub's start. */
async function withDead(page, rows, groupName) {
  const lying = new Map();
  let cursor = "";
  for (let at = 0; at < DEAD_PAGES && cursor !== null; at += 1) {
    const answer = await get("/v1/queues", { counts: "true", contains: QUEUE_PREFIX + groupName, max: 1000, cursor },
      page.signal);
    answer.queues.forEach((one) => lying.set(one.name, one.ready + one.leased + one.waiting));
    cursor = answer.cursor;
  }
  return rows.map((row) => ({ ...row, dead: lying.get(QUEUE_PREFIX + row.name) ?? 0 }));
}

function countColumns() {
  return [
    { title: "Ready", number: true, cell: (row) => number(row.ready ?? row.lag) },
    { title: "Leased", number: true, cell: (row) => number(row.leased) },
    { title: "Waiting", number: true, cell: (row) => number(row.waiting) },
    { title: "Oldest", number: true, cell: (row) => row.oldest ? ago(row.oldest, Date.now()) : "–" },
    { title: "Dead", number: true, cell: (row) => row.dead ? link(route("dead-letters", row.name), number(row.dead)) : number(row.dead) },
  ];
}

function spellSetting(title, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return title.endsWith("_ms") ? duration(value) : visible(value);
}

export function group(page, hub, groupName) {
  const counts = new Table("Topics", [
    { title: "Topic", cell: (row) => link(route("topics", row.topic), name(row.topic)) },
    ...countColumns(),
    { title: "Settled", number: true, cell: (row) => number(row.settled) },
    { title: "Expired", number: true, cell: (row) => number(row.expired) },
    { title: "Lost", number: true, cell: (row) => number(row.lost) },
  ], (row) => row.topic, "The group has read nothing yet.");
  const offsets = new Table("Progress", [
    { title: "Topic", cell: (row) => name(row.topic) },
    { title: "Partition", number: true, cell: (row) => number(row.partition) },
    { title: "Goes on at", number: true, cell: (row) => number(row.offset) },
    { title: "Next offset", number: true, cell: (row) => number(row.high_watermark) },
    { title: "Behind", number: true, cell: (row) => number(row.lag) },
  ], (row) => `${row.topic}\n${row.partition}`, "No progress yet.");
  const members = new Table("Members", [
    { title: "Member", cell: (row) => name(row.member_id) },
    { title: "Client", cell: (row) => visible([row.client_id, row.instance_id].filter(Boolean).join(", ")) },
    { title: "From", cell: (row) => visible(row.client_host) },
    { title: "Generation", number: true, cell: (row) => number(row.generation) },
    { title: "Partitions", cell: (row) => visible(row.partitions.map((one) => `${one.topic}: ${one.partitions.join(", ")}`).join("; ")) },
  ], (row) => row.member_id, "Nobody is in the group.");
  const crowd = h("div", { hidden: true }, h("h2", {}, "Members"), members.element);
  const facts = h("dl.facts.wide");
  page.every(DETAILS_MS, async () => {
    const [found, progress] = await Promise.all([get(path("v1", "groups", groupName), {}, page.signal),
      get(path("v1", "groups", groupName, "offsets"), {}, page.signal)]);
    counts.update(await withDead(page, found.topics.map((one) => ({ name: groupName, ...one })), groupName));
    crowd.hidden = found.kind !== "assigned";
    members.update((found.members ?? []).slice(0, 256));
    offsets.update(progress.offsets.slice(0, 256));
    const { name: _, topics: __, ...settings } = found;
    facts.replaceChildren(...Object.entries(settings).filter(([, value]) => value !== null && typeof value !== "object" && value !== "")
      .flatMap(([title, value]) => [h("dt", {}, title.replace(/_ms$/, "").replaceAll("_", " ")), h("dd", {}, spellSetting(title, value))]));
  });
  return h("div", {}, heading(h("span", {}, name(groupName)), link(route("dead-letters", groupName), "Dead letters")),
    counts.element, crowd, h("h2", {}, "Progress"), offsets.element, h("h2", {}, "Settings"), facts);
}
