// What went through each door, a value a second, for as long as the charts reach back. Kept whichever page is open.

const POINTS = 180;
const FIELDS = ["messages_in", "messages_out"];

export class Series {
  constructor() {
    this.doors = new Map();
    this.last = null;              // the status before this one
  }

  /** The hub's own record of the last minutes, in the place of ours. */
  load(history) {
    this.doors = new Map(Object.entries(history.doors));
    this.last = null;
  }

  push(status) {
    const before = new Map((this.last?.doors ?? []).map((door) => [door.door, door]));
    const elapsed = Math.max(0.2, (status.now - (this.last?.now ?? status.now)) / 1000);
    for (const door of status.doors ?? []) {
      const last = before.get(door.door);
      if (last) for (const field of FIELDS) this.add(door.door, field, Math.max(0, door[field] - last[field]) / elapsed);
    }
    this.last = status;
  }

  add(door, field, value) {
    const values = this.of(door, field);
    values.push(value);
    if (values.length > POINTS) values.shift();
  }

  /** Oldest first. */
  of(door, field) {
    if (!this.doors.has(door)) this.doors.set(door, { messages_in: [], messages_out: [] });
    return this.doors.get(door)[field];
  }
}
