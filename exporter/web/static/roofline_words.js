// SPDX-License-Identifier: Apache-2.0
// What the roofline says in words: ticks, products, points, and shares of the roofs.

import * as format from "./format.js";

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

/** 0.1, 1, 10, 100, 1000, then powers. */
export const intensityTick = (value) => {
  const power = Math.round(Math.log10(value));
  return power > 3 ? `10${SUPERSCRIPTS[power]}` : power < 0 ? value.toFixed(-power) : String(Math.round(value));
};

/** 100 G, 1 T, 10 T. */
export const flopsTick = (value) => {
  const power = Math.round(Math.log10(value));
  const prefix = Math.max(0, Math.floor(power / 3));
  return `${10 ** (power - 3 * prefix)} ${PREFIXES[prefix]}`.trim();
};

/** What one point says: the same words for hover, screen reader and table. */
export const pointWords = (row) => {
  const { point, point_bounds: bounds } = row;
  if (point) return `${format.flops(point.flops)} at ${format.intensity(point.intensity)}`;
  if (bounds?.bytes) {
    const [low, high] = bounds.flops;
    const least = low > 0 ? `${format.flops(low)} to ` : "at most ";
    const [, many] = bounds.bytes;
    return `${least}${format.flops(high)}${many ? `, at most ${format.bytesRate(many)}` : ""} (estimated)`;
  }
  return "no work, or no memory traffic, so no place on the chart";
};

/** Counters do not tell the precision of tensor work: what it can be at least and at most. */
export const precisionWords = ({ point, point_bounds: bounds }) =>
  point && bounds?.flops ? `${bounds.flops.map(format.flops).join(" to ")} by precision` : "";

/** Of each roof that is known: 66 % (spec), 60 % (clock), 82 % (achievable). */
export const roofShares = ({ roof = {} }) =>
  ["spec", "clock", "achievable"].filter((basis) => roof[basis] !== undefined).map((basis) => `${format.percent(roof[basis])} (${basis})`).join(", ");

/** "FP8/INT8 tensor", "FP64 tensor, FP32": several names in few letters. */
export const joined = (precisions) => {
  const tensor = precisions.filter((each) => each.endsWith(" tensor")).map((each) => each.replace(" tensor", ""));
  const vector = precisions.filter((each) => !each.endsWith(" tensor"));
  return [tensor.length ? `${tensor.join("/")} tensor` : "", vector.join("/")].filter(Boolean).join(", ");
};

/** A roof as the chart draws it: named ceilings, and which of them tensor work is counted in. */
export const asDrawn = (roof) => {
  const assumed = roof.assumed ?? "fp32";
  const [spec, achievable] = roof.bandwidth ?? [];
  return {
    bandwidth: { spec, achievable },
    ceilings: Object.entries(roof.flops).map(([key, [peak, reached]]) => ({
      precision: format.precisionName(key),
      spec: peak,
      achievable: reached,
      assumed: key === assumed,
      // Where a product has no tensor clock its tensor peaks go by the vector clock.
      clock: (key.includes("_tensor") ? roof.clock?.tensor : undefined) ?? roof.clock?.vector,
    })),
  };
};

export const roofTitle = (key, roof) => {
  const parts = key.split("/").length > 2 && roof.sms ? `, instance of ${roof.sms} SMs` : "";
  return `${format.productName(roof.name)}${parts}`;
};
