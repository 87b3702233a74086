// SPDX-License-Identifier: Apache-2.0
// The node view: the sentence that matters, the table and the roofline, kept up to date.

import { byId, embedded, parts, setText, tableRow } from "./dom.js";
import { renew, showFrame, showState } from "./frame.js";
import { precisionWords, RooflineChart } from "./roofline.js";
import { Rows } from "./rows.js";
import { follow } from "./stream.js";

const MANY = 16;

let view = embedded("view");
let { problem } = view;
let selected = null;

const table = new Rows(byId("gpus"), (key) => select(key));
byId("roofline").prepend(parts("plot"));
const chart = new RooflineChart(byId("roofline"), (key) => select(key));
const numbers = byId("numbers");

/** Why there is no GPU: a rare, long text that the server writes. */
const showProblem = async () => {
  const now = view.problem;
  if (now !== problem && (await renew("problem"))) problem = now;
};

/** The numbers behind the chart, for those who do not see it; only made while it is open. */
const showNumbers = () => {
  if (!numbers.open) return;
  const said = Object.values(view.rows).map(({ words }) => words).filter(({ point }) => point);
  numbers.querySelector("tbody").replaceChildren(...said.map(({ title, point, roof }) => tableRow(title, point, roof ?? "not known")));
};

const showSelected = () => {
  const strip = byId("selected");
  const row = view.rows[selected];
  strip.hidden = !row;
  if (!row) return;
  const { title, point, roof } = row.words;
  const link = strip.querySelector("a");
  setText(link, `Open ${title}`);
  link.href = row.href;
  setText(strip.querySelector("span"), [point, precisionWords(view, row), roof && `of the roof ${roof}`].filter(Boolean).join("; "));
};

const show = () => {
  setText(byId("headline"), view.headline);
  setText(byId("announced"), view.announced);
  byId("advice").href = view.advice;
  setText(byId("totals"), view.totals);
  document.title = `${view.headline} · roofline-exporter`;
  const count = Object.keys(view.rows).length;
  byId("node").hidden = count === 0;
  document.body.classList.toggle("many", count > MANY);
  table.show(view, view.rows, selected);
  chart.show(view);
  showFrame(view);
  showProblem();
  showSelected();
  showNumbers();
};

const select = (key) => {
  selected = key === selected ? null : key;
  chart.select(selected);
  table.show(view, view.rows, selected);
  showSelected();
};

const recall = async () => {
  const answer = await fetch("/api/v1/roofline/trails").catch(() => null);
  if (answer?.ok) chart.recall(await answer.json());
};

numbers.addEventListener("toggle", showNumbers);
show();
follow("/api/v1/stream", view, (next, whole) => {
  view = next;
  show();
  if (whole) recall();
}, showState);
