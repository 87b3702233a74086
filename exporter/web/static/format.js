// SPDX-License-Identifier: Apache-2.0
// Numbers as a person reads them. words.py says the same for the first paint, rounding alike.

const CUT = 60;
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

export const cut = (text, length = CUT) => {
  const letters = [...String(text)];
  return letters.length <= length ? letters.join("") : `${letters.slice(0, length - 1).join("")}…`;
};

/** Round half up, so that both sides say the same of 12.5. */
export const fixed = (value, digits) => {
  const scale = 10 ** digits;
  return (Math.floor(value * scale + 0.5) / scale).toFixed(digits);
};

export const percentNumber = (ratio) => {
  const percent = ratio * 100;
  if (percent >= 9.95 || percent < 0.05) return fixed(percent, 0);
  return fixed(percent, 1);
};

export const percent = (ratio) => `${percentNumber(ratio)} %`;

export const span = (lower, upper) => {
  const [low, high] = [percentNumber(lower), percentNumber(upper)];
  return low === high ? `${low} %` : `${low} to ${high} %`;
};

export const duration = (seconds) => {
  const whole = Math.floor(Math.max(0, seconds));
  const [minutes, hours, days] = [60, 3600, 86400].map((each) => Math.floor(whole / each));
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min` : `${whole} s`;
};

/** Three digits and a prefix: 656 TFLOP/s, 1.35 TB/s. */
export const si = (value, unit) => {
  if (value === 0) return `0 ${unit}`;
  const [scale, prefix] = PREFIXES.find(([each]) => value >= each * 0.9995) ?? [1, ""];
  const scaled = value / scale;
  const digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${fixed(scaled, digits)} ${prefix}${unit}`;
};

export const flops = (value) => si(value, "FLOP/s");
export const bytesRate = (value) => si(value, "B/s");
export const intensity = (value) => `${value >= 99.95 ? fixed(value, 0) : fixed(value, value >= 9.995 ? 1 : 2)} FLOP/B`;

export const gibibytes = (value) => {
  const amount = value / 2 ** 30;
  return fixed(amount, amount >= 9.95 || amount === 0 ? 0 : 1);
};

/** The time of day, in the reader's own time zone. */
export const clockTime = (seconds) =>
  new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour12: false });

export const isoTime = (seconds) => new Date(seconds * 1000).toISOString();

const NAMES = {
  fp64: "FP64", fp32: "FP32", fp16: "FP16", bf16: "BF16", tf32: "TF32", fp8: "FP8", fp4: "FP4",
  int8: "INT8", int4: "INT4",
};

/** bf16_tensor -> "BF16 tensor"; fp16_tensor_fp16acc -> "FP16 tensor, FP16 sums". */
export const precisionName = (key) => {
  const [type, unit, sums] = key.split("_");
  const name = NAMES[type] ?? type;
  return [name, unit ? " tensor" : "", sums ? ", FP16 sums" : ""].join("");
};

export const productName = (name) => cut(name.replace(/^NVIDIA /, ""));

export const plain = (slug) => String(slug).replaceAll("_", " ");
