// SPDX-License-Identifier: Apache-2.0
// One GPU on the roofline: its point, its trail, and the bar or area of its bounds.

import { setAttribute, svg } from "./dom.js";
import { title } from "./facts.js";
import { boundsCorners } from "./geometry.js";
import { pointWords } from "./roofline_words.js";
import { Trail } from "./trails.js";

export const POINT = 6;
const HALO = 14;
const COLOURS = 8;

export const pathOf = (corners, { x, y }) =>
  corners.map(([intensity, flops], index) => `${index ? "L" : "M"}${x.at(intensity).toFixed(1)} ${y.at(flops).toFixed(1)}`).join("");

/** One GPU on the chart. */
export class Mark {
  constructor(chart, key, row) {
    this.key = key;
    this.colour = `series-${(row.gpu + (row.instance ?? 0)) % COLOURS}`;
    this.trail = new Trail(chart.layers.trails, `trail ${this.colour}`);
    this.area = svg("path", { class: `bounds ${this.colour}` });
    this.bar = svg("path", { class: `bar ${this.colour}` });
    this.dot = svg("circle", { r: POINT, class: "dot" });
    this.node = svg("g", { class: `point ${this.colour}`, role: "button", tabindex: "-1", "data-key": key },
      svg("circle", { r: HALO, class: "halo" }), this.dot);
    chart.layers.bounds.append(this.area, this.bar);
    chart.layers.points.append(this.node);
    this.place = null;
  }

  /** Move to where the reading is; returns whether there is anything on the chart. */
  show(row, axes, limits) {
    const { point, point_bounds: bounds } = row;
    const { x, y } = axes;
    const drawn = point && point.flops > 0 && point.intensity > 0;
    let corners = null;
    this.place = null;
    if (drawn) {
      this.place = { key: this.key, x: x.at(x.clamp(point.intensity)), y: y.at(y.clamp(point.flops)) };
    } else if (bounds?.flops && bounds?.bytes) {
      corners = boundsCorners(bounds, limits.intensity, limits.flops[0]);
      if (corners) this.place = { key: this.key, x: x.at(x.clamp(corners[1][0])), y: y.at(y.clamp(corners[1][1])) };
    }
    const off = drawn && !(x.holds(point.intensity) && y.holds(point.flops));
    this.node.classList.toggle("estimate", corners !== null);
    this.node.classList.toggle("off", Boolean(off));
    this.node.toggleAttribute("hidden", !this.place);
    setAttribute(this.area, "d", corners ? `${pathOf(corners, axes)}Z` : "");
    setAttribute(this.bar, "d", this.#bar(point, bounds, corners, axes, limits));
    if (this.place) setAttribute(this.node, "transform", `translate(${this.place.x.toFixed(1)} ${this.place.y.toFixed(1)})`);
    setAttribute(this.node, "aria-label", `${title(row)}: ${pointWords(row)}`);
    return this.place;
  }

  /** From the lower to the upper bound of the work: with the traffic known it has slope 1. */
  #bar(point, bounds, corners, { x, y }, limits) {
    const cap = (left, top) => `M${left - 5} ${top.toFixed(1)}h10`;
    if (corners) {
      const [left, top] = [x.at(corners[1][0]), y.at(corners[1][1])];
      const low = bounds.flops[0] > limits.flops[0] ? y.at(bounds.flops[0]) : y.at(limits.flops[0]);
      return `M${left.toFixed(1)} ${top.toFixed(1)}V${low.toFixed(1)}${cap(left, top)}${bounds.flops[0] > limits.flops[0] ? cap(left, low) : ""}`;
    }
    if (!this.place || !point || !bounds?.flops) return "";
    const traffic = point.flops / point.intensity;
    const ends = bounds.flops.map((work) => Math.min(limits.flops[1], Math.max(work, limits.flops[0])));
    const [[x0, y0], [x1, y1]] = ends.map((work) => [x.at(x.clamp(work / traffic)), y.at(work)]);
    return `M${x0.toFixed(1)} ${y0.toFixed(1)}L${x1.toFixed(1)} ${y1.toFixed(1)}${cap(x0, y0)}${cap(x1, y1)}`;
  }

  remove() {
    for (const node of [this.trail, this.area, this.bar, this.node]) node.remove();
  }
}
