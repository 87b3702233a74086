// SPDX-License-Identifier: Apache-2.0
// One GPU on the roofline: its point, its trail and the bars of its bounds; or, where its work is
// not known, the band that its traffic allows.

import { setAttribute, svg } from "./dom.js";
import { boundsCorners } from "./geometry.js";
import { Trail } from "./trails.js";

const COLOURS = 8;
const BEND = 3;

export const pathOf = (corners, { x, y }) =>
  corners.map(([intensity, flops], index) => `${index ? "L" : "M"}${x.at(intensity).toFixed(1)} ${y.at(flops).toFixed(1)}`).join("");

/** The corners of what its work and traffic leave possible below the highest roof. */
const bandOf = ({ flops_bounds: work, bytes_bounds: [few, many] = [], bytes_likely: likely }, { lines: [highest], bandwidth: [bandwidth] = [Infinity] }, limits) => {
  const traffic = few > 0 ? [few, many] : likely && [likely[0], likely[2]];
  const below = (values, most) => values.map((value) => Math.min(value, most));
  return work && traffic ? boundsCorners(below(work, highest.peak[0]), below(traffic, bandwidth), limits.intensity, limits.flops[0]) : null;
};

/** Where the job's work and the likely traffic put a GPU; null where one of them is not known. */
export const likelyPoint = ({ stated, bytes_likely: likely }) => (stated && likely ? { flops: stated, intensity: stated / likely[1] } : null);

export class Mark {
  /** What of it a legend explains. */
  get kinds() {
    if (!this.place) return [];
    if (this.region) return ["band"];
    return this.likely ? ["likely", "bounds"] : [!this.trail.node.hasAttribute("hidden") && "trail", !this.bar.hasAttribute("hidden") && "bounds"];
  }

  constructor(layers, key, { gpu, instance = 0 }) {
    const series = (gpu + instance) % COLOURS;
    const colour = `series-${series}`;
    this.trail = new Trail(`trail ${colour}`);
    this.area = svg("path", { class: `region ${colour}`, "data-key": key });
    this.bar = svg("path", { class: `bar ${colour}` });
    this.edge = svg("path", { class: "edge" });
    this.dot = [svg("circle", { class: "halo" }), svg("circle", { class: "dot" })];
    this.node = svg("g", { class: `point ${colour}`, role: "button", tabindex: "-1", "aria-describedby": "tip", "data-key": key });
    layers.trails.append(this.trail.node);
    layers.bounds.append(this.area, this.bar);
    layers.points.append(this.node);
  }

  /** Move to where the reading is; `place` is in pixels then, or null where it has none. */
  show(row, measured, { x, y }, limits, roof) {
    const likely = measured ? null : likelyPoint(row);
    const point = measured ?? likely;
    const corners = point ? null : bandOf(row, roof, limits);
    const [intensity, flops] = point ? [point.intensity, point.flops] : (corners?.[BEND] ?? []);
    this.place = flops === undefined ? null : { x: x.at(x.clamp(intensity)), y: y.at(y.clamp(flops)) };
    this.region = corners !== null;
    this.likely = likely !== null;
    this.boxes = [];
    const drawn = this.region ? [this.edge] : this.dot;
    if (this.node.firstChild !== drawn[0]) this.node.replaceChildren(...drawn);
    this.node.classList.toggle("estimate", !measured);
    this.node.classList.toggle("off", Boolean(point) && !(x.holds(intensity) && y.holds(flops)));
    this.node.toggleAttribute("hidden", !this.place);
    setAttribute(this.area, "d", corners ? `${pathOf(corners, { x, y })}Z` : "");
    setAttribute(this.edge, "d", corners ? pathOf(corners.slice(1, BEND + 2), { x, y }) : "");
    setAttribute(this.bar, "d", point && row.flops_bounds ? this.#bars(point, row, likely, { x, y }, limits, roof.bandwidth?.[0]) : "");
    setAttribute(this.node, "transform", point ? `translate(${this.place.x.toFixed(1)} ${this.place.y.toFixed(1)})` : "");
    setAttribute(this.node, "aria-label", `${row.words.title}: ${row.words.point}`);
  }

  #bars(point, row, likely, axes, { intensity: [left, right], flops }, bandwidth = Infinity) {
    if (!likely) return this.#bar(point, row.flops_bounds, axes, flops);
    const [few, many] = row.bytes_bounds;
    const across = [Math.max(left, point.flops / many), few > 0 ? Math.min(right, point.flops / few) : right];
    const roof = Math.max(point.flops, Math.min(flops[1], point.intensity * bandwidth));
    const up = row.flops_bounds.map((each) => Math.min(roof, Math.max(each, flops[0])));
    const { x, y } = axes;
    const [at, high] = [x.at(x.clamp(point.intensity)).toFixed(1), y.at(y.clamp(point.flops)).toFixed(1)];
    const [low, top] = up.map((each) => y.at(each).toFixed(1));
    const [start, end] = across.map((each) => x.at(each).toFixed(1));
    this.boxes = [[start, high - 3, end, +high + 3], [at - 3, top, +at + 3, low]].map((box) => box.map(Number));
    // An end that is only the axis' has no cap.
    const cap = few > 0 ? `M${end} ${high - 5}v10` : "";
    return `M${start} ${high}H${end}M${at} ${low}V${top}M${start} ${high - 5}v10M${at - 5} ${low}h10M${at - 5} ${top}h10${cap}`;
  }

  /** From the lower to the upper bound of the work: with the traffic known it has slope 1. */
  #bar(point, work, { x, y }, [bottom, top]) {
    const ends = work.map((each) => [x.at(x.clamp((each * point.intensity) / point.flops)), y.at(Math.min(top, Math.max(each, bottom)))]);
    const caps = ends.map(([left, high]) => `M${(left - 5).toFixed(1)} ${high.toFixed(1)}h10`);
    return `M${ends.map((end) => end.map((each) => each.toFixed(1)).join(" ")).join("L")}${caps.join("")}`;
  }

  remove() {
    for (const node of [this.trail.node, this.area, this.bar, this.node]) node.remove();
  }
}
