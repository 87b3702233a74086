// SPDX-License-Identifier: Apache-2.0
// Which GPUs the table shows and in which order: chosen in its heads, remembered in the address.

import { element, setAttribute, setText } from "./dom.js";
import { byIndex } from "./rows.js";
import { numbersOf } from "./stream.js";

const HOLD_MILLISECONDS = 10000;
const USUAL = "trouble";

/** By column: what a row is sorted by, the highest first; what is not known is last. */
const VALUES = {
  gpu: ({ gpu, instance = -1 }) => -gpu - (instance + 1) / 1000,
  trouble: ({ trouble }) => -trouble,
  use: (_, { saturation_upper: most, saturation_lower: least, utilization }) => most ?? least ?? utilization,
  stall: (_, { stall, stall_upper: most, wait }) => stall ?? most ?? wait,
  memory: ({ memory_ratio: ratio }) => ratio,
  power: (_, { power }) => power,
  idle: ({ idle_for: seconds }, { idle }) => seconds ?? idle,
};
const FILTERS = { state: ({ words }) => words.word, owner: ({ owner }) => owner };

export class Listing {
  /** `onChoice()` is called when the reader chooses another order or filter. */
  constructor(table, place, onChoice) {
    Object.assign(this, { table, onChoice, query: new URLSearchParams(location.search), due: 0, places: new Map(), offered: {} });
    this.heads = [...table.tHead.querySelectorAll("[data-sort]")];
    for (const head of this.heads) {
      const button = element("button", { type: "button" }, ...head.childNodes);
      const { sort } = head.dataset;
      button.addEventListener("click", () => this.#choose("sort", this.#sorted() === sort ? `-${sort}` : sort === USUAL ? "" : sort));
      head.append(button);
    }
    this.filters = Object.keys(FILTERS).map((name) => {
      const select = element("select", { name });
      select.addEventListener("change", () => this.#choose(name, select.value));
      place.append(element("label", {}, `${name} `, select));
      return select;
    });
    this.count = element("span", { role: "status" });
    place.append(this.count);
  }

  /** The column, with a sign where its order is turned around. */
  #sorted() {
    const said = this.query.get("sort") ?? USUAL;
    return Object.hasOwn(VALUES, said.replace("-", "")) ? said : USUAL;
  }

  #choose(name, value) {
    if (value) this.query.set(name, value);
    else this.query.delete(name);
    history.replaceState(null, "", `${location.pathname}?${this.query}`.replace(/\?$/, ""));
    this.due = 0;
    this.onChoice();
  }

  /** The entries [key, row] to show. Rows move every 10 s at most, and not below a pointer. */
  of(view) {
    const entries = Object.entries(view.rows);
    const chosen = entries.filter(([, row]) => this.filters.every(({ name }) => !this.query.get(name) || FILTERS[name](row) === this.query.get(name)));
    for (const select of this.filters) this.#offer(select, entries);
    setText(this.count, chosen.length < entries.length ? `${chosen.length} of ${entries.length} shown` : "");
    const held = this.due && (Date.now() < this.due || this.table.tBodies[0].matches(":hover, :focus-within"));
    if (!held) this.#sort(view, entries);
    const place = ([key]) => this.places.get(key) ?? entries.length;
    return chosen.sort((a, b) => place(a) - place(b) || byIndex(a, b));
  }

  #offer(select, entries) {
    const { name, parentElement: label } = select;
    const wanted = this.query.get(name) ?? "";
    const options = [...new Set(["", wanted, ...entries.map(([, row]) => FILTERS[name](row) ?? "")])].sort();
    const known = JSON.stringify(options);
    if (this.offered[name] !== known && document.activeElement !== select) {
      this.offered[name] = known;
      select.replaceChildren(...options.map((value) => element("option", { value }, value || "all")));
      label.hidden = options.length < 3 && !wanted;
    }
    if (select.value !== wanted) select.value = wanted;
  }

  #sort(view, entries) {
    const sorted = this.#sorted();
    const column = sorted.replace("-", "");
    const turned = column !== sorted;
    const values = new Map(entries.map(([key, row]) => [key, VALUES[column](row, numbersOf(view, row))]));
    const compare = ([a], [b]) => {
      const [one, other] = [values.get(a), values.get(b)];
      return (one === undefined) - (other === undefined) || (turned ? one - other : other - one);
    };
    this.places = new Map(entries.sort((a, b) => compare(a, b) || byIndex(a, b)).map(([key], index) => [key, index]));
    this.due = Date.now() + HOLD_MILLISECONDS;
    const way = (column === "gpu") === turned ? "descending" : "ascending";
    for (const head of this.heads) setAttribute(head, "aria-sort", head.dataset.sort === column ? way : "none");
  }
}
