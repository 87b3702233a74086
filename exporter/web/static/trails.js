// SPDX-License-Identifier: Apache-2.0
// Where the points of the roofline were in the last minutes, in pieces that fade with their age.

import { svg } from "./dom.js";

const PIECE_SECONDS = 20;
const PIECES = 9;

/** The trail of one GPU: only its newest piece is drawn again when the point moves. */
export class Trail {
  constructor(parent, className) {
    this.node = svg("g", { class: className });
    parent.append(this.node);
    this.pieces = [];
  }

  /** Add a place {intensity, flops} at a Unix time; null where there is none. */
  add(time, place, axes) {
    const slot = Math.floor(time / PIECE_SECONDS);
    let piece = this.pieces.at(-1);
    if (!piece || piece.slot !== slot) {
      const before = piece?.places.at(-1) ?? null;
      piece = { slot, places: before ? [before] : [], path: svg("path") };
      this.pieces.push(piece);
      this.node.append(piece.path);
      while (this.pieces.length && this.pieces[0].slot <= slot - PIECES) this.pieces.shift().path.remove();
      for (const each of this.pieces) each.path.setAttribute("stroke-opacity", (1 - (slot - each.slot) / PIECES) * 0.7);
    }
    const last = piece.places.at(-1);
    if (!place && !last) return;
    piece.places.push(place);
    if (axes) this.#draw(piece, axes);
  }

  redraw(axes) {
    for (const piece of this.pieces) this.#draw(piece, axes);
  }

  #draw({ places, path }, { x, y }) {
    let line = "";
    let pen = "M";
    for (const place of places) {
      if (!place) {
        pen = "M";
        continue;
      }
      const [left, top] = [x.at(x.clamp(place.intensity)), y.at(y.clamp(place.flops))];
      line += `${pen}${left.toFixed(1)} ${top.toFixed(1)}${pen === "M" ? "h0" : ""}`;
      pen = "L";
    }
    path.setAttribute("d", line);
  }

  remove() {
    this.node.remove();
  }
}
