// SPDX-License-Identifier: Apache-2.0
// The table of the node view: fills the rows that the server made, adds and removes rows.

import { setAttribute, setText } from "./dom.js";
import { facts, GLYPHS } from "./facts.js";
import { clockTime, isoTime } from "./format.js";

const percents = (ratio) => Math.floor(Math.min(1, Math.max(0, ratio)) * 1000 + 0.5) / 10;

const setBar = (rect, from, to) => {
  const [start, end] = [percents(from), percents(to)];
  setAttribute(rect, "x", start);
  setAttribute(rect, "width", Math.round((end - start) * 10) / 10);
};

export const addressOf = (key) => {
  const [uuid, instance] = key.split("/");
  return `/gpu/${encodeURIComponent(uuid)}${instance === undefined ? "" : `?instance=${instance}`}`;
};

const order = (a, b) => a.gpu - b.gpu || (a.instance ?? -1) - (b.instance ?? -1);

const slots = (node, name) =>
  Object.fromEntries([...node.querySelectorAll(`[data-${name}]`)].map((each) => [each.dataset[name], each]));

/** One row: what it shows is only touched where it changes. */
class TableRow {
  constructor(node, key) {
    this.node = node;
    this.places = slots(node, "f");
    this.bars = slots(node, "bar");
    this.state = node.querySelector(".state");
    this.cells = [...node.querySelectorAll("td:not(.state)")];
    this.classes = null;
    this.selected = false;
    setAttribute(node, "data-key", key);
    setAttribute(this.places.title, "href", addressOf(key));
  }

  show(row, now) {
    const said = facts(row, now);
    const { glyph, at, ...texts } = this.places;
    for (const [name, place] of Object.entries(texts)) setText(place, said.words[name] ?? "");
    setText(glyph, GLYPHS[said.tone]);
    setText(at, said.at === undefined ? "" : clockTime(said.at));
    if (said.at !== undefined) setAttribute(at, "datetime", isoTime(said.at));
    const { used = [0, 0], saturated: [low, high] = [0, 0], memory = [0, 0], power = [0, 0] } = said.bars;
    setBar(this.bars.used, ...used);
    setBar(this.bars.saturated, 0, low);
    setBar(this.bars.band, low, high);
    setBar(this.bars.memory, ...memory);
    setBar(this.bars.power, ...power);
    for (const cell of this.cells) if (cell.hidden === said.up) cell.hidden = !said.up;
    const span = said.up ? 1 : this.cells.length + 1;
    if (this.state.colSpan !== span) this.state.colSpan = span;
    const classes = ["row", `tone-${said.tone}`, said.level && `level-${said.level}`, !said.up && "down", said.divided && "divided", this.selected && "selected"];
    const joined = classes.filter(Boolean).join(" ");
    if (joined !== this.classes) {
      this.classes = joined;
      this.node.className = joined;
    }
  }
}

/** The table; `onSelect(key)` is called when a row is clicked outside its link. */
export class Rows {
  constructor(table, template, onSelect) {
    this.body = table.tBodies[0];
    this.template = template;
    this.rows = new Map();
    for (const node of this.body.rows) this.rows.set(node.dataset.key, new TableRow(node, node.dataset.key));
    this.body.addEventListener("click", ({ target }) => {
      const node = target.closest("tr");
      if (node && !target.closest("a")) onSelect(node.dataset.key);
    });
  }

  select(key) {
    for (const [name, row] of this.rows) row.selected = name === key;
  }

  show(view) {
    const present = Object.entries(view.rows ?? {}).sort(([, a], [, b]) => order(a, b));
    const keys = new Set(present.map(([key]) => key));
    for (const [key, row] of this.rows) {
      if (!keys.has(key)) {
        row.node.remove();
        this.rows.delete(key);
      }
    }
    present.forEach(([key, data], index) => {
      let row = this.rows.get(key);
      if (!row) {
        row = new TableRow(this.template.content.querySelector("tr").cloneNode(true), key);
        this.rows.set(key, row);
      }
      if (this.body.rows[index] !== row.node) this.body.insertBefore(row.node, this.body.rows[index] ?? null);
      row.show(data, view.timestamp);
    });
  }
}
