// SPDX-License-Identifier: Apache-2.0
// The view of one GPU: its row, its roofline, 15 minutes of charts, its jobs and its facts.

import { Charts } from "./charts.js";
import { byId, embedded, setText } from "./dom.js";
import { facts } from "./facts.js";
import { showBanner, showState, showTime } from "./frame.js";
import { History } from "./history.js";
import { showJobs } from "./jobs.js";
import { RooflineChart } from "./roofline.js";
import { Rows } from "./rows.js";
import { follow } from "./stream.js";

const FACTS_MILLISECONDS = 15000;

const { key } = byId("gpu").dataset;
const [uuid, instance] = key.split("/");
const query = instance === undefined ? "" : `?instance=${instance}`;

let view = embedded("view");
const rows = new Rows(byId("gpus"), byId("row"), () => {});
const roofline = new RooflineChart(byId("roofline"), () => {}, key);
const charts = new Charts(byId);
const history = new History(`/api/v1/gpus/${encodeURIComponent(uuid)}/history${query}`);

const mine = () => Object.fromEntries(Object.entries(view.rows).filter(([name]) => name === key || (view.rows[key]?.mig && name.startsWith(`${key}/`))));

const showCharts = () => {
  if (!history.timestamps.length) return;
  const absent = charts.show(history);
  byId("absent").hidden = absent.length === 0;
  setText(byId("absent"), `Nothing is read or reported for: ${absent.join(", ")}.`);
};

const show = () => {
  const row = view.rows[key];
  showBanner(view);
  showTime(view);
  rows.show({ ...view, rows: mine() });
  if (!row) {
    setText(byId("totals"), "The exporter does not list this GPU now.");
    return;
  }
  const { words } = facts(row, view.timestamp);
  setText(byId("totals"), [words.word, words.limit, words.reason].filter(Boolean).join(", "));
  byId("chart").hidden = row.ceilings === undefined && row.state === "up";
  roofline.show(view);
  showJobs(byId("jobs"), row);
};

const load = async () => {
  if (await history.load(view.rows[key]?.power?.[1])) showCharts();
};

/** Identity, health and ceilings change rarely: the server writes them. */
const renewFacts = async () => {
  if (document.hidden) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const [old, now] = [byId("facts"), page.getElementById("facts")];
  if (now && old.textContent !== now.textContent) old.replaceChildren(...now.childNodes);
};

show();
load();
setInterval(renewFacts, FACTS_MILLISECONDS);
follow("/api/v1/stream", view, (next, whole) => {
  view = next;
  show();
  if (whole) load();
  else {
    history.add(view.timestamp, view.rows[key], view.interval);
    showCharts();
  }
}, showState);
