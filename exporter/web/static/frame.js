// SPDX-License-Identifier: Apache-2.0
// What every page has around its content: the state of the connection and the banner.

import { byId, setAttribute, setText } from "./dom.js";
import { clockTime } from "./format.js";

const BANNERS = {
  simulate: "This data is simulated.",
  replay: "This data is a recording, played back.",
};

/** Say whether data comes; what is old is marked in words and on the whole page. */
export const showState = (live, since) => {
  const connection = byId("connection");
  connection.className = live ? "live" : "stale";
  setText(connection.querySelector("[data-c=word]"), live ? "live" : `stale since ${clockTime(since / 1000)}, trying again`);
  document.body.classList.toggle("stale", !live);
};

export const showBanner = (view) => {
  const banner = byId("banner");
  banner.hidden = !view.simulated;
  if (!view.simulated) return;
  const said = view.simulated.split(" and ").map((source) => BANNERS[source] ?? `This data comes from ${source}.`);
  setText(banner.querySelector("[data-c=why]"), said.join(" "));
};

export const showTime = (view) => {
  const time = byId("read");
  if (view.timestamp === undefined) return;
  setText(time, clockTime(view.timestamp));
  setAttribute(time, "datetime", new Date(view.timestamp * 1000).toISOString());
};
