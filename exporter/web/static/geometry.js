// SPDX-License-Identifier: Apache-2.0
// The roofline's geometry: pure functions from ceilings and readings to lines, areas and places.

/** Where work and traffic put a GPU; null without either, for which the axes have no place. */
export const pointOf = (flops, bytes) => (flops > 0 && bytes > 0 ? { flops, intensity: flops / bytes } : null);

const within = (value, low, high) => Math.min(high, Math.max(low, value));

/** A logarithmic axis from the values [low, high] to the pixels [from, to]. */
export const logAxis = (low, high, from, to) => {
  const [start, width] = [Math.log10(low), Math.log10(high) - Math.log10(low)];
  return {
    low,
    high,
    at: (value) => from + ((Math.log10(value) - start) / width) * (to - from),
    holds: (value) => value >= low && value <= high,
    clamp: (value) => within(value, low, high),
  };
};

/** The powers of ten on an axis. */
export const decades = ({ low, high }) => {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
};

const decadeBelow = (value) => 10 ** Math.floor(Math.log10(value) + 1e-9);
const decadeAbove = (value) => 10 ** Math.ceil(Math.log10(value) - 1e-9);

/** The ranges of a roof's axes, wider by whole decades where `places` lie outside, at most by three. */
export const ranges = ({ intensity: [left, right], flops: [bottom, top] }, places) => {
  const low = (start, values) => Math.max(start / 1e3, Math.min(start, ...values.map(decadeBelow)));
  const intensities = places.map(({ intensity }) => intensity);
  return {
    intensity: [low(left, intensities), Math.min(right * 1e3, Math.max(right, ...intensities.map(decadeAbove)))],
    flops: [low(bottom, places.map(({ flops }) => flops)), top],
  };
};

/**
 * The roof of one ceiling as corners [intensity, FLOP/s]: up the memory slope, then flat.
 * Without a bandwidth it is flat from end to end.
 */
export const roofCorners = (peak, bandwidth, [left, right], bottom) => {
  if (!bandwidth) return [[left, peak], [right, peak]];
  const start = Math.max(left, bottom / bandwidth);
  return [[start, start * bandwidth], [peak / bandwidth, peak], [right, peak]];
};

/**
 * Where a point lies that is only known by bounds of FLOP/s and bytes/s: a parallelogram in
 * log-log space, cut at `left`, `right` and `bottom`. Its corners [intensity, FLOP/s], some twice:
 * up along the most traffic (the fourth is its bend), down along the least.
 */
export const boundsCorners = ([low, high], [few, many], [left, right], bottom) => {
  if (!(many > 0) || !(high > bottom)) return null;
  const least = Math.max(low, bottom);
  const side = (bytes) => [least, left * bytes, right * bytes, high].map((each) => {
    const work = within(each, least, high);
    return [within(work / bytes, left, right), work];
  });
  return [...side(many), ...side(few).reverse()];
};

/** Groups of places [{key, x, y}] that are closer to each other than `distance` pixels. */
export const clusters = (places, distance) => {
  const groups = [];
  for (const place of places) {
    const near = groups.find((group) => Math.hypot(group[0].x - place.x, group[0].y - place.y) < distance);
    if (near) near.push(place);
    else groups.push([place]);
  }
  return groups;
};

export const overlap = (box, other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1];

/** Whether a line [x0, y0, x1, y1] goes through a box: Liang and Barsky. */
export const crosses = ([left, top, right, bottom], [x0, y0, x1, y1]) => {
  let [from, to] = [0, 1];
  for (const [way, room] of [[x0 - x1, x0 - left], [x1 - x0, right - x0], [y0 - y1, y0 - top], [y1 - y0, bottom - y0]]) {
    if (way === 0 && room < 0) return false;
    if (way < 0) from = Math.max(from, room / way);
    if (way > 0) to = Math.min(to, room / way);
  }
  return from <= to;
};

/** The lines [x0, y0, x1, y1] of a path. */
export const linesOf = (path) => {
  const corners = [...path.getAttribute("d").matchAll(/([\d.-]+)[ ,]([\d.-]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
  return corners.slice(1).map((corner, index) => [...corners[index], ...corner]);
};

const SIDES = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]];
const BELOW = [[1, 0], [1, 1], [0, 1]];
const ANCHORS = { "-1": "end", 0: "middle", 1: "start" };

/**
 * Where the label of a point goes: beside it or near it, where it covers no other; null where there
 * is no such place. `taken` are boxes [x0, y0, x1, y1]; the chosen box is added to it. That of a
 * region goes below its bend.
 */
export const placeLabel = ({ x, y }, [width, height], gap, [right, bottom], taken, region) => {
  for (const reach of [gap, 3 * gap, 6 * gap]) {
    for (const [dx, dy] of region ? BELOW : SIDES) {
      const left = x + dx * reach - ((1 - dx) / 2) * width;
      const top = y + dy * reach - ((1 - dy) / 2) * height;
      const box = [left, top, left + width, top + height];
      if (left < 0 || top < 0 || box[2] > right || box[3] > bottom || taken.some((other) => overlap(box, other))) continue;
      taken.push(box);
      const place = { anchor: ANCHORS[dx], x: left + ((1 - dx) / 2) * width, y: top + height / 2 };
      return reach > gap ? { ...place, leader: `M${x} ${y}L${within(x, left, box[2])} ${within(y, top, box[3])}` } : place;
    }
  }
  return null;
};
