// SPDX-License-Identifier: Apache-2.0
// The table of GPUs: fills the rows that the server made, adds and removes rows.

import { ROOT, parts, setAttribute, setText, setTime } from "./dom.js";
import { numbersOf } from "./stream.js";

const setBar = (rect, to, from = 0) => {
  setAttribute(rect, "x", `${100 * from}%`);
  setAttribute(rect, "width", `${100 * Math.max(0, Math.min(1, to) - from)}%`);
};

/** The usual order of entries [key, row]. */
export const byIndex = ([, a], [, b]) => a.gpu - b.gpu || (a.instance ?? -1) - (b.instance ?? -1);

const places = (node, name) =>
  Object.fromEntries([...node.querySelectorAll(`[data-${name}]`)].map((each) => [each.dataset[name], each]));

/** One row: what it shows is only touched where it changes. */
class TableRow {
  constructor(node, key) {
    this.node = node;
    const { at, ...texts } = places(node, "f");
    this.at = at;
    this.title = texts.title;
    this.texts = Object.entries(texts);
    this.bars = places(node, "bar");
    this.state = node.querySelector(".state");
    this.cells = [...node.querySelectorAll("td:not(.state)")];
    setAttribute(node, "data-key", key);
  }

  show(row, numbers, selected) {
    for (const [name, place] of this.texts) {
      const text = row.words[name] ?? "";
      setText(place, text);
      if (place.hasAttribute("title")) setAttribute(place, "title", text);
    }
    setAttribute(this.title, "href", ROOT + row.href);
    if (row.since) setTime(this.at, row.since);
    const lower = numbers.saturation_lower ?? 0;
    setBar(this.bars.used, numbers.utilization ?? 0);
    setBar(this.bars.saturated, lower);
    setBar(this.bars.band, numbers.saturation_upper ?? lower, lower);
    setBar(this.bars.memory, row.memory_ratio ?? 0);
    setBar(this.bars.power, (numbers.power ?? 0) / (numbers.power_limit || Infinity));
    const up = row.state === "up";
    for (const cell of this.cells) cell.toggleAttribute("hidden", !up);
    setAttribute(this.state, "colspan", up ? 1 : this.cells.length + 1);
    setAttribute(this.node, "class", `row ${row.look}${selected ? " selected" : ""}`);
  }
}

/** The table; `onSelect(key)` is called when a row is clicked outside its link. */
export class Rows {
  constructor(table, onSelect) {
    this.body = table.tBodies[0];
    this.template = parts("row");
    this.rows = new Map([...this.body.rows].map((node) => [node.dataset.key, new TableRow(node, node.dataset.key)]));
    this.body.addEventListener("click", ({ target }) => {
      const node = target.closest("tr");
      if (node && !target.closest("a")) onSelect(node.dataset.key);
    });
  }

  /** Show these `entries` [key, row] of `view`. */
  show(view, entries, selected = null) {
    const shown = new Set(entries.map(([key]) => key));
    for (const [key, { node }] of this.rows) {
      if (shown.has(key)) continue;
      node.remove();
      this.rows.delete(key);
    }
    entries.forEach(([key, data], index) => {
      if (!this.rows.has(key)) this.rows.set(key, new TableRow(this.template.firstChild.cloneNode(true), key));
      const row = this.rows.get(key);
      if (this.body.rows[index] !== row.node) this.body.insertBefore(row.node, this.body.rows[index] ?? null);
      row.show(data, numbersOf(view, data), key === selected);
    });
  }
}
