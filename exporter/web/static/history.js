// SPDX-License-Identifier: Apache-2.0
// The last 15 minutes of one GPU: asked for once, then continued from the stream.

const KEPT_SECONDS = 900;
const HOLE_SECONDS = 3;

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const union = (values) => (values.length ? values.reduce((all, value) => all | value, 0) : null);

/** The same history in means of `step` seconds, where a point a second is too many. */
export const condense = ({ timestamps, columns }, step) => {
  if (step <= 1) return { timestamps, columns };
  const slots = timestamps.map((time) => Math.floor(time / step));
  const starts = [...slots.keys()].filter((index) => index && slots[index] !== slots[index - 1]);
  // The first slot is cut off; the last has only begun, and reaches back.
  const late = timestamps.findIndex((time) => time > timestamps.at(-1) - step);
  const pieces = (values, join) => starts.map((start, index, { [index + 1]: end }) => join(values.slice(end ? start : late, end).filter((value) => value !== null)));
  const condensed = Object.entries(columns).map(([name, values]) => [name, pieces(values, name === "throttled" ? union : mean)]);
  return { timestamps: pieces(timestamps, mean), columns: Object.fromEntries(condensed) };
};

export class History {
  constructor(address) {
    this.address = address;
    this.timestamps = [];
    this.columns = {};
    this.fresh = HOLE_SECONDS;
  }

  /** Returns whether the daemon answered. */
  async load() {
    const answer = await fetch(this.address).catch(() => null);
    if (!answer?.ok) return false;
    ({ timestamps: this.timestamps, columns: this.columns } = await answer.json());
    return true;
  }

  /** Continue with the numbers of a time, by column; a time without readings leaves a hole. */
  add(time, numbers, interval) {
    const last = this.timestamps.at(-1);
    const setBack = last - time > this.fresh; // the clock of the daemon, which forgets what lies ahead
    if (!setBack && !(time > last + 0.01)) return; // nor before all of it is there
    this.fresh = Math.max(HOLE_SECONDS, 3 * interval);
    if (setBack) this.#drop(this.timestamps.findIndex((each) => each >= time), this.timestamps.length);
    if (time - this.timestamps.at(-1) > this.fresh) this.#push(time - interval, {});
    this.#push(time, numbers);
    this.#drop(0, this.timestamps.findIndex((each) => each >= time - KEPT_SECONDS));
  }

  #drop(start, count) {
    for (const column of [this.timestamps, ...Object.values(this.columns)]) column.splice(start, count);
  }

  #push(time, numbers) {
    for (const name of Object.keys(numbers)) this.columns[name] ??= this.timestamps.map(() => null);
    this.timestamps.push(time);
    for (const [name, column] of Object.entries(this.columns)) column.push(numbers[name] ?? null);
  }
}
