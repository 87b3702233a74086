// SPDX-License-Identifier: Apache-2.0
// The node view: the sentence that matters, the table and the roofline, kept up to date.

import { ROOT, byId, embedded, parts, setAttribute, setText } from "./dom.js";
import { renew, renewOpen, showFrame, showState } from "./frame.js";
import { Listing } from "./listing.js";
import { detailsOf, RooflineChart } from "./roofline.js";
import { Rows } from "./rows.js";
import { follow } from "./stream.js";

const FEW = 2;
const MANY = 16;

let view = embedded("view");
let { problem } = view;
let selected = null;
const narrow = matchMedia("(max-width: 760px)");

let entries = [];

const table = new Rows(byId("gpus"), (key) => select(key));
const listing = new Listing(byId("gpus"), byId("heads"), () => show());
byId("roofline").prepend(parts("plot"));
const chart = new RooflineChart(byId("roofline"), (key) => select(key));

/** Why there is no GPU: a rare, long text that the server writes. */
const showProblem = async () => {
  const now = view.problem;
  if (now !== problem && (await renew("problem"))) problem = now;
};

const showSelected = () => {
  const strip = byId("selected");
  const row = view.rows[selected];
  strip.hidden = !row;
  if (!row) return;
  const link = strip.querySelector("a");
  setText(link, `Open ${row.words.title}`);
  link.href = ROOT + row.href;
  setText(strip.querySelector("span"), detailsOf(view, row).join("; "));
};

/** The sentence, with a link to the GPU that it names. */
const showHeadline = ({ headline, about, rows }) => {
  const [before, link, after] = byId("headline").children;
  const { words: { title } = { title: "" }, href = "" } = rows[about] ?? {};
  const at = title ? headline.indexOf(title) : headline.length;
  setText(before, headline.slice(0, at));
  setText(link, title);
  setAttribute(link, "href", ROOT + href);
  link.hidden = !title;
  setText(after, headline.slice(at + title.length));
};

const show = () => {
  showHeadline(view);
  setText(byId("announced"), view.announced);
  setText(byId("cause"), view.cause ?? "");
  byId("advice").href = view.advice;
  setText(byId("totals"), view.totals);
  setText(byId("measure"), view.measure ?? "");
  setText(byId("window"), view.means ?? "");
  document.title = `${view.headline} · roofline-exporter`;
  const count = Object.keys(view.rows).length;
  byId("node").hidden = count === 0;
  document.body.classList.toggle("few", count <= FEW);
  document.body.classList.toggle("many", count > (narrow.matches ? FEW : MANY));
  entries = listing.of(view);
  table.show(view, entries, selected);
  chart.show(view, new Set(entries.map(([key]) => key)));
  showFrame(view);
  showProblem();
  showSelected();
};

const select = (key) => {
  selected = key === selected ? null : key;
  chart.select(selected);
  table.show(view, entries, selected);
  showSelected();
};

const recall = async () => {
  const answer = await fetch(`${ROOT}api/v1/roofline/trails`).catch(() => null);
  if (answer?.ok) chart.recall(await answer.json());
};

narrow.addEventListener("change", show);
show();
renewOpen();
follow(`${ROOT}api/v1/stream`, view, (next, whole) => {
  view = next;
  show();
  if (whole) recall();
}, showState);
