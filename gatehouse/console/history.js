// What is stored of a topic, read backwards in steps: of every queue, from `low` on, all that the filter wants has been
// given to whoever shows it. What lies before is counted, so that nothing is missing without a word.

import { get, path } from "./api.js";

const STEP = 20;                   // messages of one step, of all queues together
const SEARCHED = 2000;             // the same where a filter looks for some among them
const QUEUES_AT_ONCE = 16;         // those with the most that was not read go first
const PAGE = 500;

export class History {
  constructor(page, topic) {
    this.page = page;
    this.topic = topic;
    this.queues = new Map();       // by number: {start, high, low}
    this.joined = false;           // a stream gives what comes: all of a queue that is new
  }

  /** Where queues begin and end by now. */
  async look() {
    const found = await get(path("v1", "topics", this.topic), {}, this.page.signal).catch(unlessUnknown);
    for (const { queue, log_start_offset: start, high_watermark: high } of found.bounds) {
      const known = this.queues.get(queue);
      this.queues.set(queue, { start, high, low: Math.max(start, known?.low ?? (this.joined ? start : high)) });
    }
  }

  /** Nothing of it is shown; what comes from here on is. */
  join() {
    this.joined = true;
    for (const one of this.queues.values()) one.low = one.high;
  }

  /** Nothing of it is shown, nor all that comes. */
  lose() {
    for (const one of this.queues.values()) one.low = Infinity;
  }

  /** This one is not shown any more, nor what comes before it. */
  cut(queue, offset) {
    const known = this.queues.get(queue);
    if (known) known.low = Math.max(known.low, offset + 1);
  }

  /** All from this one on is shown. */
  begin(queue, offset) {
    const known = this.queues.get(queue);
    if (known) known.low = Math.min(known.low, offset);
  }

  /** How many messages have not been read. */
  get left() {
    let left = 0;
    for (const one of this.queues.values()) left += Math.max(0, Math.min(one.low, one.high) - one.start);
    return left;
  }

  /** The next step: what the filter wants of it, in order within each queue. */
  async older(filter) {
    await this.look();
    const unread = [...this.queues].filter(([, one]) => Math.min(one.low, one.high) > one.start)
      .sort(([, a], [, b]) => (b.high - b.start) - (a.high - a.start)).slice(0, QUEUES_AT_ONCE);
    const size = Math.ceil((filter ? SEARCHED : STEP) / Math.max(1, unread.length));
    const found = await Promise.all(unread.map(([queue, one]) => this.read(queue, one, size, filter)));
    return found.flat().sort((a, b) => a.timestamp - b.timestamp);
  }

  async read(queue, one, size, filter) {
    const end = Math.min(one.low, one.high);
    const begin = Math.max(one.start, end - size);
    const found = [];
    let where = { queue, from: begin };
    for (let at = begin; at < end;) {
      const answer = await get(path("v1", "topics", this.topic, "messages"),
        { ...where, max: Math.min(PAGE, end - at), filter }, this.page.signal);
      const passed = answer.messages.length + (answer.skipped ?? 0) +
        [...answer.lost ?? [], ...answer.unreadable ?? []].reduce((sum, gap) => sum + gap.count, 0);
      found.push(...answer.messages.filter((message) => message.offset < end));
      if (!passed) break;
      at += passed;
      where = { queue, cursor: answer.cursor };
    }
    one.low = begin;
    return found;
  }
}

/** A topic that does not exist yet is waited for. */
function unlessUnknown(problem) {
  if (problem.code !== "unknown_topic") throw problem;
  return { bounds: [] };
}
