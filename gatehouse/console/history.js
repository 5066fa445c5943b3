// What is stored of a topic, read backwards in steps: of every partition, from `low` on, all that the filter wants has been
// given to whoever shows it. What lies before is counted, so that nothing is missing without a word.

import { get, path } from "./api.js";

const STEP = 20;                   // messages of one step, of all partitions together
const SEARCHED = 2000;             // the same where a filter looks for some among them
const PARTITIONS_AT_ONCE = 16;         // those with the most that was not read go first
const PAGE = 500;

export class History {
  constructor(page, topic) {
    this.page = page;
    this.topic = topic;
    this.partitions = new Map();       // by number: {start, high, low}
    this.joined = false;           // a stream gives what comes: all of a partition that is new
  }

  /** Where partitions begin and end by now. */
  async look() {
    const found = await get(path("v1", "topics", this.topic), {}, this.page.signal).catch(unlessUnknown);
    for (const { partition, log_start_offset: start, high_watermark: high } of found.bounds) {
      const known = this.partitions.get(partition);
      this.partitions.set(partition, { start, high, low: Math.max(start, known?.low ?? (this.joined ? start : high)) });
    }
  }

  /** Nothing of it is shown; what comes from here on is. */
  join() {
    this.joined = true;
    for (const one of this.partitions.values()) one.low = one.high;
  }

  /** Nothing of it is shown, nor all that comes. */
  lose() {
    for (const one of this.partitions.values()) one.low = Infinity;
  }

  /** This one is not shown any more, nor what comes before it. */
  cut(partition, offset) {
    const known = this.partitions.get(partition);
    if (known) known.low = Math.max(known.low, offset + 1);
  }

  /** All from this one on is shown. */
  begin(partition, offset) {
    const known = this.partitions.get(partition);
    if (known) known.low = Math.min(known.low, offset);
  }

  /** How many messages have not been read. */
  get left() {
    let left = 0;
    for (const one of this.partitions.values()) left += Math.max(0, Math.min(one.low, one.high) - one.start);
    return left;
  }

  /** The next step: what the filter wants of it, in order within each partition. */
  async older(filter) {
    await this.look();
    const unread = [...this.partitions].filter(([, one]) => Math.min(one.low, one.high) > one.start)
      .sort(([, a], [, b]) => (b.high - b.start) - (a.high - a.start)).slice(0, PARTITIONS_AT_ONCE);
    const size = Math.ceil((filter ? SEARCHED : STEP) / Math.max(1, unread.length));
    const found = await Promise.all(unread.map(([partition, one]) => this.read(partition, one, size, filter)));
    return found.flat().sort((a, b) => a.timestamp - b.timestamp);
  }

  async read(partition, one, size, filter) {
    const end = Math.min(one.low, one.high);
    const begin = Math.max(one.start, end - size);
    const found = [];
    let where = { partition, from: begin };
    for (let at = begin; at < end;) {
      const answer = await get(path("v1", "topics", this.topic, "messages"),
        { ...where, max: Math.min(PAGE, end - at), filter }, this.page.signal);
      const passed = answer.messages.length + (answer.skipped ?? 0) +
        [...answer.lost ?? [], ...answer.unreadable ?? []].reduce((sum, gap) => sum + gap.count, 0);
      found.push(...answer.messages.filter((message) => message.offset < end));
      if (!passed) break;
      at += passed;
      where = { partition, cursor: answer.cursor };
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
