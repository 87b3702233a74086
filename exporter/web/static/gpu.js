// SPDX-License-Identifier: Apache-2.0
// The view of one GPU: its row, its roofline, 15 minutes of charts, its jobs and its facts.

import { Charts } from "./charts.js";
import { ROOT, byId, embedded, parts, setText } from "./dom.js";
import { RENEW_MILLISECONDS, renewOpen, showFrame, showState } from "./frame.js";
import { History } from "./history.js";
import { RooflineChart } from "./roofline.js";
import { byIndex, Rows } from "./rows.js";
import { follow, numbersOf } from "./stream.js";

const { key, history: address } = byId("gpu").dataset;

let view = embedded("view");
const table = new Rows(byId("gpus"), () => {});
byId("roofline").prepend(parts("plot"));
const roofline = new RooflineChart(byId("roofline"), () => {}, key);
const charts = new Charts(byId, embedded("charts"));
const history = new History(ROOT + address);

const showCharts = () => {
  if (!history.timestamps.length) return;
  const absent = charts.show(history);
  byId("absent").hidden = absent.length === 0;
  setText(byId("absent"), `Not measured or reported: ${absent.join(", ")}.`);
};

const show = () => {
  const row = view.rows[key];
  const mine = Object.entries(view.rows).filter(([name]) => name === key || (row?.mig && name.startsWith(`${key}/`)));
  showFrame(view);
  // Nothing of a GPU that is gone is left to look as if it were now.
  for (const node of document.querySelectorAll("#gpu, nav a + a")) node.hidden = !row;
  table.show(view, mine.sort(byIndex));
  setText(byId("window"), view.means ?? "");
  if (!row) {
    const what = key.includes("/") ? "MIG instance" : "GPU";
    setText(byId("totals"), `The exporter does not list this ${what} now.`);
    return;
  }
  const { word, limit, reason } = row.words;
  setText(byId("totals"), [word, limit, reason].filter(Boolean).join(", "));
  byId("chart").hidden = row.ceilings === undefined;
  roofline.show(view);
};

const load = async () => {
  if (!(await history.load())) return;
  showCharts();
  const { flops, bytes } = history.columns;
  if (flops && bytes) roofline.recall({ timestamps: history.timestamps, trails: { [key]: { flops, bytes } } });
};

show();
/** Jobs, processes, identity, health and ceilings change slowly: the server writes them. */
renewOpen("causes", "measure", "jobs", "processes", "facts", "throttled");
setInterval(() => document.hidden || history.timestamps.length || load(), RENEW_MILLISECONDS);
follow(`${ROOT}api/v1/stream`, view, (next, whole) => {
  view = next;
  show();
  if (whole) load();
  else {
    const row = view.rows[key];
    history.add(view.timestamp, row?.state === "up" ? numbersOf(view, row) : {}, view.interval);
    showCharts();
  }
}, showState);
