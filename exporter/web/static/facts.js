// SPDX-License-Identifier: Apache-2.0
// What one row says, in words and bars. facts.py says the same for the first paint.

import { cut, duration, fixed, gibibytes, percent, plain, productName, span } from "./format.js";

const STALL_LEVELS = [[0.2, "high"], [0.05, "some"], [0, "fine"]];
const TONES = {
  saturated: "good", busy: "good", underused: "warn", starved: "warn", "held back": "warn", MIG: "calm",
  "held idle": "warn", idle: "calm", free: "calm", suspended: "calm",
};
export const GLYPHS = { good: "●", warn: "▲", calm: "○", bad: "✕", neutral: "◆" };
const LIMITS = {
  idle: "idle", input: "waits for its input", clock: "limited by its clock", unknown: "limiter not known",
};
const REASON = 160;

export const title = (row) => `GPU ${row.gpu}${row.instance === undefined ? "" : `, MIG ${row.instance}`}`;

const saturation = (row) => {
  if (row.saturation !== undefined) return [`${percent(row.saturation)} saturated`, [row.saturation, row.saturation]];
  if (row.saturation_bounds) return [`${span(...row.saturation_bounds)} saturated`, row.saturation_bounds];
  return ["saturation not known", [0, 0]];
};

export const stallLevel = (ratio) => STALL_LEVELS.find(([above]) => ratio >= above)[1];

const stall = (row) => {
  if (row.stall !== undefined) return [percent(row.stall), stallLevel(row.stall)];
  if (row.stall_bounds) return [span(...row.stall_bounds), stallLevel(row.stall_bounds[0])];
  return ["", ""];
};

const amounts = (pair, unit) => {
  if (!pair?.length) return ["", [0, 0]];
  const show = unit === "GiB" ? gibibytes : (value) => fixed(value, 0);
  if (!pair[1]) return [`${show(pair[0])} ${unit}`, [0, 0]];
  return [`${show(pair[0])}/${show(pair[1])} ${unit}`, [0, pair[0] / pair[1]]];
};

const idle = (row, now) =>
  row.idle_since === undefined ? "" : `${row.held ? "held idle" : "idle"} ${duration(now - row.idle_since)}`;

const holder = (row) => {
  if (row.holder) {
    const who = [row.holder.owner, row.holder.command].filter(Boolean).map((each) => cut(each, 24)).join(": ");
    return `${who || "somebody"} (${cut(row.holder.class ?? "other", 16)})`;
  }
  return row.held === undefined ? "" : row.held ? "held" : "held by nobody";
};

export const limit = (row) =>
  row.limiter === undefined ? "" : (LIMITS[row.limiter] ?? `limited by ${cut(plain(row.limiter), 24)}`);

const notes = (row, now) => {
  const said = [];
  // Of a GPU that is divided the GPU's own row says it.
  if (row.xid && row.instance === undefined) said.push(`Xid ${row.xid.code}, ${duration(now - row.xid.at)} ago`);
  if (row.throttle?.length) said.push(`held down: ${row.throttle.map((each) => cut(plain(each), 24)).join(", ")}`);
  return said.join("; ");
};

/** Why a GPU is not up, without the word that is said already. */
const reason = ({ reason: why = "no answer" }, word) =>
  cut(why === word ? "" : why.startsWith(`${word}: `) ? why.slice(word.length + 2) : why, REASON);

/** What a row says at the Unix time `now`. */
export const facts = (row, now) => {
  // A GPU that is divided is shown for its board alone; what it does is said of its instances.
  const divided = Boolean(row.mig);
  const word = divided ? "MIG" : (row.word ?? row.state ?? "not known");
  const words = {
    title: title(row),
    name: cut(row.profile || productName(row.name ?? "")),
    word: cut(plain(word), 24),
    note: notes(row, now),
  };
  if (row.state !== "up") {
    words.reason = reason(row, word);
    words.ago = row.since === undefined ? "never read" : `last read ${duration(now - row.since)} ago,`;
    return { words, bars: {}, tone: TONES[word] ?? "bad", level: "", up: false, at: row.since };
  }
  const [saturated, reached] = saturation(row);
  const [stalled, level] = stall(row);
  const [memory, inUse] = amounts(row.memory, "GiB");
  const [power, drawn] = amounts(row.power, "W");
  Object.assign(words, {
    limit: divided ? "divided into instances" : limit(row),
    used: row.utilization === undefined ? "use not known" : `${percent(row.utilization)} used`,
    saturated,
    stall: stalled || "no report",
    level,
    memory: memory || "not known",
    power: power || (row.instance === undefined ? "not known" : "of the board"),
    idle: idle(row, now) || "busy",
    holder: holder(row),
  });
  if (divided) for (const name of ["used", "saturated", "stall", "memory", "idle"]) words[name] = "";
  const bars = { used: [0, row.utilization ?? 0], saturated: reached, memory: inUse, power: drawn };
  return { words, bars, tone: TONES[word] ?? "neutral", level, up: true, divided };
};
