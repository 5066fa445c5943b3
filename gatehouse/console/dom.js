// Elements and texts. Whatever comes from the hub becomes a text node: no function here takes HTML.

/** An element: `h("td.num", {title: "x"}, "text", otherElement, null)`. Names with `on` are listeners, `data`
 *  is an object of data attributes; null, undefined and false children are left out. */
export function h(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  element.append(...present(children));
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}

/** Put these in the place of whatever is in `element`. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

/** What would act on the text around it, or not be seen, made visible: control and bidirectional characters. */
export function visible(text, keepLines = false) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (one) =>
    keepLines && (one === "\n" || one === "\t") ? one : `\\u{${one.codePointAt(0).toString(16)}}`);
}

/** A name from the hub as text that cannot turn its surroundings round. */
export function name(text) {
  return h("bdi.name", {}, visible(text));
}

export function link(href, ...children) {
  return h("a", { href }, ...children);
}

/** A hash address of this page: `route("topics", "a/b")` is `#/topics/a%2Fb`. */
export function route(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

// --- numbers and times ----------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("sv", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

export function number(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** `1 attempt`, `2 attempts`. */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** A rate: whole from ten a second on. */
export function rate(value) {
  return value >= 10 || Number.isInteger(value) ? whole.format(Math.round(value)) : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

const UNITS = [[86_400_000, "d", 3_600_000, "h"], [3_600_000, "h", 60_000, "min"], [60_000, "min", 1000, "s"]];

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  for (const [size, unit, below, belowUnit] of UNITS) {
    if (ms >= size) return `${Math.floor(ms / size)} ${unit} ${Math.floor((ms % size) / below)} ${belowUnit}`;
  }
  return ms < 1000 ? `${Math.max(0, Math.round(ms))} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

/** The date, null where no calendar has it: a message's time is any number that its sender wrote. */
function dateOf(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** A moment, short when it is today's. */
export function moment(ms) {
  if (!ms) return "–";
  const date = dateOf(ms);
  if (!date) return String(ms);
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : day.format(date);
}

export function time(ms) {
  const date = ms ? dateOf(ms) : null;
  return date ? h("time", { datetime: date.toISOString(), title: day.format(date) }, moment(ms)) : moment(ms);
}

export function ago(ms, now) {
  const date = ms ? dateOf(ms) : null;
  return date ? h("time", { datetime: date.toISOString(), title: moment(ms) }, duration(now - ms)) : moment(ms);
}
