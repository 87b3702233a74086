// SPDX-License-Identifier: Apache-2.0
// The last 15 minutes of one GPU: asked for once, then continued from the stream.

const KEPT_SECONDS = 900;
const HOLE_SECONDS = 3;

const PIPES = ["tensor", "fp64", "fp32", "fp16", "int"];
const PARTS = ["idle", "narrow", "unsaturated", "clock", "saturated"];

/** What a row of the stream says, under the names of the history's columns. */
export const columnsOf = (row, reasons) => {
  const [lower, upper] = row.saturation === undefined ? (row.saturation_bounds ?? []) : [row.saturation, row.saturation];
  const [least, most] = row.stall_bounds ?? [];
  const bits = (row.throttle ?? []).reduce((all, reason) => all | (1 << reasons.indexOf(reason)), 0);
  return {
    utilization: row.utilization, saturation_lower: lower, saturation_upper: upper,
    sm: row.sm, dram: row.dram, engine: row.engine,
    ...Object.fromEntries(PIPES.map((pipe) => [pipe, row.pipes?.[pipe]])),
    ...Object.fromEntries(PARTS.map((part) => [part, row.parts?.[part]])),
    power: row.power?.[0], power_limit: row.power?.[1], sm_clock: row.clock?.[0],
    throttled: row.clock ? bits : undefined,
    stall: row.stall, stall_lower: least, stall_upper: most, wait: row.wait,
  };
};

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const union = (values) => (values.length ? values.reduce((all, value) => all | value, 0) : null);

/** The same history in means of `step` seconds, where a point a second is more than can be seen. */
export const condense = ({ timestamps, columns, reasons }, step) => {
  if (step <= 1) return { timestamps, columns, reasons };
  const starts = [];
  timestamps.forEach((time, index) => {
    if (!index || Math.floor(time / step) !== Math.floor(timestamps[index - 1] / step)) starts.push(index);
  });
  const pieces = starts.map((start, index) => [start, starts[index + 1] ?? timestamps.length]);
  const condensed = Object.entries(columns).map(([name, values]) => {
    const join = name === "throttled" ? union : mean;
    return [name, pieces.map(([start, end]) => join(values.slice(start, end).filter((value) => value !== null)))];
  });
  return { timestamps: pieces.map(([start, end]) => mean(timestamps.slice(start, end))), columns: Object.fromEntries(condensed), reasons };
};

export class History {
  constructor(address) {
    this.address = address;
    this.timestamps = [];
    this.columns = {};
    this.reasons = [];
    this.loaded = false;
  }

  /** Ask for all of it; null where the daemon cannot say. */
  async load(limit) {
    const answer = await fetch(this.address).catch(() => null);
    if (!answer?.ok) return false;
    const { timestamps, columns, throttle_reasons: reasons } = await answer.json();
    this.timestamps = timestamps;
    this.columns = columns;
    this.reasons = reasons;
    this.loaded = true;
    if (limit !== undefined && columns.power) this.columns.power_limit = columns.power.map((value) => (value === null ? null : limit));
    return true;
  }

  #push(time, values) {
    for (const name of Object.keys(values)) {
      if (values[name] !== undefined) this.columns[name] ??= this.timestamps.map(() => null);
    }
    this.timestamps.push(time);
    for (const [name, column] of Object.entries(this.columns)) column.push(values[name] ?? null);
  }

  /** Continue with a row; a time without readings leaves a hole. */
  add(time, row, interval) {
    const last = this.timestamps.at(-1);
    if (!this.loaded || (last !== undefined && time <= last + 0.01)) return;
    if (last !== undefined && time - last > Math.max(HOLE_SECONDS, 3 * interval)) this.#push(time - interval, {});
    this.#push(time, row?.state === "up" ? columnsOf(row, this.reasons) : {});
    let old = 0;
    while (this.timestamps[old] < time - KEPT_SECONDS) old += 1;
    if (old) for (const column of [this.timestamps, ...Object.values(this.columns)]) column.splice(0, old);
  }
}
