// SPDX-License-Identifier: Apache-2.0
// The time series of one GPU, drawn by uPlot; page/charts.py says what is in each.

import { setAttribute, setText } from "./dom.js";
import { clockTime, fixed, percent, si } from "./format.js";
import { condense } from "./history.js";

const WINDOW_SECONDS = 900;
const SHORTEST_SECONDS = 60;
const STEPS = [1, 2, 5, 10, 15];
const PIXELS_PER_POINT = 3;
const HEIGHT_REM = 12;

const FORMATS = { W: (value) => `${fixed(value, 0)} W`, Hz: (value) => si(value, "Hz") };

/** What is known now: nothing that was read longer ago than a hole lasts. */
const lastKnown = ({ timestamps, fresh }, values) => {
  const at = values.findLastIndex((value) => value !== null);
  return timestamps.at(-1) - timestamps[at] <= fresh ? values[at] : null;
};

const reasonsOf = (bits, names) => names.filter((_, bit) => bits & (1 << bit));

const stacked = (columns) => {
  const sums = columns[0].map(() => 0);
  return columns.map((column) => column.map((value, index) => (value === null ? null : (sums[index] += value))));
};

/** One chart; made anew when the lines or the colours change. */
class SeriesChart {
  constructor(figure, spec) {
    Object.assign(this, { figure, spec });
    this.format = FORMATS[spec.unit] ?? percent;
    this.title = figure.querySelector("h2").textContent;
    this.place = figure.querySelector(".canvas");
    this.shown = [];
    if (spec.note) setText(figure.querySelector(".note"), spec.note);
    new ResizeObserver(() => this.#resize()).observe(this.place);
  }

  /** Draw `history`, write `newest`; returns whether any of it is known. */
  show(history, newest) {
    Object.assign(this, { history, newest });
    const shown = this.spec.lines.filter(({ column }) => this.#isKnown(column));
    this.figure.hidden = !shown.length;
    if (!shown.length) return false;
    const changed = shown.length !== this.shown.length || shown.some((each, index) => each !== this.shown[index]);
    this.shown = shown;
    this.bounds = shown.some(({ column }) => column.endsWith("_upper"));
    if (changed) this.remake();
    this.plot?.setData(this.#data());
    return true;
  }

  /** Whether anything is known of a column; an upper bound that is always the lower one adds nothing. */
  #isKnown(column) {
    const { columns } = this.newest;
    const lower = column.endsWith("_upper") ? columns[column.replace("_upper", "_lower")] : [];
    return (columns[column] ?? []).some((value, index) => value !== null && value !== lower?.[index]);
  }

  #data() {
    const { timestamps, columns } = this.history;
    const drawn = this.shown.map(({ column }) => columns[column]);
    const reasons = this.spec.reasons ? [columns.throttled ?? timestamps.map(() => null)] : [];
    return [timestamps, ...(this.spec.stack ? stacked(drawn) : drawn), ...reasons];
  }

  #resize() {
    const width = Math.floor(this.place.clientWidth);
    if (this.plot && width) this.plot.setSize({ width, height: this.plot.height });
    else this.remake();
  }

  #series(colour, thick) {
    const { stack, reasons } = this.spec;
    const written = (name, say) => (_, __, ___, at) => {
      const value = at === null ? lastKnown(this.newest, this.newest.columns[name] ?? []) : this.history.columns[name]?.[at];
      return value === null || value === undefined ? "not known" : say(value);
    };
    const series = this.shown.map(({ column, label, apart, colour: name, dash }) => ({
      label: (this.bounds && apart) || label, dash, width: stack ? thick / 2 : thick, stroke: colour(name), points: { show: false },
      fill: stack ? `${colour(name)}59` : undefined,
      // A stack is drawn in sums, but written part by part.
      value: written(column, this.format),
    }));
    if (reasons) {
      series.push({
        label: "throttled by", scale: "reasons", stroke: colour("clock"), paths: () => null, points: { show: false },
        value: written("throttled", (bits) => reasonsOf(bits, reasons).join(", ") || "nothing"),
      });
    }
    return series;
  }

  /** A stack is filled between neighbours; a band between the two bounds. */
  #bands(colour) {
    const { stack, band = [] } = this.spec;
    if (stack) return this.shown.slice(1).map(({ colour: name }, index) => ({ series: [index + 2, index + 1], fill: `${colour(name)}59` }));
    const ends = band.map((each) => this.shown.findIndex(({ column }) => column === each) + 1);
    return ends.length && ends.every(Boolean) ? [{ series: ends, fill: `${colour("good")}40` }] : [];
  }

  remake() {
    this.plot?.destroy();
    this.plot = null;
    const width = Math.floor(this.place.clientWidth);
    if (!width || !this.shown.length) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const size = parseFloat(style.fontSize);
    const axis = { stroke: colour("muted"), font: `${Math.round(size * 0.8)}px system-ui, sans-serif`, grid: { stroke: colour("track"), width: 1 }, ticks: { show: false } };
    const times = (_, values) => values.map((time) => clockTime(time).slice(0, values[1] - values[0] < 60 ? 8 : 5));
    const series = this.#series(colour, size / 7.5);
    this.plot = new uPlot({
      width, height: Math.round(HEIGHT_REM * size), padding: [null, size * 2.2, null, null], bands: this.#bands(colour),
      series: [{ label: "time", value: (_, time) => (time === null ? "now" : clockTime(time)) }, ...series],
      scales: {
        x: { time: true, range: (_, first, last) => [Math.max(last - WINDOW_SECONDS, Math.min(first, last - SHORTEST_SECONDS)), last] },
        y: { range: this.spec.unit ? (_, __, high) => [0, (high || 1) * 1.08] : [0, 1] },
        reasons: { range: [0, 256] },
      },
      axes: [{ ...axis, values: times, space: size * 5.3, size: size * 2, gap: size * 0.6 }, { ...axis, values: (_, values) => values.map(this.format), space: size * 2, size: size * 4.6 }],
      cursor: { y: false, sync: { key: "gpu" }, points: { show: false }, drag: { x: false, y: false } },
      legend: { markers: { dash: (_, index) => (series[index - 1]?.dash ? "dashed" : "solid"), width: 2 } },
      hooks: { drawClear: [(plot) => this.#shade(plot, colour)] },
    }, this.#data(), this.place);
    setAttribute(this.plot.ctx.canvas, "role", "img");
    setAttribute(this.plot.ctx.canvas, "aria-label", `${this.title}, the last 15 minutes; the numbers are in the table below`);
    setAttribute(this.place.querySelector(".u-legend"), "aria-hidden", true);
  }

  /** Times in which something throttles the clock, and lines that mark thresholds. */
  #shade(plot, colour) {
    const { ctx, bbox } = plot;
    const { timestamps, columns: { throttled = [] } } = this.history;
    const at = (time) => Math.round(Math.max(bbox.left, plot.valToPos(time, "x", true)));
    ctx.save();
    ctx.fillStyle = `${colour("clock")}33`;
    timestamps.forEach((time, index) => {
      if (!this.spec.reasons || !throttled[index]) return;
      const from = at(time);
      ctx.fillRect(from, bbox.top, Math.max(2, at(timestamps[index + 1] ?? time) - from), bbox.height);
    });
    ctx.strokeStyle = colour("muted");
    ctx.setLineDash([2, 4]);
    for (const value of this.spec.marks ?? []) {
      const top = plot.valToPos(value, "y", true);
      ctx.beginPath();
      ctx.moveTo(bbox.left, top);
      ctx.lineTo(bbox.left + bbox.width, top);
      ctx.stroke();
    }
    ctx.restore();
  }
}

export class Charts {
  constructor(find, specs) {
    this.note = find("means");
    this.charts = specs.map((spec) => new SeriesChart(find(`chart-${spec.name}`), spec));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.charts.forEach((chart) => chart.remake()));
  }

  /** Returns the titles of the charts of which nothing is known. */
  show(history) {
    const seconds = history.timestamps.at(-1) - history.timestamps[0];
    const widest = Math.max(...this.charts.map(({ place }) => place.clientWidth));
    const step = STEPS.find((each) => seconds / each <= widest / PIXELS_PER_POINT) ?? STEPS.at(-1);
    const shown = condense(history, step);
    const absent = this.charts.filter((chart) => !chart.show(shown, history)).map(({ title }) => title);
    setText(this.note, step > 1 && absent.length < this.charts.length ? `Each point of the charts is the mean of ${step} s.` : "");
    return absent;
  }
}
