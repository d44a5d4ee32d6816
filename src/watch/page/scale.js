// From values to places on a chart. No elements here.
export function extent(values) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
export const linear =
  ([low, high], from, to) =>
  (value) =>
    high > low ? from + ((value - low) / (high - low)) * (to - from) : (from + to) / 2;
export const path = (points, x, y) =>
  points.map(([step, value], i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');

// An exponential mean that does not begin at zero: the weights of what was seen add up to one.
export function smoothed(points, share) {
  if (!share) return points;
  let mean = 0,
    weight = 0;
  return points.map(([step, value]) => {
    ((mean = share * mean + (1 - share) * value), (weight = share * weight + (1 - share)));
    return [step, mean / weight];
  });
}

export function ticks([low, high], wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const all = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
    all.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return all;
}

export function logTicks([low, high]) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) all.push(value);
    }
  return all.length > 1 ? all : ticks([low, high], 4);
}

export const short = (value) => {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(4))} M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(4))} k`;
  return Number(value.toPrecision(4)).toString();
};
