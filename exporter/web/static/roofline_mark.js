// SPDX-License-Identifier: Apache-2.0
// One GPU on the roofline: its point, its trail and the bar of its bounds; or, without counters,
// the region in which it is somewhere.

import { setAttribute, svg } from "./dom.js";
import { boundsCorners } from "./geometry.js";
import { Trail } from "./trails.js";

const COLOURS = 8;
const BEND = 3;

export const pathOf = (corners, { x, y }) =>
  corners.map(([intensity, flops], index) => `${index ? "L" : "M"}${x.at(intensity).toFixed(1)} ${y.at(flops).toFixed(1)}`).join("");

/** The corners of what its bounds leave possible below the highest roof. */
const regionOf = ({ flops_bounds: work, bytes_bounds: traffic }, { lines: [highest], bandwidth: [bandwidth] = [Infinity] }, limits) => {
  const below = (values, most) => values.map((value) => Math.min(value, most));
  return work && traffic ? boundsCorners(below(work, highest.peak[0]), below(traffic, bandwidth), limits.intensity, limits.flops[0]) : null;
};

export class Mark {
  constructor(layers, key, { gpu, instance = 0 }) {
    const series = (gpu + instance) % COLOURS;
    const colour = `series-${series}`;
    this.trail = new Trail(`trail ${colour}`);
    this.area = svg("path", { class: "region", fill: `url(#hatch-${series})`, "data-key": key });
    this.bar = svg("path", { class: `bar ${colour}` });
    this.edge = svg("path", { class: "edge" });
    this.dot = [svg("circle", { class: "halo" }), svg("circle", { class: "dot" })];
    this.node = svg("g", { class: `point ${colour}`, role: "button", tabindex: "-1", "aria-describedby": "tip", "data-key": key });
    layers.trails.append(this.trail.node);
    layers.bounds.append(this.area, this.bar);
    layers.points.append(this.node);
  }

  /** Move to where the reading is; `place` is in pixels then, or null where it has none. */
  show(row, point, { x, y }, limits, roof) {
    const corners = point ? null : regionOf(row, roof, limits);
    const [intensity, flops] = point ? [point.intensity, point.flops] : (corners?.[BEND] ?? []);
    this.place = flops === undefined ? null : { x: x.at(x.clamp(intensity)), y: y.at(y.clamp(flops)) };
    this.region = corners !== null;
    const drawn = this.region ? [this.edge] : this.dot;
    if (this.node.firstChild !== drawn[0]) this.node.replaceChildren(...drawn);
    this.node.classList.toggle("estimate", this.region);
    this.node.classList.toggle("off", Boolean(point) && !(x.holds(intensity) && y.holds(flops)));
    this.node.toggleAttribute("hidden", !this.place);
    setAttribute(this.area, "d", corners ? `${pathOf(corners, { x, y })}Z` : "");
    setAttribute(this.edge, "d", corners ? pathOf(corners.slice(1, BEND + 2), { x, y }) : "");
    setAttribute(this.bar, "d", point && row.flops_bounds ? this.#bar(point, row.flops_bounds, { x, y }, limits.flops) : "");
    setAttribute(this.node, "transform", point ? `translate(${this.place.x.toFixed(1)} ${this.place.y.toFixed(1)})` : "");
    setAttribute(this.node, "aria-label", `${row.words.title}: ${row.words.point}`);
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
