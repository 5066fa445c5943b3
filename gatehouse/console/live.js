// A topic's messages as they come. However fast they do, only the newest are opened and shown, a few times a second.
// Of every partition what is shown is all that the filter wants from some offset on; what lies before is counted and can be
// asked for.

import { follow, path } from "./api.js";
import { fill, h, moment, number, visible } from "./dom.js";
import { History } from "./history.js";
import { keyOf, opening, preview } from "./message.js";
import { spell } from "./page.js";

const SHOWN = 100;
const DRAW_MS = 250;
const MOST = 1000;                 // of them, once somebody has asked for older ones
const LOOK_MS = 3000;

export class LiveMessages {
  constructor(page, topic) {
    this.page = page;
    this.topic = topic;
    this.fresh = [];               // data of events that are not drawn yet, newest last
    this.count = 0;
    this.paused = false;
    this.connected = false;
    this.seen = new Set();         // ids of what is shown
    this.history = new History(page, topic);
    this.room = SHOWN;
    this.outrun = false;           // more came than is shown: what was shown before is not joined to what is
    this.applied = "";
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
      h("button", { type: "button", onclick: () => page.attempt(() => this.wipe()) }, "Clear"),
      h("span.soft", {}, this.state, this.counted));
    this.left = h("span");
    this.more = h("button", { type: "button", onclick: () => page.attempt(() => this.older()) });
    this.before = h("p.soft.older", { hidden: true }, this.left, this.more);
    this.element = h("section.live", { "aria-label": "Messages" }, h("h2", {}, "Messages"), form, this.empty, this.list,
      this.before);
    page.onStop(() => { this.stream?.stop(); clearTimeout(this.timer); });
    const look = () => {
      if (document.hidden) { this.stream?.stop(); this.stream = null; } else if (!this.stream) this.listen();
    };
    document.addEventListener("visibilitychange", look);
    page.onStop(() => document.removeEventListener("visibilitychange", look));
    page.every(LOOK_MS, async () => {
      await this.history.look();
      this.tellLeft();
    });
  }

  /** Listens first and looks at what is stored second, so that nothing falls between. */
  listen() {
    if (document.hidden) return;
    this.connected = false;
    this.applied = this.filter;
    this.say("connecting");
    this.stream = follow(path("v1", "topics", this.topic, "events"), { filter: this.applied }, {
      onEvents: (events) => this.take(events),
      onState: (state, problem) => {
        this.connected = state === "live";
        this.say(state === "refused" ? spell(problem) : "no connection, trying again", state === "refused");
        if (state === "live") this.page.attempt(() => this.join());
        if (state === "refused") this.page.concernsAll(problem);
      },
    });
  }

  /** What is stored up to where the stream began. After a time without a connection, what is shown from before goes: it
   *  does not join what comes. */
  async join() {
    const stream = this.stream;
    await this.wipe();
    if (stream === this.stream) await this.older();          // else another filter was applied meanwhile
  }

  async older() {
    const stream = this.stream;
    this.more.disabled = true;
    try {
      const found = (await this.history.older(this.applied)).filter((one) => !this.seen.has(one.id));
      if (stream !== this.stream) return;                    // it was asked for with the filter of before
      this.room = Math.min(MOST, Math.max(this.room, this.list.children.length + found.length));
      found.forEach((one) => this.insert(one));
      this.cut();
    } finally {
      this.more.disabled = false;
      this.tellLeft();
    }
  }

  get filter() {
    return this.selector.value.trim();
  }

  /** What is not shown, in words. */
  tellLeft() {
    const left = this.history.left;
    const full = this.list.children.length >= MOST;
    const older = `${number(left)} older message${left === 1 ? "" : "s"}`;
    this.before.hidden = !this.connected && !left;
    this.left.textContent = !left ? (this.applied ? "All that is stored was searched." : "That is all that is stored.")
      : `${older} ${left === 1 ? "is" : "are"} not ${this.applied ? "searched" : "shown"}. ${full ? "No more fit here: use the filter. " : ""}`;
    this.more.textContent = this.applied ? "Search older" : "Show older";
    this.more.hidden = !left || full;
  }

  restart() {
    this.stream?.stop();
    this.fresh = [];
    this.clear();
    this.room = SHOWN;
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

  async wipe() {
    await this.history.look();
    this.clear();
    this.history.join();
    this.tellLeft();
  }

  clear() {
    fill(this.list);
    this.seen.clear();
    this.empty.hidden = false;
  }

  take(events) {
    for (const one of events) {
      if (one.event === "message") {
        this.count += 1;
        this.fresh.push(one.data);
      } else if (one.event === "lost") this.show([{ lost: true }]);
    }
    if (this.fresh.length > SHOWN) {
      this.outrun = true;
      this.fresh = this.fresh.slice(-SHOWN);
    }
    this.timer ??= setTimeout(() => { this.timer = null; this.draw(); }, DRAW_MS);
  }

  draw() {
    this.say("");
    if (this.paused || !this.fresh.length) return;
    const messages = this.fresh.map((data) => JSON.parse(data)).filter((one) => !this.seen.has(one.id));
    this.fresh = [];
    if (this.outrun) {
      this.clear();
      this.history.lose();
    }
    this.outrun = false;
    this.show(messages);
    for (const one of messages) this.history.begin(one.partition, one.offset);
    this.tellLeft();
  }

  /** Where it belongs by its time: what is stored may have come before or after what is shown. */
  insert(message) {
    const row = this.row(message);
    const behind = [...this.list.children].find(({ dataset: { time, partition, offset } }) => Number(partition) === message.partition
      ? Number(offset) < message.offset : Number(time) <= message.timestamp);
    this.list.insertBefore(row, behind ?? null);
    this.seen.add(message.id);
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
    while (this.list.children.length > this.room) {
      const { partition, offset } = this.list.lastChild.dataset;
      this.drop(this.list.lastChild);
      if (partition === undefined) continue;
      this.history.cut(Number(partition), Number(offset));
      for (const row of [...this.list.children]) {     // times are the senders': a later one may be written as earlier
        if (row.dataset.partition === partition && Number(row.dataset.offset) < Number(offset)) this.drop(row);
      }
    }
    this.empty.hidden = this.list.children.length > 0;
  }

  drop(row) {
    this.seen.delete(row.dataset.id);
    row.remove();
  }

  row(message) {
    const line = [h("span.when", {}, moment(message.timestamp)), h("span.door", {}, visible(message.door ?? "")),
      h("span.key", {}, keyOf(message)), preview(message)];
    return h("li", { data: { id: message.id, time: message.timestamp ?? 0, partition: message.partition, offset: message.offset } }, opening(message, ...line));
  }

  /** The state, which is read out when it changes, and the count, which is not: it changes all the time. */
  say(otherwise, wrong = false) {
    const state = this.connected ? (this.paused ? "paused" : "live") : otherwise;
    if (state && this.state.textContent !== state) this.state.textContent = state;
    this.state.className = wrong ? "problem" : "";
    this.counted.textContent = this.connected ? `, ${number(this.count)} since you look` : "";
  }
}
