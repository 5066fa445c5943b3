// A message, shown safely: every part of it is text, what cannot be read as text is shown in hex.

import { bytes, h, name, number, time, visible } from "./dom.js";

const SHOWN_CHARACTERS = 65_536;
const SHOWN_BYTES = 4096;
const PREVIEW_CHARACTERS = 160;
const NARROW_PX = 600;
const OTHERS = ["content_type", "content_encoding", "message_id", "correlation_id", "reply_to", "priority", "traceparent",
  "expires_at", "retain", "durability"];

/** One line of a value. */
export function preview(message) {
  const value = message.value;
  if (value === null || (value === undefined && message.value_base64 === undefined)) return h("span.soft.preview", {}, "no value");
  if (value === undefined) return h("span.soft.preview", {}, `${bytes(sizeOf(message.value_base64))}, binary`);
  if (value === "") return h("span.soft.preview", {}, "empty");
  const short = value.slice(0, PREVIEW_CHARACTERS);
  return h("bdi.preview", {}, visible(short) + (short.length < value.length ? "…" : ""));
}

/** The key, or the address where it says more. */
export function keyOf(message) {
  if (message.key !== undefined && message.key !== null) return name(message.key);
  if (message.key_base64 !== undefined) return h("code", {}, hexOf(decode(message.key_base64).slice(0, 32)));
  return h("span.soft", {}, "no key");
}

/** Everything about a message. */
function details(message) {
  const facts = h("dl.facts");
  const fact = (title, content) => facts.append(h("dt", {}, title), h("dd", {}, content));
  fact("Address", name(message.address ?? ""));
  fact("Key", keyOf(message));
  if (message.offset !== undefined && message.offset !== null) {
    fact("Place", `${visible(message.topic)}, partition ${number(message.partition)}, offset ${number(message.offset)}`);
  }
  fact("Id", String(message.id));
  if (message.timestamp) fact("Time", time(message.timestamp));
  if (message.door) fact("Came by", visible(message.door));
  for (const field of OTHERS) {
    const value = message[field];
    if (value !== undefined && value !== null) {
      fact(field.replaceAll("_", " "), field === "expires_at" ? time(value) : visible(value));
    }
  }
  return h("div.details", {}, facts, headersOf(message.headers ?? []), valueOf(message));
}

function headersOf(headers) {
  if (!headers.length) return null;
  const rows = headers.map(([title, value]) => [h("dt", {}, name(title)), h("dd", {},
    value === null ? h("span.soft", {}, "null") : typeof value === "object"
      ? h("code", {}, hexOf(decode(value.base64).slice(0, SHOWN_BYTES))) : h("bdi", {}, visible(value)))]);
  return h("section", { "aria-label": "Headers" }, h("h4", {}, "Headers"), h("dl.facts", {}, rows.flat()));
}

function valueOf(message) {
  const title = h("h4", {}, "Value");
  const section = h("section", { "aria-label": "Value" }, title);
  if (message.value_base64 !== undefined && message.value === undefined) {
    const raw = decode(message.value_base64);
    title.append(` ${bytes(raw.length)}, binary`);
    section.append(h("pre.value.hex", { tabindex: 0 }, hexDump(raw.slice(0, SHOWN_BYTES))), cut(raw.length, SHOWN_BYTES));
  } else if (message.value === null || message.value === undefined) {
    section.append(h("p.soft", {}, "No value: it ends its key."));
  } else {
    const pretty = prettyJson(message.value);
    title.append(` ${bytes(new Blob([message.value]).size)}${pretty === null ? "" : ", JSON"}`);
    const text = pretty ?? message.value;
    section.append(h("pre.value", { tabindex: 0 }, visible(text.slice(0, SHOWN_CHARACTERS), true)),
      cut(text.length, SHOWN_CHARACTERS));
  }
  return section;
}

function cut(size, shown) {
  return size > shown ? h("p.soft", {}, `The first ${number(shown)} of ${number(size)} are shown.`) : "";
}

function prettyJson(text) {
  if (text.length > SHOWN_CHARACTERS || !/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text, (key, value, context) => exact(value, context)), null, 2);
  } catch {
    return null;
  }
}

/** Numbers that JavaScript would round are shown as they came. */
function exact(value, context) {
  if (typeof value === "number" && context?.source && String(value) !== context.source && JSON.rawJSON) {
    return JSON.rawJSON(context.source);
  }
  return value;
}

// --- bytes ----------------------------------------------------------------------------------------------------------

function decode(base64) {
  return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
}

function sizeOf(base64) {
  return Math.floor(base64.length * 3 / 4) - (base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0);
}

function hexOf(raw) {
  return Array.from(raw, (one) => one.toString(16).padStart(2, "0")).join(" ");
}

function hexDump(raw) {
  const lines = [];
  const width = innerWidth < NARROW_PX ? 8 : 16;
  for (let at = 0; at < raw.length; at += width) {
    const row = raw.slice(at, at + width);
    const text = Array.from(row, (one) => one >= 0x20 && one < 0x7f ? String.fromCharCode(one) : ".").join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hexOf(row).padEnd(3 * width - 1)}  ${text}`);
  }
  return lines.join("\n");
}

/** A row that opens: a line about the message, and its details once somebody wants them. */
export function opening(message, ...line) {
  const element = h("details.message", {}, h("summary", {}, ...line));
  element.addEventListener("toggle", () => {
    if (element.open && element.children.length === 1) element.append(details(message));
  });
  return element;
}

