// SPDX-License-Identifier: Apache-2.0
// The node view: the sentence that matters, the table and the roofline, kept up to date.

import { byId, element, embedded, setText } from "./dom.js";
import { title } from "./facts.js";
import { showBanner, showState, showTime } from "./frame.js";
import { RooflineChart } from "./roofline.js";
import { pointWords, precisionWords, roofShares } from "./roofline_words.js";
import { addressOf, Rows } from "./rows.js";
import { follow } from "./stream.js";

const MANY = 16;

let view = embedded("view");
let selected = null;

const rows = new Rows(byId("gpus"), byId("row"), (key) => select(key));
const chart = new RooflineChart(byId("roofline"), (key) => select(key));
const numbers = byId("numbers");

const list = (node, items) => node.replaceChildren(...items.map((item) => element("li", {}, item)));

const showProblem = ({ problem }) => {
  const section = byId("problem");
  section.hidden = !problem;
  if (!problem) return;
  setText(section.querySelector("[data-c=what]"), problem.what);
  list(section.querySelector("[data-c=tried]"), problem.tried);
  list(section.querySelector("[data-c=do]"), problem.do);
};

/** The numbers behind the chart, for those who do not see it; only made while it is open. */
const showNumbers = () => {
  if (!numbers.open) return;
  const cells = Object.values(view.rows).filter(({ mig }) => !mig).map((row) =>
    element("tr", {}, element("th", { scope: "row" }, title(row)), element("td", {}, pointWords(row)), element("td", {}, roofShares(row) || "not known")));
  numbers.querySelector("tbody").replaceChildren(...cells);
};

const showSelected = () => {
  const strip = byId("selected");
  const row = view.rows[selected];
  strip.hidden = !row;
  if (!row) return;
  setText(strip.querySelector("a"), `Open ${title(row)}`);
  strip.querySelector("a").href = addressOf(selected);
  setText(strip.querySelector("span"), [pointWords(row), precisionWords(row), roofShares(row) && `of the roof ${roofShares(row)}`].filter(Boolean).join("; "));
};

const show = () => {
  setText(byId("headline"), view.headline);
  setText(byId("totals"), view.totals);
  document.title = `${view.headline} · roofline-exporter`;
  const count = Object.keys(view.rows).length;
  byId("node").hidden = count === 0;
  document.body.classList.toggle("many", count > MANY);
  rows.show(view);
  chart.show(view);
  showBanner(view);
  showTime(view);
  showProblem(view);
  showSelected();
  showNumbers();
};

const select = (key) => {
  selected = key === selected ? null : key;
  rows.select(selected);
  chart.select(selected);
  rows.show(view);
  showSelected();
};

numbers.addEventListener("toggle", showNumbers);
show();
follow("/api/v1/stream", view, (next) => {
  view = next;
  show();
}, showState);
