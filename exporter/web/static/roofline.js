// SPDX-License-Identifier: Apache-2.0
// The roofline chart: ceilings of one product, and a point with its trail for each of its GPUs.

import { element, setAttribute, setText, svg } from "./dom.js";
import { title } from "./facts.js";
import * as format from "./format.js";
import { clusters, decades, logAxis, mergeCeilings, placeLabel, ranges, ridge, roofCorners } from "./geometry.js";
import { Mark, pathOf, POINT } from "./roofline_mark.js";
import { asDrawn, flopsTick, intensityTick, joined, pointWords, precisionWords, roofShares, roofTitle } from "./roofline_words.js";

const MARGIN = { top: 14, right: 14, bottom: 44, left: 62 };
const TRAILS_OF_ALL = 16;
const LINE_HEIGHT = 13;
const LETTER = 6.3;
const GROUP = 13;

const shortName = (row) => (row.instance === undefined ? `${row.gpu}` : `${row.gpu}.${row.instance}`);

export class RooflineChart {
  /**
   * `figure` holds an svg, a tip, a note and perhaps a select; `onSelect(key)` when a point is
   * chosen; `only` keeps the chart to one row.
   */
  constructor(figure, onSelect, only = null) {
    this.figure = figure;
    this.onSelect = onSelect;
    this.only = only;
    this.svg = figure.querySelector("svg.roofline");
    this.tip = figure.querySelector(".tip");
    this.note = figure.querySelector(".note");
    this.clockNote = figure.querySelector("[data-c=clock]");
    this.products = figure.querySelector("select");
    this.layers = {};
    for (const name of ["grid", "roofs", "clock", "marks", "trails", "bounds", "points", "labels"]) {
      this.layers[name] = svg("g", { class: name });
      this.svg.append(this.layers[name]);
    }
    this.marks = new Map();
    this.roofs = {};
    this.chosen = null;
    this.selected = null;
    this.view = null;
    this.width = 0;
    new ResizeObserver(() => this.#resize()).observe(this.svg.parentElement);
    this.products?.addEventListener("change", () => this.#choose(this.products.value));
    this.#listen();
  }

  select(key) {
    this.selected = key;
    const roof = this.#roofOf(key);
    if (roof !== undefined && roof !== this.chosen) this.#choose(roof);
    else this.#update(false);
  }

  show(view) {
    this.view = view;
    this.#offer();
    this.#update(true);
  }

  /** The products to choose from; their ceilings come with the view and rarely change. */
  #offer() {
    const known = JSON.stringify(this.view.roofs ?? {});
    const rows = Object.values(this.view.rows ?? {});
    const count = (key) => rows.filter(({ ceilings }) => ceilings === key).length;
    if (known !== this.known) {
      this.known = known;
      this.roofs = Object.fromEntries(Object.entries(this.view.roofs ?? {}).filter(([, roof]) => Object.keys(roof.flops ?? {}).length).map(([key, roof]) => [key, asDrawn(roof)]));
      const keys = Object.keys(this.roofs);
      if (this.products) {
        this.products.replaceChildren(...keys.map((key) => element("option", { value: key }, `${roofTitle(key, this.view.roofs[key])} (${count(key)})`)));
        this.products.parentElement.hidden = keys.length < 2;
      }
      const most = keys.reduce((best, key) => (best === undefined || count(key) > count(best) ? key : best), undefined);
      this.#choose(this.#roofOf(this.only ?? this.selected) ?? (keys.includes(this.chosen) ? this.chosen : (most ?? null)));
    }
  }

  #roofOf(key) {
    const roof = this.view?.rows?.[key]?.ceilings;
    return roof in this.roofs ? roof : undefined;
  }

  #choose(key) {
    this.chosen = key;
    if (this.products && key !== null) this.products.value = key;
    for (const mark of this.marks.values()) mark.remove();
    this.marks.clear();
    this.clockText = undefined;
    this.#frame();
  }

  #resize() {
    const width = Math.round(this.svg.parentElement.clientWidth);
    if (width && width !== this.width) {
      this.width = width;
      this.#frame();
    }
  }

  /** Everything that stays while points move: axes, grid and ceilings. */
  #frame(limits = null) {
    const roof = this.roofs[this.chosen];
    this.svg.toggleAttribute("hidden", !roof);
    if (!roof || !this.width) return;
    const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
    const [width, height] = [this.width, Math.round(Math.min(Math.max(this.width * 0.8, 300), 560 * scale))];
    this.scale = scale;
    this.size = [width, height];
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(this.svg, "height", height);
    this.limits = limits ?? ranges(roof, this.#readings());
    const left = MARGIN.left * scale;
    this.axes = {
      x: logAxis(...this.limits.intensity, left, width - MARGIN.right),
      y: logAxis(...this.limits.flops, height - MARGIN.bottom * scale, MARGIN.top),
    };
    this.taken = [];
    this.#grid();
    this.#roofs(roof);
    for (const mark of this.marks.values()) mark.trail.redraw(this.axes);
    this.#update(false);
  }

  #readings() {
    const rows = Object.entries(this.view?.rows ?? {}).filter(([key, row]) => row.ceilings === this.chosen && row.point && (this.only === null || key === this.only));
    return rows.map(([, { point }]) => point);
  }

  /** Points that left the chart make it wider; it never becomes narrower again by itself. */
  #outgrown() {
    const { x, y } = this.axes;
    const outside = this.#readings().some(({ intensity, flops }) => intensity < x.low || intensity > x.high || flops < y.low);
    if (!outside) return;
    const wider = ranges(this.roofs[this.chosen], [...this.#readings(), { intensity: x.low, flops: y.low }, { intensity: x.high, flops: y.low }]);
    if (JSON.stringify(wider) !== JSON.stringify(this.limits)) this.#frame(wider);
  }

  #grid() {
    const { x, y } = this.axes;
    const [left, right, top, bottom] = [x.at(x.low), x.at(x.high), y.at(y.high), y.at(y.low)];
    const parts = [svg("rect", { class: "field", x: left, y: top, width: right - left, height: bottom - top })];
    for (const value of decades(x)) {
      const at = x.at(value).toFixed(1);
      parts.push(svg("path", { class: "line", d: `M${at} ${top}V${bottom}` }));
      parts.push(svg("text", { class: "tick", x: at, y: bottom + 16 * this.scale, "text-anchor": "middle", "data-intensity": value }, intensityTick(value)));
    }
    for (const value of decades(y)) {
      const at = y.at(value).toFixed(1);
      parts.push(svg("path", { class: "line", d: `M${left} ${at}H${right}` }));
      parts.push(svg("text", { class: "tick", x: left - 6, y: Number(at) + 4 * this.scale, "text-anchor": "end", "data-flops": value }, flopsTick(value)));
    }
    const middle = (top + bottom) / 2;
    parts.push(svg("text", { class: "axis", x: (left + right) / 2, y: bottom + 34 * this.scale, "text-anchor": "middle" }, "Arithmetic intensity, FLOP per byte of DRAM traffic"));
    parts.push(svg("text", { class: "axis", x: 12 * this.scale, y: middle, "text-anchor": "middle", transform: `rotate(-90 ${12 * this.scale} ${middle})` }, "FLOP/s"));
    this.layers.grid.replaceChildren(...parts);
  }

  #roofs(roof) {
    const { x, y } = this.axes;
    const limits = this.limits;
    const parts = [];
    // Above the roof that moves with the clock.
    const marks = [];
    const bandwidth = roof.bandwidth.spec;
    const lines = mergeCeilings(roof.ceilings);
    for (const line of lines) {
      const kind = line.assumed ? "spec assumed" : "spec";
      parts.push(svg("path", { class: `roof ${kind}`, d: pathOf(roofCorners(line.spec, bandwidth, limits.intensity, limits.flops[0]), this.axes), "data-precision": line.precisions.join(" ") },
        svg("title", {}, `${line.precisions.join(", ")}: ${format.flops(line.spec)}`)));
      if (line.achievable) {
        const memory = roof.bandwidth.achievable ?? bandwidth;
        parts.push(svg("path", { class: line.assumed ? "roof achievable assumed" : "roof achievable", d: pathOf(roofCorners(line.achievable, memory, limits.intensity, limits.flops[0]), this.axes) }));
      }
    }
    // The labels of the ceilings stand on their lines at the right end; the assumed one first.
    for (const line of [...lines].sort((a, b) => b.assumed - a.assumed)) {
      this.#label(`${joined(line.precisions)}  ${format.flops(line.spec).replace("FLOP/s", "")}`, x.at(x.high) - 4, y.at(line.spec) - 4, "end", line.assumed ? "ceiling assumed" : "ceiling", marks);
    }
    if (bandwidth) {
      const from = Math.max(limits.intensity[0], limits.flops[0] / bandwidth);
      const peak = lines.find(({ assumed }) => assumed)?.spec ?? lines[0].spec;
      const lean = (Math.atan2(y.at(from * bandwidth) - y.at(10 * from * bandwidth), x.at(10 * from) - x.at(from)) * 180) / Math.PI;
      const at = from * 10 ** (0.32 * Math.log10(ridge(peak, bandwidth) / from));
      const [left, top] = [x.at(at), y.at(at * bandwidth)];
      const turned = `rotate(${-lean.toFixed(1)} ${left} ${top}) translate(0 -6)`;
      marks.push(svg("text", { class: "ceiling slope", x: left, y: top, "text-anchor": "middle", transform: turned }, `DRAM ${format.bytesRate(bandwidth)}`));
      const [knee, tip] = [x.at(ridge(peak, bandwidth)), y.at(peak)];
      parts.push(svg("path", { class: "ridge", d: `M${knee} ${tip}V${y.at(y.low)}` }));
      marks.push(svg("path", { class: "knee", d: `M${knee} ${tip - 5}l5 5l-5 5l-5 -5Z` }));
      this.#label(`ridge ${format.intensity(ridge(peak, bandwidth))}`, knee + 4, y.at(y.low) - 6, "start", "ceiling knee-label", marks);
    }
    this.fixed = [...this.taken];
    this.layers.roofs.replaceChildren(...parts);
    this.layers.marks.replaceChildren(...marks);
  }

  #label(text, left, top, anchor, kind, parts) {
    const [wide, high] = [text.length * LETTER * this.scale, LINE_HEIGHT * this.scale];
    const start = anchor === "end" ? left - wide : left;
    const box = [start, top - high + 3, start + wide, top + 3];
    if (this.taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) return;
    this.taken.push(box);
    parts.push(svg("text", { class: kind, x: left, y: top, "text-anchor": anchor }, text));
  }

  /** The roof at the clock of the selected GPU: it moves with the clock. */
  #clock(row, roof) {
    const line = roof.ceilings.find(({ assumed }) => assumed);
    const clock = row?.clock?.[0];
    if (!line?.clock || !clock) {
      this.layers.clock.replaceChildren();
      this.clockText = null;
      setText(this.clockNote, "at the clock of the selected GPU");
      return;
    }
    const peak = (line.spec * clock) / line.clock;
    const text = `${title(row)} at ${format.si(clock, "Hz")}`;
    if (this.clockText === text) return;
    this.clockText = text;
    setText(this.clockNote, `at the clock of ${text.replace(" at ", ", ")}`);
    const d = pathOf(roofCorners(peak, roof.bandwidth.spec, this.limits.intensity, this.limits.flops[0]), this.axes);
    this.layers.clock.replaceChildren(svg("path", { class: "roof clock", d }, svg("title", {}, text)));
  }

  #update(fresh) {
    const roof = this.roofs[this.chosen];
    if (!roof || !this.axes || !this.view) return;
    if (fresh) this.#outgrown();
    const rows = this.view.rows ?? {};
    const mine = Object.entries(rows).filter(([key, row]) => row.ceilings === this.chosen && row.state === "up" && (this.only === null || key === this.only));
    const keys = new Set(mine.map(([key]) => key));
    for (const [key, mark] of this.marks) {
      if (!keys.has(key)) {
        mark.remove();
        this.marks.delete(key);
      }
    }
    const places = [];
    const absent = [];
    for (const [key, row] of mine) {
      let mark = this.marks.get(key);
      if (!mark) {
        mark = new Mark(this, key, row);
        this.marks.set(key, mark);
      }
      const place = mark.show(row, this.axes, this.limits);
      if (place) places.push(place);
      else absent.push(row);
      if (fresh) mark.trail.add(this.view.timestamp, row.point?.flops > 0 && row.point.intensity > 0 ? row.point : null, this.axes);
      const chosen = key === this.selected;
      mark.node.classList.toggle("selected", chosen);
      setAttribute(mark.node, "aria-pressed", chosen);
      mark.bar.toggleAttribute("hidden", !chosen && Boolean(row.point));
      mark.trail.node.toggleAttribute("hidden", mine.length > TRAILS_OF_ALL && !chosen);
    }
    this.#labels(places, rows);
    this.#clock(rows[this.selected ?? this.only] ?? null, roof);
    this.#rove(places);
    setText(this.note, absent.length ? `Not on the chart, for lack of work or readings: ${this.#names(absent)}.` : "");
    if (this.tipKey) this.#tell(this.tipKey);
  }

  #names(rows) {
    const shown = rows.slice(0, 12).map((row) => title(row));
    return shown.join(", ") + (rows.length > shown.length ? ` and ${rows.length - shown.length} more` : "");
  }

  #labels(places, rows) {
    const taken = [...(this.fixed ?? []), ...places.map(({ x, y }) => [x - POINT, y - POINT, x + POINT, y + POINT])];
    const groups = clusters(places, GROUP);
    const nodes = this.layers.labels.children;
    groups.forEach((group, index) => {
      const names = group.map(({ key }) => shortName(rows[key]));
      const text = (names.length > 4 ? `${names.slice(0, 3).join(", ")} +${names.length - 3}` : names.join(", "));
      const label = `GPU ${text}`;
      const size = [label.length * LETTER * 1.05 * this.scale, LINE_HEIGHT * this.scale];
      const at = placeLabel(group[0], size, POINT + 4, this.size, taken);
      let node = nodes[index];
      if (!node) {
        node = svg("text", { class: "name" });
        this.layers.labels.append(node);
      }
      setText(node, label);
      setAttribute(node, "x", at.x.toFixed(1));
      setAttribute(node, "y", (at.y + 1).toFixed(1));
      setAttribute(node, "text-anchor", at.anchor);
    });
    while (nodes.length > groups.length) nodes[nodes.length - 1].remove();
  }

  /** One tab stop for all points; the arrow keys go from one to the next. */
  #rove(places) {
    const keys = places.map(({ key }) => key);
    this.order = keys;
    if (!keys.includes(this.stop)) this.stop = keys.includes(this.selected) ? this.selected : keys[0];
    for (const [key, mark] of this.marks) setAttribute(mark.node, "tabindex", key === this.stop ? 0 : -1);
  }

  #tell(key) {
    const row = this.view?.rows?.[key];
    const mark = this.marks.get(key);
    if (!row || !mark?.place) {
      this.#hush();
      return;
    }
    this.tipKey = key;
    const lines = [element("b", {}, title(row)), pointWords(row)];
    if (row.point) lines.push(format.bytesRate(row.point.flops / row.point.intensity) + " of DRAM traffic");
    if (row.point_bounds) lines.push(precisionWords(row));
    const shares = roofShares(row);
    if (shares) lines.push(`of the roof: ${shares}`);
    this.tip.replaceChildren(...lines.map((line) => element("span", {}, line)));
    this.tip.hidden = false;
    const [width] = this.size;
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(4, Math.min(width - wide - 4, mark.place.x - wide / 2))}px`;
    const above = mark.place.y - this.tip.offsetHeight - 14;
    this.tip.style.top = `${above > 0 ? above : mark.place.y + 16}px`;
  }

  #hush() {
    this.tipKey = null;
    this.tip.hidden = true;
  }

  #listen() {
    const keyOf = (target) => target.closest?.(".point")?.dataset.key;
    const points = this.layers.points;
    points.addEventListener("pointerover", ({ target }) => keyOf(target) && this.#tell(keyOf(target)));
    points.addEventListener("pointerout", () => this.#hush());
    points.addEventListener("focusin", ({ target }) => this.#tell(keyOf(target)));
    points.addEventListener("focusout", () => this.#hush());
    points.addEventListener("click", ({ target }) => keyOf(target) && this.onSelect(keyOf(target)));
    points.addEventListener("keydown", (event) => {
      const key = keyOf(event.target);
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") this.#hush();
      else if (event.key === "Enter" || event.key === " ") this.onSelect(key);
      else if (step) {
        const index = (this.order.indexOf(key) + step + this.order.length) % this.order.length;
        this.stop = this.order[index];
        this.#rove(this.order.map((each) => ({ key: each })));
        this.marks.get(this.stop).node.focus();
      } else return;
      event.preventDefault();
    });
  }
}
