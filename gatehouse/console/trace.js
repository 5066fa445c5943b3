// What happened to a message, as a time line with every hop, and why it did not arrive somewhere.

import { get, path } from "./api.js";
import { duration, fill, h, link, name, number, route, time, visible } from "./dom.js";
import { field, heading } from "./page.js";
import { Table } from "./table.js";

const WAYS = [["id", "Message id"], ["key", "Key"], ["address", "Address"], ["trace_id", "Trace id"],
  ["correlation_id", "Correlation id"], ["origin", "Origin (HUB/ID)"]];
const BAD = ["given up", "released", "lease over", "refused", "rolled back"];
const GOOD = ["acked", "delivered"];

export function trace(page, hub, way = "id", value = "") {
  const chosen = h("select", {}, WAYS.map(([key, title]) => h("option", { value: key, selected: key === way }, title)));
  const input = h("input", { required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "none", value });
  const result = h("div");
  const look = (event) => {
    event.preventDefault();
    if (chosen.value === way && input.value === value) page.attempt(load); else location.hash = route("trace", chosen.value, input.value);
  };
  async function load() {
    if (way === "id") {
      fill(result, ...journey(page, await get(path("v1", "trace", value), {}, page.signal)));
      return;
    }
    const { messages } = await get("/v1/trace", { [way]: value }, page.signal);
    const table = new Table("Messages", [
      { title: "Message", cell: (row) => link(route("trace", "id", row.id), row.id) },
      { title: "At", cell: (row) => time(row.at) },
      { title: "Address", cell: (row) => name(row.address ?? "") },
    ], (row) => row.id, "Nothing is recorded that is found so. A message that was not followed is found by its id.");
    table.update(messages);
    fill(result, table.element);
  }
  if (value) page.attempt(load);
  return h("div", {}, heading("Trace"), h("form.bar", { onsubmit: look }, field("Find by", chosen), field("Value", input),
    h("button", { type: "submit" }, "Look up")), result);
}

function journey(page, told) {
  const lies = told.topic ? `${visible(told.topic)}, partition ${told.partition}, offset ${number(told.offset)}`
    : told.queue ? `the queue ${visible(told.queue)}` : "nobody knows where";
  const facts = [["Message", told.id], ["Address", told.address], ["Stored in", lies], ["Trace id", told.trace_id],
    ["At other hubs", told.stands.some((row) => row.kind === "link") && told.origin], ["Recorded", told.followed]].filter(([, said]) => said);
  return [
    h("dl.card.facts", {}, facts.flatMap(([title, said]) => [h("dt", {}, title), h("dd", {}, name(said))])),
    timeLine(told.steps), standing(told.stands), why(page, told.id),
  ];
}

/** Every step, and beside it a bar from the step before to this one, on the scale of the whole journey. */
function timeLine(steps) {
  const first = steps[0]?.at ?? 0;
  const whole = Math.max(1, (steps.at(-1)?.at ?? 0) - first);
  return h("ol.card.timeline", { "aria-label": "What happened" }, steps.map((step) => {
    const bar = h("span.hop", { "aria-hidden": "true" });
    bar.style.setProperty("--from", String((step.at - first - (step.after ?? 0)) / whole));
    bar.style.setProperty("--size", String((step.after ?? 0) / whole));
    const kind = BAD.includes(step.what) ? "bad" : GOOD.includes(step.what) ? "good" : "plain";
    return h("li", { data: { kind } }, h("span.when", {}, time(step.at)),
      h("span.after", {}, step.after === null ? "" : `+${duration(step.after)}`),
      h("span.what", {}, h("b", {}, step.what), step.recorded ? "" : " (from the log)", " ", words(step)), h("span.track", {}, bar));
  }));
}

function words(step) {
  const who = ["door", "user", "client_id", "peer"].filter((key) => step[key]).map((key) => visible(step[key])).join(" ");
  const said = [step.group && (step.group.startsWith("$queue/") ? visible(step.group) : `group ${visible(step.group)}`), who && `by ${who}`, step.origin && `over ${step.link ? `link ${visible(step.link)}` : "a link"}, ${visible(step.origin.split("/").at(-1))} on hub ${visible(step.origin.slice(0, 8))}`,
    step.publisher && `publisher ${visible(step.publisher)}`, step.attempt && `attempt ${step.attempt}`,
    step.transaction && `transaction ${visible(step.transaction)}`, step.asked && `asked ${visible(step.asked)}`,
    step.reason && visible(step.reason), step.queue && `queue ${visible(step.queue)}`,
    step.what === "redriven" && step.address && `to ${visible(step.address)}`,
    step.left_out && `${number(step.left_out)} errors before it were not recorded`].filter(Boolean).join(", ");
  return [h("bdi", {}, said), ...(step.until ? [", until ", time(step.until)] : [])];
}

function standing(stands) {
  const table = new Table("Where it stands", [
    { title: "Group or queue", cell: (row) => name(row.group) },
    { title: "Kind", cell: (row) => row.kind },
    { title: "State", cell: (row) => row.state },
    { title: "Attempts", cell: (row) => number(row.attempts ?? 0) },
    { title: "Until", cell: (row) => row.until ? time(row.until) : "–" },
  ], (row) => row.group, "No group and no queue reads its partition.");
  table.update(stands);
  return table.element;
}

function why(page, id) {
  const consumer = h("input", { required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "none" });
  const answer = h("p", { role: "status" });
  const ask = (event) => {
    event.preventDefault();
    page.attempt(async () => {
      const told = await get(`${path("v1", "trace", id)}/why`, { consumer: consumer.value }, page.signal);
      const shown = Object.entries(told.evidence).map(([key, said]) =>
        `${key.replaceAll("_", " ")}: ${visible(typeof said === "object" ? JSON.stringify(said) : said)}`);
      fill(answer, h("b", {}, told.reason.replaceAll("_", " ")), `: ${visible(told.text)}`, shown.length ? ` (${shown.join(", ")})` : "");
    });
  };
  return h("form.bar", { onsubmit: ask }, field("Why not at", consumer, "a group, $queue/NAME, or $share/GROUP/FILTER"),
    h("button", { type: "submit" }, "Ask"), answer);
}
