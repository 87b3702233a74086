// SPDX-License-Identifier: Apache-2.0
// What both pages have: the state of the connection, the banner, and parts that the server renews.

import { byId, setText, setTime } from "./dom.js";
import { clockTime } from "./format.js";

const NAME = byId("gpu") ? document.title : "roofline-exporter";

/** Say whether data comes; what is old is marked. */
export const showState = (live, since) => {
  const connection = byId("connection");
  connection.className = live ? "live" : "stale";
  const stale = `stale since ${clockTime(since / 1000)}`;
  setText(connection.querySelector("[data-c=word]"), live ? "live" : `${stale}, trying again`);
  document.title = live ? NAME : `${stale} · ${NAME}`;
  document.body.classList.toggle("stale", !live);
};

export const showFrame = ({ notice = "", timestamp }) => {
  setText(byId("banner"), notice);
  if (timestamp !== undefined) setTime(byId("read"), timestamp);
};

export const RENEW_MILLISECONDS = 10000;

/** The server writes UTC. */
const localTimes = (root) => {
  for (const time of root.querySelectorAll("td time, th time")) if (time.dateTime) setTime(time, Date.parse(time.dateTime) / 1000);
};

/** Put what the server writes now into these places. */
export const renew = async (...ids) => {
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return false;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  localTimes(page);
  for (const id of ids) {
    const [old, now] = [byId(id), page.getElementById(id)];
    if (now && old.textContent !== now.textContent) old.replaceChildren(...now.childNodes);
  }
  return true;
};

/** Keep these places new, and what is unfolded. */
export const renewOpen = (...ids) => {
  const all = () => {
    const places = [...ids, ...[...document.querySelectorAll("details[open] > [id]")].map(({ id }) => id)];
    if (places.length && !document.hidden) renew(...places);
  };
  localTimes(document);
  document.addEventListener("toggle", ({ target }) => target.open && all(), true);
  setInterval(all, RENEW_MILLISECONDS);
};
