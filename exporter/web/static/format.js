// SPDX-License-Identifier: Apache-2.0
// Numbers as a person reads them; wording/numbers.py rounds alike.

const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/** Round half up, so that both sides say the same of 12.5. */
export const fixed = (value, digits) => {
  const scale = 10 ** digits;
  return (Math.floor(value * scale + 0.5) / scale).toFixed(digits);
};

export const percent = (ratio) => {
  const value = ratio * 100;
  return `${fixed(value, value >= 9.95 || value < 0.05 ? 0 : 1)} %`;
};

const threeDigits = (value) => fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);

/** 656 TFLOP/s, 1.35 TB/s. */
export const si = (value, unit) => {
  const [scale, prefix] = PREFIXES.find(([each]) => value >= each * 0.9995) ?? [1, ""];
  return `${value === 0 ? 0 : threeDigits(value / scale)} ${prefix}${unit}`;
};

export const flops = (value) => si(value, "FLOP/s");
export const intensity = (value) => `${threeDigits(value)} FLOP/B`;

/** A power of ten: 0.01, 1, 100, 1 k, 10 T. */
export const tick = (value) => (value < 1 ? String(Number(value.toPrecision(1))) : si(value, "").replace(/\.0+ /, " ").trim());

/** The time of day, in the reader's own time zone. */
export const clockTime = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour12: false });
