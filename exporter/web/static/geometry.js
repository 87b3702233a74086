// SPDX-License-Identifier: Apache-2.0
// The roofline's geometry: pure functions from ceilings and readings to lines, areas and places.

/** FLOP/s that can be had at an intensity: min(peak, intensity x bandwidth). */
export const attainable = (intensity, peak, bandwidth) => Math.min(peak, intensity * bandwidth);

/** FLOP per byte from which compute is the roof. */
export const ridge = (peak, bandwidth) => peak / bandwidth;

/** A logarithmic axis from the values [low, high] to the pixels [from, to]. */
export const logAxis = (low, high, from, to) => {
  const [start, width] = [Math.log10(low), Math.log10(high) - Math.log10(low)];
  return {
    low,
    high,
    at: (value) => from + ((Math.log10(value) - start) / width) * (to - from),
    holds: (value) => value >= low && value <= high,
    clamp: (value) => Math.min(high, Math.max(low, value)),
  };
};

/** The powers of ten on an axis. */
export const decades = ({ low, high }) => {
  const powers = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power += 1) {
    powers.push(10 ** power);
  }
  return powers;
};

const decadeBelow = (value) => 10 ** Math.floor(Math.log10(value) + 1e-9);
const decadeAbove = (value) => 10 ** Math.ceil(Math.log10(value) - 1e-9);

/**
 * Ranges that show the slope, every ridge and every ceiling; wider by whole decades where
 * `places` [{intensity, flops}] lie outside, at most by three.
 */
export const ranges = (roof, places = []) => {
  const peaks = roof.ceilings.map(({ spec }) => spec);
  const bandwidth = roof.bandwidth.spec;
  const ridges = bandwidth ? peaks.map((peak) => ridge(peak, bandwidth)) : [10, 100];
  const left = decadeBelow(Math.min(...ridges) / 4);
  const right = decadeAbove(Math.max(...ridges) * 4);
  const bottom = decadeBelow(Math.min(Math.min(...peaks) / 3, bandwidth ? left * bandwidth : Infinity));
  const low = (start, values) => Math.max(start / 1e3, Math.min(start, ...values.map(decadeBelow)));
  return {
    intensity: [low(left, places.map(({ intensity }) => intensity)), Math.max(right, ...places.map(({ intensity }) => Math.min(right * 1e3, decadeAbove(intensity))))],
    flops: [low(bottom, places.map(({ flops }) => flops)), Math.max(...peaks) * 2.5],
  };
};

/** Ceilings of (nearly) the same height as one line, highest first. */
export const mergeCeilings = (ceilings) => {
  const lines = [];
  for (const each of [...ceilings].sort((a, b) => b.spec - a.spec)) {
    const last = lines.at(-1);
    if (last && Math.abs(last.spec / each.spec - 1) < 0.01) {
      last.precisions.push(each.precision);
      last.assumed ||= each.assumed === true;
      last.achievable = each.assumed ? (each.achievable ?? last.achievable) : (last.achievable ?? each.achievable);
    } else {
      lines.push({ spec: each.spec, achievable: each.achievable, assumed: each.assumed === true, precisions: [each.precision] });
    }
  }
  return lines;
};

/**
 * The roof of one ceiling as corners [intensity, FLOP/s]: up the memory slope, then flat.
 * Without a bandwidth it is flat from end to end.
 */
export const roofCorners = (peak, bandwidth, [left, right], bottom) => {
  if (!bandwidth) return [[left, peak], [right, peak]];
  const start = Math.max(left, bottom / bandwidth);
  return [[start, start * bandwidth], [ridge(peak, bandwidth), peak], [right, peak]];
};

/**
 * Where a point lies that is only known by bounds of FLOP/s and bytes/s: a parallelogram in
 * log-log space, its corners [intensity, FLOP/s], cut at `bottom` FLOP/s and `right` FLOP/B.
 */
export const boundsCorners = ({ flops: [low, high], bytes: [few, many] }, [left, right], bottom) => {
  if (!(many > 0) || !(high > bottom)) return null;
  const least = Math.max(low, bottom);
  const edge = (work) => (few > 0 ? Math.min(right, work / few) : right);
  const near = (work) => Math.max(left, work / many);
  return [[near(least), least], [near(high), high], [edge(high), high], [edge(least), least]];
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

const SIDES = [[1, 0, "start"], [-1, 0, "end"], [0, -1, "middle"], [0, 1, "middle"], [1, -1, "start"], [-1, -1, "end"], [1, 1, "start"], [-1, 1, "end"]];

/**
 * Where the label of a point goes: beside it, where it covers no other.
 * `taken` are boxes [x0, y0, x1, y1]; the chosen box is added to it.
 */
export const placeLabel = ({ x, y }, [width, height], gap, [right, bottom], taken) => {
  let best = null;
  for (const [dx, dy, anchor] of SIDES) {
    const left = dx > 0 ? x + gap : dx < 0 ? x - gap - width : x - width / 2;
    const top = dy > 0 ? y + gap : dy < 0 ? y - gap - height : y - height / 2;
    const box = [left, top, left + width, top + height];
    const outside = left < 0 || top < 0 || box[2] > right || box[3] > bottom;
    const hits = taken.filter((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]).length;
    const cost = hits + (outside ? 10 : 0);
    if (!best || cost < best.cost) best = { cost, box, anchor, x: dx > 0 ? left : dx < 0 ? box[2] : x, y: top + height / 2 };
    if (cost === 0) break;
  }
  taken.push(best.box);
  return best;
};
