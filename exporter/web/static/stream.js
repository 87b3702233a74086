// SPDX-License-Identifier: Apache-2.0
// The view and its stream: the whole of it at first, then what changed; connects again by itself.

const SILENCE_INTERVALS = 3;
const SILENCE_MILLISECONDS = 3500;
const REFUSED_MILLISECONDS = 2000;
const SILENT_MILLISECONDS = 10000;

/** The numbers of a row that are known, by column. */
export const numbersOf = ({ columns }, { values = [] }) =>
  Object.fromEntries(columns.map((name, index) => [name, values[index]]).filter(([, value]) => value !== null && value !== undefined));

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** RFC 7386: null removes, objects are merged, all else replaces. Changes `target` in place. */
export const mergePatch = (target, patch) => {
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete target[key];
    else target[key] = isObject(value) ? mergePatch(isObject(target[key]) ? target[key] : {}, value) : value;
  }
  return target;
};

/**
 * Follow the stream from a view that is already shown. `onView(view, whole)` gets every new one,
 * `whole` where it does not continue the one before. `onState(live, since)` says when data comes,
 * and when it stops, since when (Unix milliseconds) what is shown is old.
 */
export const follow = (address, view, onView, onState) => {
  let source = null;
  let opened = 0;
  let heard = Date.now();
  let live = null;

  const report = (now) => {
    if (live === now) return;
    live = now;
    onState(live, heard);
  };
  const accept = (next, whole) => {
    view = next;
    heard = Date.now();
    report(true);
    onView(view, whole);
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const connect = () => {
    close();
    if (document.hidden) return;
    opened = Date.now();
    source = new EventSource(address);
    source.addEventListener("snapshot", ({ data }) => accept(JSON.parse(data), true));
    source.addEventListener("diff", ({ data }) => accept(mergePatch(view, JSON.parse(data)), false));
  };
  /** Once a second, and after the machine slept. */
  const look = () => {
    const patience = Math.max(SILENCE_MILLISECONDS, SILENCE_INTERVALS * 1000 * (view.interval ?? 1));
    const silent = Date.now() - heard;
    if (silent > patience) report(false);
    if (document.hidden) return;
    // A stream that was refused is not tried again by the browser; one that was cut while the
    // machine slept may look open for ever.
    const refused = source === null || source.readyState === EventSource.CLOSED;
    const wait = refused ? REFUSED_MILLISECONDS : patience + SILENT_MILLISECONDS;
    if ((refused || silent > wait) && Date.now() - opened > wait) connect();
  };

  connect();
  setInterval(look, 1000);
  addEventListener("online", connect);
  addEventListener("pagehide", close);
  addEventListener("pageshow", ({ persisted }) => persisted && connect());
  // A page that nobody looks at costs the daemon nothing; coming back, it starts over at once.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
};
