// SPDX-License-Identifier: Apache-2.0
// One GPU on the roofline: its point, its trail, and the bar or area of its bounds.

import { setAttribute, svg } from "./dom.js";
import { boundsCorners } from "./geometry.js";
import { Trail } from "./trails.js";

const COLOURS = 8;

export const pathOf = (corners, { x, y }) =>
  corners.map(([intensity, flops], index) => `${index ? "L" : "M"}${x.at(intensity).toFixed(1)} ${y.at(flops).toFixed(1)}`).join("");

export class Mark {
  constructor(layers, key, { gpu, instance = 0 }) {
    const colour = `series-${(gpu + instance) % COLOURS}`;
    this.trail = new Trail(`trail ${colour}`);
    this.area = svg("path", { class: `bounds ${colour}` });
    this.bar = svg("path", { class: `bar ${colour}` });
    this.node = svg("g", { class: `point ${colour}`, role: "button", tabindex: "-1", "aria-describedby": "tip", "data-key": key },
      svg("circle", { class: "halo" }), svg("circle", { class: "dot" }));
    layers.trails.append(this.trail.node);
    layers.bounds.append(this.area, this.bar);
    layers.points.append(this.node);
  }

  /** Move to where the reading is; `place` is in pixels then, or null where it has none. */
  show(row, point, { x, y }, limits) {
    const { flops_bounds: work, bytes_bounds: traffic } = row;
    const corners = !point && work && traffic ? boundsCorners(work, traffic, limits.intensity, limits.flops[0]) : null;
    const [intensity, flops] = point ? [point.intensity, point.flops] : (corners?.[3] ?? []);
    this.place = flops === undefined ? null : { x: x.at(x.clamp(intensity)), y: y.at(y.clamp(flops)) };
    this.node.classList.toggle("estimate", corners !== null);
    this.node.classList.toggle("off", Boolean(point) && !(x.holds(intensity) && y.holds(flops)));
    this.node.toggleAttribute("hidden", !this.place);
    setAttribute(this.area, "d", corners ? `${pathOf(corners, { x, y })}Z` : "");
    setAttribute(this.bar, "d", this.place && work ? this.#bar(point, work, { x, y }, limits.flops) : "");
    if (this.place) setAttribute(this.node, "transform", `translate(${this.place.x.toFixed(1)} ${this.place.y.toFixed(1)})`);
    setAttribute(this.node, "aria-label", `${row.words.title}: ${row.words.point}`);
  }

  /** From the lower to the upper bound of the work: with the traffic known it has slope 1. */
  #bar(point, work, { x, y }, [bottom, top]) {
    const ends = work.map((each) => {
      const left = point ? x.at(x.clamp((each * point.intensity) / point.flops)) : this.place.x;
      return [left, y.at(Math.min(top, Math.max(each, bottom)))];
    });
    const caps = ends.filter((_, index) => point || work[index] > bottom).map(([left, high]) => `M${(left - 5).toFixed(1)} ${high.toFixed(1)}h10`);
    return `M${ends.map((end) => end.map((each) => each.toFixed(1)).join(" ")).join("L")}${caps.join("")}`;
  }

  remove() {
    for (const node of [this.trail.node, this.area, this.bar, this.node]) node.remove();
  }
}
