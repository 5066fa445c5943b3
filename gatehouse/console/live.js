// A topic's messages as they come. However fast they do, only the newest are opened and shown, a few times a second.

import { follow, get, path } from "./api.js";
import { fill, h, moment, number, visible } from "./dom.js";
import { keyOf, opening, preview } from "./message.js";
import { spell } from "./page.js";

const SHOWN = 100;
const DRAW_MS = 250;
const LAST = 20;                   // stored messages that are shown to begin with
const QUEUES_LOOKED_AT = 16;

export class LiveMessages {
  constructor(page, topic) {
    this.page = page;
    this.topic = topic;
    this.fresh = [];               // data of events that are not drawn yet, newest last
    this.count = 0;
    this.paused = false;
    this.connected = false;
    this.seen = new Set();         // ids of what is shown
    this.stream = null;
    this.timer = null;
    this.state = h("span", { role: "status" });
    this.counted = h("span");
    this.list = h("ol.messages");
    this.empty = h("p.empty", {}, "No messages yet. They appear here as they come.");
    this.pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() }, "Pause");
    this.selector = h("input", { "aria-label": "Only messages that…", placeholder: "Only messages that… e.g. unit = 'C'",
      spellcheck: "false", autocomplete: "off" });
    const form = h("form.bar", { onsubmit: (event) => { event.preventDefault(); this.restart(); } }, this.selector,
      h("button", { type: "submit" }, "Apply"), this.pause,
      h("button", { type: "button", onclick: () => this.clear() }, "Clear"),
      h("span.soft", {}, this.state, this.counted));
    this.element = h("section.live", { "aria-label": "Messages" }, h("h2", {}, "Messages"), form, this.empty, this.list);
    page.onStop(() => { this.stream?.stop(); clearTimeout(this.timer); });
    const look = () => {
      if (document.hidden) { this.stream?.stop(); this.stream = null; } else if (!this.stream) this.listen();
    };
    document.addEventListener("visibilitychange", look);
    page.onStop(() => document.removeEventListener("visibilitychange", look));
  }

  /** Listens first and looks at what is stored second, so that nothing falls between. */
  listen() {
    if (document.hidden) return;
    this.connected = false;
    this.say("connecting");
    this.stream = follow(path("v1", "topics", this.topic, "events"), { filter: this.selector.value.trim() }, {
      onEvents: (events) => this.take(events),
      onState: (state, problem) => {
        this.connected = state === "live";
        this.say(state === "refused" ? spell(problem) : "no connection, trying again", state === "refused");
        if (state === "live") this.page.attempt(() => this.loadLast());
        if (state === "refused") this.page.concernsAll(problem);
      },
    });
  }

  async loadLast() {
    const found = await get(path("v1", "topics", this.topic), {}, this.page.signal).catch(unlessUnknown);
    const bounds = found.bounds.filter((one) => one.high_watermark > one.log_start_offset).slice(0, QUEUES_LOOKED_AT);
    if (!bounds.length) return;
    const each = Math.ceil(LAST / bounds.length);
    const pages = await Promise.all(bounds.map((one) => get(path("v1", "topics", this.topic, "messages"), {
      queue: one.queue, from: Math.max(one.log_start_offset, one.high_watermark - each), max: each,
      filter: this.selector.value.trim() }, this.page.signal)));
    const messages = pages.flatMap((one) => one.messages).sort((a, b) => a.timestamp - b.timestamp);
    messages.filter((one) => !this.seen.has(one.id)).forEach((one) => this.insert(one));
  }

  restart() {
    this.stream?.stop();
    this.clear();
    this.count = 0;
    this.listen();
  }

  toggle() {
    this.paused = !this.paused;
    this.pause.setAttribute("aria-pressed", String(this.paused));
    this.pause.textContent = this.paused ? "Go on" : "Pause";
    if (!this.paused) this.draw();
    this.say("");
  }

  clear() {
    fill(this.list);
    this.seen.clear();
    this.fresh = [];
    this.empty.hidden = false;
  }

  take(events) {
    for (const one of events) {
      if (one.event === "message") {
        this.count += 1;
        this.fresh.push(one.data);
      } else if (one.event === "lost") this.show([{ lost: true }]);
    }
    if (this.fresh.length > SHOWN) this.fresh = this.fresh.slice(-SHOWN);
    this.timer ??= setTimeout(() => { this.timer = null; this.draw(); }, DRAW_MS);
  }

  draw() {
    this.say("");
    if (this.paused || !this.fresh.length) return;
    const messages = this.fresh.map((data) => JSON.parse(data)).filter((one) => !this.seen.has(one.id));
    this.fresh = [];
    this.show(messages);
  }

  /** Where it belongs by its time: what is stored may have come before or after what is shown. */
  insert(message) {
    const row = this.row(message);
    const behind = [...this.list.children].find((one) => Number(one.dataset.time) <= message.timestamp);
    this.list.insertBefore(row, behind ?? null);
    this.seen.add(message.id);
    this.cut();
  }

  /** Newest on top. */
  show(messages) {
    const rows = messages.map((one) => one.lost ? h("li.soft", {}, "Some messages were deleted before they could be shown.")
      : this.row(one)).reverse();
    for (const one of messages) if (one.id) this.seen.add(one.id);
    this.list.prepend(...rows);
    this.cut();
  }

  cut() {
    while (this.list.children.length > SHOWN) {
      this.seen.delete(this.list.lastChild.dataset.id);
      this.list.lastChild.remove();
    }
    this.empty.hidden = this.list.children.length > 0;
  }

  row(message) {
    const line = [h("span.when", {}, moment(message.timestamp)), h("span.door", {}, visible(message.door ?? "")),
      h("span.key", {}, keyOf(message)), preview(message)];
    return h("li", { data: { id: message.id, time: message.timestamp ?? 0 } }, opening(message, ...line));
  }

  /** The state, which is read out when it changes, and the count, which is not: it changes all the time. */
  say(otherwise, wrong = false) {
    const state = this.connected ? (this.paused ? "paused" : "live") : otherwise;
    if (state && this.state.textContent !== state) this.state.textContent = state;
    this.state.className = wrong ? "problem" : "";
    this.counted.textContent = this.connected ? `, ${number(this.count)} since you look` : "";
  }
}

/** A topic that does not exist yet is waited for. */
function unlessUnknown(problem) {
  if (problem.code !== "unknown_topic") throw problem;
  return { bounds: [] };
}
