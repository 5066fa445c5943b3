// Publishing by hand.

import { ask } from "./api.js";
import { fill, h, link, name, number, route, visible } from "./dom.js";
import { field, heading } from "./page.js";

const CONTENT_TYPES = ["text/plain", "application/json", "application/octet-stream"];

/** So that leaving the page and coming back loses nothing that was typed. */
const kept = { value: "", type: "", headers: "" };

export function publish(page, hub) {
  const [, given] = location.hash.replace(/^#\/?/, "").split("/");
  const address = h("input", { required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "none",
    value: given ? decodeURIComponent(given) + "/" : kept.address ?? "" });
  const value = h("textarea", { rows: 8, spellcheck: "false", value: kept.value });
  const binary = h("select", {}, h("option", { value: "text" }, "text"), h("option", { value: "base64" }, "base64, for binary"));
  const type = h("input", { spellcheck: "false", autocomplete: "off", list: "content-types", value: kept.type });
  const headers = h("textarea", { rows: 3, spellcheck: "false", placeholder: "unit: C", value: kept.headers });
  const delay = h("input", { type: "number", min: 0, step: "any", inputmode: "decimal" });
  const expires = h("input", { type: "number", min: 0, step: "any", inputmode: "decimal" });
  const retain = h("input", { type: "checkbox", id: "retain" });
  const done = h("div", { role: "status" });
  const button = h("button.main", { type: "submit" }, "Publish");
  const submit = async (event) => {
    event.preventDefault();
    Object.assign(kept, { address: address.value, value: value.value, type: type.value, headers: headers.value });
    fill(done);
    button.disabled = true;
    await page.attempt(async () => {
      const message = { address: address.value, headers: readHeaders(headers.value),
        [binary.value === "base64" ? "value_base64" : "value"]: value.value };
      if (type.value) message.content_type = type.value;
      if (delay.value) message.delay = Number(delay.value);
      if (expires.value) message.expires_in = Number(expires.value);
      if (retain.checked) message.retain = true;
      const answer = await ask("POST", "/v1/publish", { body: { messages: [message] } });
      const result = answer.messages[0];
      if (result.status >= 400) throw Object.assign(new Error(result.detail), result);
      fill(done, stored(result));
    });
    button.disabled = false;
  };
  return h("div", {}, heading("Publish"), h("form.card", { onsubmit: submit },
    field("Address", address, "Levels with slashes between them: the first is the topic, the rest is the key."),
    h("div.columns", {}, field("Value", value), field("Headers", headers, "One in a line: name: value")),
    h("div.columns", {}, field("Content type", type), field("Value is", binary), field("Delay, seconds", delay),
      field("Expires in, seconds", expires)),
    h("datalist", { id: "content-types" }, CONTENT_TYPES.map((one) => h("option", { value: one }))),
    h("label.check", { for: "retain" }, retain, " Retain: the address keeps it as its last value"),
    h("div.buttons", {}, button, done)));
}

function readHeaders(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`“${line.trim()}” is no header: write name: value`);
    return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  });
}

function stored(result) {
  if (result.offset === null || result.offset === undefined) {
    return h("p.good", {}, "Stored for later, id ", visible(result.id), ". ", link(route("scheduled"), "Scheduled messages"));
  }
  return h("p.good", {}, "Stored in ", link(route("topics", result.topic), name(result.topic)),
    `, partition ${number(result.partition)}, offset ${number(result.offset)}.`);
}
