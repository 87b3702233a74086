// SPDX-License-Identifier: Apache-2.0
// The roofline chart: ceilings of one GPU model, and a point with its trail for each of its GPUs.

import { element, setAttribute, setText, svg } from "./dom.js";
import { flops, intensity, si, tick } from "./format.js";
import { clusters, crosses, decades, linesOf, logAxis, overlap, placeLabel, pointOf, ranges, roofCorners } from "./geometry.js";
import { likelyPoint, Mark, pathOf } from "./roofline_mark.js";
import { numbersOf } from "./stream.js";
import { Tracks } from "./trails.js";

// In pixels at the text size of a usual screen; they grow with it.
const MARGIN = { top: 14, right: 14, bottom: 44, left: 62 };
const LINE_HEIGHT = 13;
const LETTERS = 11.25;
const TICK = 36;
const POINT = 6;
const GROUP = 13;
const TEXT = 15;

const TRAILS_OF_ALL = 16;
const NAMED = 12;

const ruler = document.createElement("canvas").getContext("2d");

const some = (names, most, rest) => names.slice(0, most).join(", ") + (names.length > most ? rest(names.length - most) : "");

/** What is known of a place on the chart; counters do not show the precision of tensor work. */
export const detailsOf = (view, { words: { point, roof }, flops_bounds: bounds, ...row }) => {
  const { flops: work, bytes } = numbersOf(view, row);
  const precision = bounds && pointOf(work, bytes) && !row.bytes_bounds && `${bounds.map(flops).join(" to ")} by precision`;
  return [point, bytes && `${si(bytes, "B/s")} of DRAM traffic`, precision, roof && `of the roof: ${roof}`].filter(Boolean);
};

export class RooflineChart {
  /**
   * `figure` holds an svg, a tip, a note and perhaps a select; `onSelect(key)` when a point is
   * chosen; `only` keeps the chart to one row.
   */
  constructor(figure, onSelect, only = null) {
    this.onSelect = onSelect;
    this.only = only;
    this.svg = figure.querySelector("svg.roofline");
    this.tip = figure.querySelector(".tip");
    this.note = figure.querySelector(".note");
    this.notes = Object.fromEntries([...figure.querySelectorAll(".legend [data-c]")].map((each) => [each.dataset.c, each]));
    this.models = figure.querySelector("select");
    this.layers = Object.fromEntries([...this.svg.querySelectorAll("g")].map((layer) => [layer.getAttribute("class"), layer]));
    this.marks = new Map();
    this.tracks = new Tracks();
    this.roofs = {};
    this.chosen = null;
    this.selected = only;
    this.size = [0, 0];
    new ResizeObserver(() => this.#frame()).observe(this.svg.parentElement);
    this.models.addEventListener("change", () => this.#choose(this.models.value));
    this.#listen();
  }

  select(key) {
    this.selected = key;
    const roof = this.view.rows[key]?.ceilings;
    if (roof in this.roofs && roof !== this.chosen) this.#choose(roof);
    else this.#update();
  }

  /** Show `view`, of it only the `shown` rows. */
  show(view, shown = null) {
    Object.assign(this, { view, shown });
    this.points = new Map(Object.entries(view.rows).map(([key, row]) => {
      const { flops: work, bytes } = numbersOf(view, row);
      return [key, row.bytes_bounds ? null : pointOf(work, bytes)];
    }));
    if (view.timestamp !== undefined) this.tracks.add(view.timestamp, this.points, view.interval);
    this.#offer();
    this.#refresh();
  }

  /** Take the trails that the daemon remembers. */
  recall(past) {
    this.tracks.fill(past);
    for (const { trail } of this.marks.values()) trail.forget();
    this.#refresh();
  }

  /** The GPU models to choose from; their ceilings come with the view and rarely change. */
  #offer() {
    const { roofs, rows } = this.view;
    const used = this.#own().map(([, { ceilings }]) => ceilings);
    const counts = Object.keys(roofs).map((key) => [key, used.filter((each) => each === key).length]).filter(([key, count]) => count && roofs[key].lines);
    const known = JSON.stringify([roofs, counts]);
    if (known === this.known) return;
    this.known = known;
    this.roofs = Object.fromEntries(counts.map(([key]) => [key, roofs[key]]));
    this.models.replaceChildren(...counts.map(([key, count]) => element("option", { value: key }, `\u2068${roofs[key].title}\u2069 (${count})`)));
    this.models.parentElement.hidden = counts.length < 2;
    const [most] = counts.sort(([, a], [, b]) => b - a).map(([key]) => key);
    this.#choose([rows[this.selected]?.ceilings, this.chosen, most].find((key) => key in this.roofs));
  }

  #choose(key) {
    this.chosen = key;
    if (key !== undefined) this.models.value = key;
    for (const mark of this.marks.values()) mark.remove();
    this.marks.clear();
    this.#frame();
  }

  /** The rows that the chart may be about. */
  #own() {
    return Object.entries(this.view.rows).filter(([key]) => (this.only === null || key === this.only) && (this.shown?.has(key) ?? true));
  }

  /** Those that stand under the chosen roof. */
  #mine() {
    return this.#own().filter(([, row]) => row.ceilings === this.chosen && row.state === "up");
  }

  /** Ranges that hold the points and their trails. */
  #ranges() {
    const places = this.#mine().flatMap(([key, row]) => [likelyPoint(row), ...(this.tracks.of(key) ?? []).map(({ point }) => point)]);
    return ranges(this.roofs[this.chosen], places.filter(Boolean));
  }

  /** Show what came: on other axes where they do not hold it. */
  #refresh() {
    if (this.chosen in this.roofs && JSON.stringify(this.#ranges()) !== JSON.stringify(this.limits)) this.#frame();
    else this.#update();
  }

  /** Everything that stays while points move: axes, grid and ceilings. */
  #frame() {
    const roof = this.roofs[this.chosen];
    const { parentElement: plot } = this.svg;
    plot.hidden = !roof;
    const [width, height] = (this.size = [plot.clientWidth, plot.clientHeight]);
    if (!roof || !width) return;
    const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / TEXT;
    this.scale = scale;
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${height}`);
    this.limits = this.#ranges();
    this.axes = {
      x: logAxis(...this.limits.intensity, MARGIN.left * scale, width - MARGIN.right * scale),
      y: logAxis(...this.limits.flops, height - MARGIN.bottom * scale, MARGIN.top * scale),
    };
    this.#grid();
    this.#roofs(roof);
    this.clockText = undefined;
    for (const { trail } of this.marks.values()) trail.forget();
    this.#update();
  }

  #text(kind, x, y, anchor, text, more = {}) {
    return svg("text", { class: kind, x, y, "text-anchor": anchor, ...more }, text);
  }

  #grid() {
    const { x, y } = this.axes;
    const [left, right, top, bottom] = [x.at(x.low), x.at(x.high), y.at(y.high), y.at(y.low)];
    const [middle, edge] = [(top + bottom) / 2, 12 * this.scale];
    const step = Math.ceil((TICK * this.scale) / (x.at(10 * x.low) - left));
    const across = decades(x).filter((_, index) => index % step === 0).flatMap((value) => [
      svg("path", { class: "line", d: `M${x.at(value)} ${top}V${bottom}` }),
      this.#text("tick", x.at(value), bottom + 16 * this.scale, "middle", tick(value), { "data-intensity": value }),
    ]);
    const up = decades(y).flatMap((value) => [
      svg("path", { class: "line", d: `M${left} ${y.at(value)}H${right}` }),
      this.#text("tick", left - 6, y.at(value) + 4 * this.scale, "end", tick(value), { "data-flops": value }),
    ]);
    this.layers.grid.replaceChildren(
      svg("rect", { class: "field", x: left, y: top, width: right - left, height: bottom - top }),
      ...across, ...up,
      this.#text("axis", (left + right) / 2, bottom + 34 * this.scale, "middle", "Arithmetic intensity, FLOP per byte of DRAM traffic"),
      this.#text("axis", edge, middle, "middle", "FLOP/s", { transform: `rotate(-90 ${edge} ${middle})` }),
    );
  }

  #roof(kind, peak, bandwidth, ...inside) {
    const corners = roofCorners(peak, bandwidth, this.limits.intensity, this.limits.flops[0]);
    return svg("path", { class: `roof ${kind}`, d: pathOf(corners, this.axes) }, ...inside);
  }

  #roofs({ lines, bandwidth: [bandwidth, reached = bandwidth] = [] }) {
    const { x, y } = this.axes;
    const roofs = [];
    for (const { name, peak: [peak, best], assumed } of lines) {
      const weight = assumed ? " assumed" : "";
      roofs.push(this.#roof(`spec${weight}`, peak, bandwidth, svg("title", {}, `${name}: ${flops(peak)}`)));
      if (best) roofs.push(this.#roof(`achievable${weight}`, best, reached));
    }
    const marks = [];
    this.taken = [];
    this.named = [];
    if (bandwidth) {
      const { peak: [peak] } = lines.find(({ assumed }) => assumed) ?? lines[0];
      const ridge = peak / bandwidth;
      const foot = Math.max(x.low, y.low / bandwidth);
      const lean = Math.atan2(y.at(foot * bandwidth) - y.at(10 * foot * bandwidth), x.at(10 * foot) - x.at(foot));
      const third = foot * (ridge / foot) ** 0.32;
      const [left, top] = [x.at(third), y.at(third * bandwidth)];
      const turned = { transform: `rotate(${(-lean * 180) / Math.PI} ${left} ${top}) translate(0 -6)` };
      const [knee, tip, side] = [x.at(ridge), y.at(peak), 5 * this.scale];
      roofs.push(svg("path", { class: "ridge", d: `M${knee} ${tip}L${knee} ${y.at(y.low)}` }));
      const named = `DRAM ${si(bandwidth, "B/s")}`;
      marks.push(this.#text("ceiling", left, top, "middle", named, turned));
      // A slanted text takes a chain of boxes.
      for (let along = this.#width(named) / -2; along <= this.#width(named) / 2; along += side) {
        const [at, high] = [left + along * Math.cos(lean), top - along * Math.sin(lean)];
        this.taken.push([at - 4 * side, high - 4 * side, at, high]);
      }
      marks.push(svg("path", { class: "knee", d: `M${knee} ${tip - side}l${side} ${side}l${-side} ${side}l${-side} ${-side}Z` }));
      const foothold = `ridge ${intensity(ridge)}`;
      const low = y.at(y.low) - 6;
      this.#label(foothold, [[knee + 4, low, "start"], [knee - 4, low, "end"]], "ceiling", roofs, marks);
    }
    // The label of a ceiling stands above its line at the right end, below it, or before its knee:
    // there that of the assumed one, which is next to the roof at the clock.
    for (const { name, peak: [peak], assumed = false } of [...lines].sort((a, b) => Boolean(b.assumed) - Boolean(a.assumed))) {
      const [end, line] = [x.at(x.high) - 4, y.at(peak)];
      const places = [[end, line - 4, "end"], [end, line + 11 * this.scale, "end"]];
      if (bandwidth) places.splice(assumed ? 0 : 2, 0, [x.at(peak / bandwidth) - 9 * this.scale, line, "end"]);
      this.#label(`${name}  ${si(peak, "")}`, places, assumed ? "ceiling assumed" : "ceiling", roofs, marks);
    }
    this.notes.best.hidden = !lines.some(({ peak }) => peak[1]);
    this.layers.roofs.replaceChildren(...roofs);
    this.layers.marks.replaceChildren(...marks);
  }

  #width(text, kind = "") {
    ruler.font = `${kind ? 650 : 400} ${LETTERS * this.scale}px system-ui, sans-serif`;
    return ruler.measureText(text).width;
  }

  /** A label at the first of its `places` where it covers no other and no line strikes it through, else none. */
  #label(text, places, kind, roofs, parts) {
    const wide = this.#width(text, kind.split(" ")[1]);
    const [first, last] = [this.axes.x.at(this.axes.x.low), this.axes.x.at(this.axes.x.high)];
    for (const [left, top, anchor] of places) {
      const start = anchor === "end" ? left - wide : left;
      const box = [start, top - (LINE_HEIGHT - 4) * this.scale, start + wide, top + 3];
      if (start < first || box[2] > last || this.taken.some((other) => overlap(box, other))) continue;
      if (roofs.flatMap(linesOf).some((line) => crosses(box, line))) continue;
      const node = this.#text(kind, left, top, anchor, text);
      this.taken.push(box);
      this.named.push([node, box]);
      parts.push(node);
      return;
    }
  }

  /** The roof at the clock of the selected GPU: it moves with the clock. */
  #clock(roof) {
    const row = this.view.rows[this.selected];
    const line = roof.lines.find(({ assumed }) => assumed);
    const clock = row?.ceilings === this.chosen && numbersOf(this.view, row).sm_clock;
    const text = line?.clock && clock ? `at the clock of ${row.words.title}, ${si(clock, "Hz")}` : "";
    if (this.clockText === text) return;
    this.clockText = text;
    setText(this.notes.clock, text);
    this.notes.clock.parentElement.hidden = !text;
    this.layers.clock.replaceChildren(...(text ? [this.#roof("clock", (line.peak[0] * clock) / line.clock, roof.bandwidth?.[0], svg("title", {}, text))] : []));
  }

  #update() {
    const roof = this.roofs[this.chosen];
    if (!roof || !this.axes) {
      this.#say([]);
      return;
    }
    const mine = this.#mine();
    const keys = new Set(mine.map(([key]) => key));
    for (const [key, mark] of this.marks) {
      if (keys.has(key)) continue;
      mark.remove();
      this.marks.delete(key);
    }
    for (const [key, row] of mine) {
      if (!this.marks.has(key)) this.marks.set(key, new Mark(this.layers, key, row));
      const [mark, point, chosen] = [this.marks.get(key), this.points.get(key), key === this.selected];
      mark.show(row, point, this.axes, this.limits, roof);
      mark.node.classList.toggle("selected", chosen);
      setAttribute(mark.node, "aria-pressed", chosen);
      mark.bar.toggleAttribute("hidden", !chosen && Boolean(point));
      const trailed = chosen || mine.length <= TRAILS_OF_ALL;
      mark.trail.node.toggleAttribute("hidden", !trailed);
      mark.area.classList.toggle("crowded", !trailed);
      if (trailed && this.tracks.of(key)) mark.trail.show(this.tracks.of(key), this.tracks.hole, this.axes);
    }
    const kinds = new Set(mine.flatMap(([key]) => this.marks.get(key).kinds));
    for (const kind of ["trail", "bounds", "likely", "band"]) this.notes[kind].hidden = !kinds.has(kind);
    const placed = mine.filter(([key]) => this.marks.get(key).place);
    const absent = mine.filter(([key]) => !this.marks.get(key).place).map(([, { words }]) => words.title);
    const places = placed.map(([key, { words }]) => ({ name: words.title.replace("GPU ", ""), mark: this.marks.get(key), ...this.marks.get(key).place }));
    this.#clock(roof);
    this.#labels(places.filter(({ mark }) => !mark.region), places.filter(({ mark }) => mark.region));
    this.order = placed.map(([key]) => key);
    this.#rove(this.order.includes(this.stop) ? this.stop : (this.order.find((key) => key === this.selected) ?? this.order[0]));
    this.#say(absent);
    if (this.pointed) this.#showTip(this.pointed);
  }

  /** What is not on the chart, and why. */
  #say(absent) {
    const roofless = this.#own().filter(([, row]) => row.state === "up" && !row.mig && !(row.ceilings in this.roofs)).map(([, { words }]) => words.title);
    const said = (why, names) => (names.length ? `Not on the chart, for lack of ${why}: ${some(names, NAMED, (more) => ` and ${more} more`)}. ` : "");
    setText(this.note, said("work or readings", absent) + said("known ceilings", roofless));
  }

  /** The names of points, and of regions from the largest to the smallest, which lies on top. */
  #labels(points, regions) {
    const radius = POINT * this.scale;
    const dots = points.flatMap(({ x, y, mark }) => [[x - radius, y - radius, x + radius, y + radius], ...mark.boxes]);
    const clock = [...this.layers.clock.children].flatMap(linesOf);
    for (const [node, box] of this.named) node.toggleAttribute("hidden", dots.some((dot) => overlap(dot, box)) || clock.some((line) => crosses(box, line)));
    const taken = [...this.taken, ...dots];
    regions.sort((a, b) => a.y - b.y);
    const areas = regions.map(({ mark }) => mark.area);
    if (areas.some((area, index) => area.nextSibling !== (areas[index + 1] ?? null))) this.layers.bounds.append(...areas);
    const named = (places, region) => clusters(places, GROUP * this.scale).flatMap((group) => {
      const label = `GPU ${some(group.map(({ name }) => name), group.length > 4 ? 3 : 4, (more) => ` +${more}`)}${region ? " somewhere on this band" : ""}`;
      const size = [this.#width(label, "name") + 2, LINE_HEIGHT * this.scale];
      const [{ x: left, y: top }] = group;
      const place = placeLabel({ x: left, y: region ? top + 2 * radius : top }, size, radius + 4, this.size, taken, region);
      if (!place) return [];
      const { x, y, anchor, leader } = place;
      const name = this.#text("name", x.toFixed(1), (y + 1).toFixed(1), anchor, label);
      return leader ? [svg("path", { class: "leader", d: leader }), name] : [name];
    });
    this.layers.labels.replaceChildren(...named(points, false), ...named(regions, true));
  }

  /** One tab stop for all points; the arrow keys go from one to the next. */
  #rove(stop) {
    this.stop = stop;
    for (const [key, { node }] of this.marks) setAttribute(node, "tabindex", key === stop ? 0 : -1);
  }

  #showTip(key) {
    const row = this.view.rows[key];
    const place = this.marks.get(key)?.place;
    if (!row || !place) {
      this.#hideTip();
      return;
    }
    this.pointed = key;
    const lines = [element("b", {}, row.words.title), ...detailsOf(this.view, row)];
    this.tip.replaceChildren(...lines.map((line) => element("span", {}, line)));
    this.tip.hidden = false;
    const { offsetWidth: wide, offsetHeight: high, style } = this.tip;
    style.left = `${Math.max(4, Math.min(this.size[0] - wide - 4, place.x - wide / 2))}px`;
    style.top = `${place.y - high > 14 ? place.y - high - 14 : place.y + 16}px`;
  }

  #hideTip() {
    this.pointed = null;
    this.tip.hidden = true;
  }

  #listen() {
    // Not on a part of the svg: what listens for the focus there is a tab stop to Chromium.
    const onPoint = (type, act) =>
      this.svg.parentElement.addEventListener(type, (event) => {
        const key = event.target.closest("[data-key]")?.dataset.key;
        if (key !== undefined) act(key, event);
      });
    onPoint("pointerover", (key) => this.#showTip(key));
    onPoint("pointerout", () => this.#hideTip());
    onPoint("focusin", (key) => this.#showTip(key));
    onPoint("focusout", () => this.#hideTip());
    onPoint("click", (key) => this.onSelect(key));
    onPoint("keydown", (key, event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") this.#hideTip();
      else if (event.key === "Enter" || event.key === " ") this.onSelect(key);
      else if (step) {
        this.#rove(this.order.at((this.order.indexOf(key) + step) % this.order.length));
        this.marks.get(this.stop).node.focus();
      } else return;
      event.preventDefault();
    });
  }
}
