// SPDX-License-Identifier: Apache-2.0
// The training jobs on a GPU: where the time of a step goes, phase by phase.

import { element, svg } from "./dom.js";
import { stallLevel } from "./facts.js";
import { cut, fixed, percent, plain } from "./format.js";

const WIDTH = 100;
const ORDER = ["data", "h2d", "forward", "backward", "optimizer", "checkpoint", "eval", "logging", "other"];

const colourOf = (index) => (index < 8 ? `series-${index}` : "rest");

const phasesOf = ({ phases = {} }) => ORDER.map((name, index) => ({ name, index, share: phases[name] ?? 0 })).filter(({ share }) => share >= 0.001);

const bar = (phases) => {
  let from = 0;
  const rects = phases.map(({ index, share }) => {
    const x = from;
    from += share * WIDTH;
    return svg("rect", { class: `phase ${colourOf(index)}`, x: x.toFixed(2), width: (share * WIDTH).toFixed(2), height: 10 });
  });
  return svg("svg", { class: "bar thick phases", viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...rects);
};

const legend = (phases) =>
  element("ul", { class: "legend" }, ...phases.map(({ name, index, share }) =>
    element("li", {}, svg("svg", { viewBox: "0 0 10 10", class: "key", "aria-hidden": "true" }, svg("rect", { class: `phase ${colourOf(index)}`, width: 10, height: 10 })), ` ${plain(name)} ${percent(share)}`)));

const words = ({ stall, wait, steps_per_second: rate }) =>
  [
    stall === undefined ? null : `GPU idle for its data ${percent(stall)} of the time (${stallLevel(stall)})`,
    wait === undefined ? null : `waits for data ${percent(wait)}`,
    rate === undefined ? null : `${fixed(rate, rate < 10 ? 1 : 0)} steps/s`,
  ].filter(Boolean).join(", ");

export const showJobs = (section, row) => {
  const jobs = row?.jobs ?? [];
  section.hidden = jobs.length === 0;
  const parts = jobs.map((job) => {
    const phases = phasesOf(job);
    return element("div", { class: "job" }, element("p", {}, element("b", {}, `${cut(job.job)} rank ${job.rank}`), ` ${words(job)}`), bar(phases), legend(phases));
  });
  if (row?.more_jobs) parts.push(element("p", {}, `and ${row.more_jobs} more ranks`));
  section.querySelector("div").replaceChildren(...parts);
};
