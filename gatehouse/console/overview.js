// How the hub is: its doors and what goes through them, log, disk, groups.

import { Sparkline } from "./charts.js";
import { bytes, count, duration, fill, h, moment, name, number, rate } from "./dom.js";
import { heading } from "./page.js";
import { Table } from "./table.js";

const NEAR_FULL = 0.1;             // of the disk free
const STALL_MS = 250;

export function overview(page, hub) {
  const summary = h("p.soft.summary");
  const facts = h("div.tiles");
  const view = h("div", {}, heading("Overview"), summary);
  const charts = new Map();
  const doors = doorTable(charts);
  let administrator = null;
  const draw = (status) => {
    summary.textContent = `Version ${status.version}, up ${duration(status.now - status.started)} since `
      + `${moment(status.started)}${status.ready ? "" : ", not ready"}`;
    if (administrator !== status.you.administrator) {
      administrator = status.you.administrator;
      view.querySelector(".rest")?.remove();
      view.append(h("div.rest", {}, administrator
        ? [doors.element, facts]
        : h("p.empty", {}, "How the hub is doing is shown to administrators. Topics, groups and queues that you may "
          + "read are behind the other links.")));
    }
    if (administrator) {
      drawDoors(status, doors, charts, hub.series);
      fill(facts, tiles(status));
    }
  };
  hub.onStatus = draw;
  if (hub.status) draw(hub.status);
  return view;
}

// --- doors ----------------------------------------------------------------------------------------------------------

function doorTable(charts) {
  const flow = (title, field) => ({ title, number: true, signature: (row) => rate(row.rates[field]),
    cell: (row) => h("span.flow", {}, h("span", {}, rate(row.rates[field])), charts.get(row.door)[field].element) });
  return new Table("Doors", [
    { title: "Door", cell: (row) => name(row.door) },
    { title: "Listens on", cell: (row) => row.listen.join(", ") || "–" },
    { title: "Connections", number: true, cell: (row) => number(row.connections) },
    flow("In /s", "messages_in"),
    flow("Out /s", "messages_out"),
    { title: "Total in", number: true, cell: (row) => h("span", { title: bytes(row.bytes_in) }, number(row.messages_in)) },
    { title: "Total out", number: true, cell: (row) => h("span", { title: bytes(row.bytes_out) }, number(row.messages_out)) },
    { title: "Refused", number: true, cell: (row) => counted(row.refused) },
    { title: "Faults", number: true, cell: (row) => counted(row.faults) },
  ], (row) => row.door, "No door is open.");
}

function counted(value) {
  return value ? h("strong.bad", {}, number(value)) : "0";
}

function drawDoors(status, table, charts, series) {
  for (const { door } of status.doors) {
    const known = charts.get(door) ?? { messages_in: new Sparkline(`${door} in`, "in", rate),
      messages_out: new Sparkline(`${door} out`, "out", rate) };
    charts.set(door, known);
    for (const [field, chart] of Object.entries(known)) chart.draw(series.of(door, field));
  }
  table.update(status.doors);
}

// --- the rest -------------------------------------------------------------------------------------------------------

function tile(title, value, note, bad) {
  return h(bad ? "div.tile.bad" : "div.tile", {}, h("h2", {}, title), h("p.value", {}, value), note ? h("p.soft", {}, note) : null);
}

function tiles(status) {
  const { log, pending, checkpoint, loop, groups } = status;
  const total = (field) => status.doors.reduce((sum, door) => sum + door.rates[field], 0);
  const free = log.disk_free_bytes / log.disk_bytes;
  return [
    tile("Messages in", `${rate(total("messages_in"))} /s`, `${bytes(total("bytes_in"))} a second`),
    tile("Messages out", `${rate(total("messages_out"))} /s`, `${bytes(total("bytes_out"))} a second`),
    tile("Groups", `${number(groups.ready)} ready`, `${number(groups.leased)} leased, ${number(groups.waiting)} waiting, in `
      + `${count(groups.active, "group or queue", "groups and queues")} in use`),
    tile("Topics", number(status.topics), `${count(status.subscriptions, "subscription")}, ${number(status.scheduled)} scheduled`),
    tile("Log", bytes(log.bytes), `of ${bytes(log.retention_bytes)}, in ${count(log.segments, "segment")}`
      + (log.damaged_ranges ? `; ${count(log.damaged_ranges, "damaged range")}` : "")
      + (log.set_aside_files ? `; ${number(log.set_aside_files)} set aside` : ""), log.damaged_ranges + log.set_aside_files > 0),
    tile("Kept beyond retention", bytes(log.kept_bytes), `of ${bytes(log.kept_limit_bytes)}`,
      log.kept_bytes > 0.9 * log.kept_limit_bytes),
    tile("Disk free", bytes(log.disk_free_bytes), `${Math.round(100 * free)} % of ${bytes(log.disk_bytes)}`
      + (log.full ? "; messages are refused" : ""), free < NEAR_FULL || log.full),
    tile("Waiting for the disk", bytes(pending.bytes), pending.congested ? "publishers are held back" : "no publisher waits",
      pending.congested),
    tile("Last checkpoint", checkpoint.age_ms === null ? "none yet" : `${duration(checkpoint.age_ms)} ago`,
      `${bytes(checkpoint.unindexed_bytes)} since`
      + (checkpoint.postponed ? `; ${number(checkpoint.postponed)} did not fit` : ""),
      checkpoint.postponed > 0),
    tile("Longest stall", `${rate(loop.stall_recent_ms)} ms`, `lately; ${rate(loop.stall_worst_ms)} ms since the start`,
      loop.stall_recent_ms > STALL_MS),
    tile("Memory", bytes(status.memory_bytes), status.overload && status.overload.level
      ? `overload: left undone are ${status.overload.left_undone.join(", ")}` : `start number ${number(status.epoch)}`),
    status.transactions ? tile("Transactions", number(status.transactions.open), `undecided, ${bytes(status.transactions.open_bytes)}`) : null,
  ];
}
