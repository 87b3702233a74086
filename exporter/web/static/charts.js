// SPDX-License-Identifier: Apache-2.0
// The time series of one GPU: which columns each chart has, and how uPlot draws them.

import { element, setText } from "./dom.js";
import { condense } from "./history.js";
import { clockTime, cut, duration, fixed, percent, plain, si } from "./format.js";

const WINDOW_SECONDS = 900;
const SHORTEST_SECONDS = 60;
const TABLE_SECONDS = 30;
const STEPS = [1, 2, 5, 10, 15];
const PIXELS_PER_POINT = 3;
const HEIGHT_REM = 12;
const SYNC = "roofline-gpu";

const watts = (value) => `${fixed(value, 0)} W`;
const hertz = (value) => si(value, "Hz");
const line = (column, label, colour, dash) => ({ column, label, colour, dash });

/** By name, as the page has places for them. `stack`: one upon the other, in this order. */
const CHARTS = {
  use: {
    format: percent, range: [0, 1],
    series: [
      line("utilization", "utilization", "s0"),
      line("saturation_lower", "saturation", "s1"),
      line("saturation_upper", "saturation, at most", "s1", [4, 4]),
    ],
    band: ["saturation_upper", "saturation_lower"],
  },
  parts: {
    format: percent, range: [0, 1], stack: true,
    series: [
      line("saturated", "saturated", "s1"),
      line("clock", "lost to the clock", "s3"),
      line("unsaturated", "busy, not saturated", "s0"),
      line("narrow", "too few SMs busy", "s2"),
      line("idle", "idle", "s7"),
    ],
  },
  pipes: {
    format: percent, range: [0, 1],
    series: [
      line("tensor", "tensor", "s1"),
      line("dram", "DRAM", "s0", [8, 3]),
      line("sm", "SMs busy", "s7", [2, 3]),
      line("fp32", "FP32", "s2", [4, 4]),
      line("fp16", "FP16", "s3", [10, 3, 2, 3]),
      line("fp64", "FP64", "s6", [6, 2]),
      line("int", "INT", "s5", [1, 4]),
    ],
  },
  stall: {
    format: percent, range: [0, 1], marks: [[0.05, "5 %"], [0.2, "20 %"]],
    series: [
      line("wait", "host waits for data", "s0", [4, 4]),
      line("stall", "GPU idle for it", "s1"),
      line("stall_lower", "at least", "s1", [2, 3]),
      line("stall_upper", "at most", "s1", [8, 3]),
    ],
  },
  clock: { format: hertz, series: [line("sm_clock", "SM clock", "s0")], reasons: true },
  power: { format: watts, series: [line("power", "power", "s1"), line("power_limit", "limit", "s7", [4, 4])] },
};

const lastKnown = (values) => values.findLast((value) => value !== null);

/** Names of the reasons whose bits are set. */
export const reasonsOf = (bits, names) => names.filter((_, bit) => bits & (1 << bit)).map(plain);

const stacked = (columns) => {
  const sums = columns[0].map(() => 0);
  return columns.map((column) => column.map((value, index) => (value === null ? null : (sums[index] += value))));
};

/** One chart with its table; made anew when the colours change. */
class SeriesChart {
  constructor(figure, spec) {
    this.figure = figure;
    this.spec = spec;
    this.place = figure.querySelector(".canvas");
    this.details = figure.querySelector("details");
    this.note = figure.querySelector(".note");
    this.details.addEventListener("toggle", () => this.#table());
    new ResizeObserver(() => this.#resize()).observe(this.place);
  }

  /**
   * Show the history, in which `newest` ends; returns whether there is anything of this chart in it.
   */
  show(history, newest) {
    this.history = history;
    this.newest = newest;
    const shown = this.spec.series.filter(({ column }) => lastKnown(history.columns[column] ?? []) !== undefined && !this.#same(column));
    const names = shown.map(({ column }) => column).join();
    this.figure.hidden = shown.length === 0;
    if (!shown.length) return false;
    if (names !== this.names) {
      this.names = names;
      this.shown = shown;
      this.#make();
    }
    const { plot } = this;
    if (plot) {
      const end = history.timestamps.at(-1);
      plot.batch(() => {
        plot.setData(this.#data(), false);
        plot.setScale("x", { min: Math.max(end - WINDOW_SECONDS, Math.min(history.timestamps[0], end - SHORTEST_SECONDS)), max: end });
      });
    }
    this.#tell();
    return true;
  }

  /** An upper bound that is always the lower one says nothing. */
  #same(column) {
    if (!column.endsWith("_upper")) return false;
    const lower = this.history.columns[column.replace("_upper", "_lower")] ?? [];
    return this.history.columns[column].every((value, index) => value === null || value === lower[index]);
  }

  #data() {
    const columns = this.shown.map(({ column }) => this.history.columns[column]);
    const drawn = this.spec.stack ? stacked(columns) : columns;
    const reasons = this.spec.reasons ? [this.history.columns.throttled ?? columns[0].map(() => null)] : [];
    return [this.history.timestamps, ...drawn, ...reasons];
  }

  remake() {
    if (this.shown) this.#make();
  }

  #resize() {
    const width = Math.floor(this.place.clientWidth);
    if (!width || !this.shown) return;
    if (!this.plot) this.#make();
    else if (width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
  }

  #make() {
    this.plot?.destroy();
    this.plot = null;
    const width = Math.floor(this.place.clientWidth);
    if (!width) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const size = parseFloat(style.fontSize);
    const font = `${Math.round(size * 0.8)}px system-ui, sans-serif`;
    const { format, range, stack, band, reasons } = this.spec;
    const raw = (index) => this.history.columns[this.shown[index].column];
    const axis = { stroke: colour("muted"), font, grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false } };
    const series = this.shown.map(({ label, colour: name, dash }, index) => ({
      label, dash, width: stack ? 1 : 2, stroke: colour(name), spanGaps: false, points: { show: false },
      fill: stack ? `${colour(name)}59` : undefined,
      value: (_, __, ___, at) => {
        const value = at === null ? lastKnown(this.newest.columns[this.shown[index].column]) : raw(index)[at];
        return value === null || value === undefined ? "not known" : format(value);
      },
    }));
    if (reasons) {
      series.push({
        label: "held down by", scale: "reasons", stroke: colour("clock"), paths: () => null, points: { show: false },
        value: (_, bits, __, at) => {
          const held = at === null ? lastKnown(this.newest.columns.throttled ?? []) : bits;
          return held ? reasonsOf(held, this.history.reasons).join(", ") : "nothing";
        },
      });
    }
    const names = this.shown.map(({ column }) => column);
    // A stack is filled between neighbours; a band between the two bounds.
    const bands = stack
      ? names.slice(1).map((_, index) => ({ series: [index + 2, index + 1], fill: `${colour(this.shown[index + 1].colour)}59` }))
      : band && band.every((each) => names.includes(each))
        ? [{ series: band.map((each) => names.indexOf(each) + 1), fill: `${colour("s1")}40` }]
        : [];
    this.plot = new uPlot({
      width, height: Math.round(HEIGHT_REM * size), series: [{ label: "time", value: (_, time) => (time === null ? "now" : clockTime(time)) }, ...series],
      bands, scales: { x: { time: true }, y: { range: range ?? ((_, __, high) => [0, (high || 1) * 1.08]) }, reasons: { range: [0, 256] } },
      axes: [
        { ...axis, values: (_, times) => times.map((time) => (times[1] - times[0] < 60 ? clockTime(time) : clockTime(time).slice(0, 5))), space: 80, size: size * 2 },
        { ...axis, values: (_, values) => values.map(format), size: size * 4.6 },
      ],
      cursor: { sync: { key: SYNC }, points: { show: false }, drag: { x: false, y: false } },
      legend: { markers: { dash: (_, index) => (series[index - 1]?.dash ? "dashed" : "solid"), width: 2 } },
      hooks: { drawClear: [(plot) => this.#shade(plot, colour)] },
    }, this.history ? this.#data() : [[], ...this.shown.map(() => [])], this.place);
    const canvas = this.plot.root.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${this.figure.querySelector("h2").textContent}, the last 15 minutes; the numbers are in the table below`);
    this.plot.root.querySelector(".u-legend").setAttribute("aria-hidden", "true");
  }

  /** Times in which something holds the clock down, and lines that mark thresholds. */
  #shade(plot, colour) {
    const { ctx, bbox } = plot;
    ctx.save();
    if (this.spec.reasons) {
      const held = this.history.columns.throttled ?? [];
      ctx.fillStyle = `${colour("clock")}33`;
      let from = null;
      this.history.timestamps.forEach((time, index) => {
        const left = Math.max(bbox.left, plot.valToPos(time, "x", true));
        if (held[index] && from === null) from = left;
        const last = index === held.length - 1;
        if (from !== null && (!held[index] || last)) {
          ctx.fillRect(from, bbox.top, Math.max(2, left - from), bbox.height);
          from = null;
        }
      });
    }
    ctx.strokeStyle = colour("muted");
    ctx.setLineDash([2, 4]);
    for (const [value] of this.spec.marks ?? []) {
      const top = plot.valToPos(value, "y", true);
      ctx.beginPath();
      ctx.moveTo(bbox.left, top);
      ctx.lineTo(bbox.left + bbox.width, top);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** What the pictures say in words. */
  #tell() {
    const { columns, timestamps, reasons } = this.newest;
    let text = "";
    if (this.spec.reasons) {
      const seconds = new Map();
      (columns.throttled ?? []).forEach((bits, index) => {
        const passed = Math.min(3, index ? timestamps[index] - timestamps[index - 1] : 0);
        if (bits) for (const reason of reasonsOf(bits, reasons)) seconds.set(reason, (seconds.get(reason) ?? 0) + passed);
      });
      text = seconds.size ? `Held down (shaded): ${[...seconds].map(([reason, time]) => `${cut(reason)} for ${duration(time)}`).join(", ")}.` : "Nothing held the clock down.";
    }
    if (this.spec.stack) text = `From the bottom to the top: ${this.shown.map(({ label }) => label).join("; ")}.`;
    if (this.spec.marks) text = "Lines at 5 % (worth a look) and 20 % (the loader is the bottleneck).";
    setText(this.note, text);
    if (this.details.open && timestamps.at(-1) - (this.tabled ?? 0) >= TABLE_SECONDS / 3) this.#table();
  }

  #table() {
    if (!this.details.open || !this.shown || !this.newest) return;
    const { timestamps, columns } = this.newest;
    this.tabled = timestamps.at(-1);
    const head = element("tr", {}, element("th", { scope: "col" }, "Time"), ...this.shown.map(({ label }) => element("th", { scope: "col" }, label)));
    const rows = [];
    let next = Infinity;
    for (let index = timestamps.length - 1; index >= 0; index -= 1) {
      if (timestamps[index] > next) continue;
      next = timestamps[index] - TABLE_SECONDS;
      rows.push(element("tr", {}, element("th", { scope: "row" }, clockTime(timestamps[index])), ...this.shown.map(({ column }) => {
        const value = columns[column][index];
        return element("td", {}, value === null ? "not known" : this.spec.format(value));
      })));
    }
    this.details.querySelector("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  }
}

export class Charts {
  constructor(find) {
    this.note = find("means");
    this.charts = Object.entries(CHARTS).map(([name, spec]) => new SeriesChart(find(`chart-${name}`), spec));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.charts.forEach((chart) => chart.remake()));
  }

  /** Returns the titles of the charts of which nothing is known. */
  show(history) {
    const seconds = history.timestamps.at(-1) - history.timestamps[0];
    const widest = Math.max(...this.charts.map(({ place }) => place.clientWidth));
    const step = STEPS.find((each) => seconds / each <= widest / PIXELS_PER_POINT) ?? STEPS.at(-1);
    const shown = condense(history, widest ? step : 1);
    setText(this.note, step > 1 ? `Each point of the charts is the mean of ${step} s.` : "");
    return this.charts.filter((chart) => !chart.show(shown, history)).map(({ figure }) => figure.querySelector("h2").textContent);
  }
}
