// SPDX-License-Identifier: Apache-2.0
// Where the points of the roofline were in the last minutes, drawn in pieces that fade with age.

import { svg } from "./dom.js";
import { pointOf } from "./geometry.js";

const PIECE_SECONDS = 20;
const PIECES = 9;
const KEPT_SECONDS = PIECE_SECONDS * PIECES;
const HOLE_SECONDS = 8;

/** The last minutes of every GPU by key: [{time, point}], the point null where it had none. */
export class Tracks {
  constructor() {
    this.tracks = new Map();
    this.hole = HOLE_SECONDS;
  }

  /** The track of a GPU, which has at least one time. */
  of(key) {
    return this.tracks.get(key);
  }

  /** Go on with `points` by key. */
  add(time, points, interval) {
    this.hole = Math.max(HOLE_SECONDS, 3 * interval);
    for (const [key, point] of points) {
      const before = (this.of(key) ?? []).filter((each) => each.time < time && each.time > time - KEPT_SECONDS);
      this.tracks.set(key, [...before, { time, point }]);
    }
    for (const key of this.tracks.keys()) if (!points.has(key)) this.tracks.delete(key);
  }

  /** Take what the daemon remembers; only what was seen since is kept. */
  fill({ timestamps, trails }) {
    const end = timestamps.at(-1);
    for (const [key, { flops, bytes }] of Object.entries(trails)) {
      const past = timestamps.map((time, index) => ({ time, point: pointOf(flops[index], bytes[index]) }));
      const since = (this.of(key) ?? []).filter(({ time }) => time > end);
      this.tracks.set(key, [...past.filter(({ time }) => time > end - KEPT_SECONDS), ...since]);
    }
  }
}

const pieceOf = (time) => Math.floor(time / PIECE_SECONDS);

/** The trail of one GPU: a piece is drawn again only while it grows. */
export class Trail {
  constructor(className) {
    this.node = svg("g", { class: className });
    this.paths = new Map();
    this.forget();
  }

  /** Draw all of it the next time. */
  forget() {
    this.newest = -Infinity;
  }

  /** Draw a track; across more than `hole` seconds there is no line. */
  show(track, hole, axes) {
    const newest = pieceOf(track.at(-1).time);
    const oldest = newest - PIECES + 1;
    for (let piece = Math.max(oldest, Math.min(newest, this.newest)); piece <= newest; piece += 1) {
      if (!this.paths.has(piece)) {
        this.paths.set(piece, svg("path"));
        this.node.append(this.paths.get(piece));
      }
      this.paths.get(piece).setAttribute("d", this.#line(track, piece, hole, axes));
    }
    if (newest === this.newest) return;
    this.newest = newest;
    for (const [piece, path] of this.paths) {
      path.setAttribute("stroke-opacity", (1 - (newest - piece) / PIECES) * 0.7);
      if (piece >= oldest && piece <= newest) continue;
      path.remove();
      this.paths.delete(piece);
    }
  }

  #line(track, piece, hole, { x, y }) {
    const at = ({ point }) => `${x.at(x.clamp(point.intensity)).toFixed(1)} ${y.at(y.clamp(point.flops)).toFixed(1)}`;
    let line = "";
    track.forEach((each, index) => {
      if (!each.point || pieceOf(each.time) !== piece) return;
      const last = track[index - 1];
      const joined = last?.point && each.time - last.time <= hole;
      if (joined && !line) line = `M${at(last)}`;
      line += joined ? `L${at(each)}` : `M${at(each)}h0`;
    });
    return line;
  }
}
