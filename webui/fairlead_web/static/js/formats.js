// Mirrors formats.py, for cells that are patched in place. A browser test compares the two.

const NONE = "–";
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value) {
  return value == null ? NONE : grouped.format(Math.round(value));
}

export function share(value) {
  if (value == null) return NONE;
  const percent = Number((value * 100).toFixed(9)), isEnd = (number) => number === 0 || number === 100;
  const words = [1, 2, 3].map((digits) => percent.toFixed(digits)).find((one) => isEnd(percent) || !isEnd(Number(one)));
  return words ? `${words} %` : percent > 50 ? "> 99.999 %" : "< 0.001 %";
}

export function seconds(value) {
  if (value == null) return NONE;
  const size = Math.abs(value);
  if (size < 0.9995) return `${(value * 1000).toFixed(0)} ms`;
  return size < 9.995 ? `${value.toFixed(2)} s` : `${value.toFixed(1)} s`;
}

// A latency read off a histogram, with the two digits that its steps hold.
export function latency(value) {
  if (value == null) return NONE;
  if (value <= 0) return "0 ms";
  const found = Number(value.toPrecision(2));
  if (found < 1) return found >= 0.01 ? `${(found * 1000).toFixed(0)} ms` : `${(found * 1000).toFixed(1)} ms`;
  return `${found.toFixed(found < 10 ? 1 : 0)} s`;
}

export function rate(value) {
  if (value == null) return NONE;
  const size = Math.abs(value);
  if (size > 0 && size < 0.0995) return size < 0.001 ? "< 0.001" : String(Number(value.toPrecision(2)));
  return size < 99.95 ? value.toFixed(1) : count(value);
}

export function span(total) {
  const whole = Math.max(0, Math.round(total));
  const two = (big, bigWord, small, smallWord) => (small ? `${big} ${bigWord} ${small} ${smallWord}` : `${big} ${bigWord}`);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole < 600 ? whole % 60 : 0, "s");
  if (whole < 86400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

function fromMilliseconds(whole) {
  if (whole < 1000) return `${whole} ms`;
  const [part, digits] = whole < 9995 ? [Math.floor((whole + 5) / 10), 2] : [Math.floor((whole + 50) / 100), 1];
  const unit = 10 ** digits;
  return `${Math.floor(part / unit)}.${String(part % unit).padStart(digits, "0")} s`;
}

// An exact heatmap number: `steps` of the unit's resolution, as heatmaps.cells.text_of shows them.
export function exact(steps, unit) {
  if (steps == null) return "no data";
  switch (unit) {
    case "tokens": return `${grouped.format(steps)} tokens`;
    case "share": return `${Math.floor(steps / 10)}.${steps % 10} %`;
    case "seconds": return fromMilliseconds(steps);
    case "requests": return `${Math.floor(steps / 10)}${steps % 10 ? `.${steps % 10}` : ""}${steps === 10 ? " request" : " requests"}`;
    default: return `${Math.floor(steps / 100)}.${String(steps % 100).padStart(2, "0")} ${unit}`;
  }
}
