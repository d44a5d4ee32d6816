// Curves of the chosen runs over one another, and their legend.
import { $, ask, make } from './dom.js';
import { extent, linear, logTicks, path, short, smoothed, ticks } from './scale.js';
import { drawnRuns, kMostCurves, state } from './state.js';

const kColours = 10;

export async function refreshCurves() {
  const ids = drawnRuns();
  $('save-report').disabled = state.chosen.size === 0;
  $('choose-none').disabled = state.chosen.size === 0;
  const wanted = JSON.stringify([state.metric, ids.map((id) => [id, state.runs.get(id).revision])]);
  if (wanted === state.asked) return drawCurves();
  state.asked = wanted;
  if (ids.length) await refreshMetrics(ids[0]);
  let curves = [];
  if (ids.length)
    try {
      curves = (await ask('/api/curves', [['metric', state.metric], ...ids.map((id) => ['run', id])])).curves;
    } catch (error) {
      state.asked = '';
      return;
    }
  if (state.asked !== wanted) return; // a later question is on its way
  state.curves = new Map(curves.map((curve) => [curve.run, curve.points]));
  drawCurves();
}

// The metrics that the first chosen run has: those worth a curve first, then all.
async function refreshMetrics(id) {
  let run;
  try {
    run = await ask('/api/run', [['run', id]]);
  } catch (error) {
    return;
  }
  const named = new Map(run.curves.map((curve) => [curve.metric, curve.title]));
  const names = [...named.keys(), ...run.metrics.filter((name) => !named.has(name))];
  if (!names.includes(state.metric)) names.unshift(state.metric);
  const list = JSON.stringify(names);
  if (list === state.metrics) return;
  state.metrics = list;
  $('metric').replaceChildren(
    ...names.map((name) => make('option', { value: name }, named.has(name) ? `${named.get(name)} (${name})` : name)),
  );
  $('metric').value = state.metric;
}

export function drawCurves() {
  const ids = drawnRuns();
  $('curves-hint').textContent =
    state.runs.size === 0
      ? ''
      : ids.length === 0
        ? 'Choose runs in the table to compare their curves.'
        : state.chosen.size > kMostCurves
          ? `The first ${kMostCurves} of the chosen runs.`
          : '';
  const width = Math.max(280, $('chart').clientWidth || 800),
    height = matchMedia('(max-width: 46rem)').matches ? 260 : 340;
  const usable = (points) => (state.log ? points.filter(([, value]) => value > 0) : points);
  const series = ids.map((id, i) => {
    const raw = usable(state.curves.get(id) || []);
    return {
      id,
      raw,
      points: smoothed(raw, state.smoothing),
      colour: `c${i % kColours}${i >= kColours ? ' dashed' : ''}`,
    };
  });
  const filled = series.filter((one) => one.points.length > 0);
  state.series = filled;
  const svg = make('svg', {
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
    'aria-label': `${state.metric} of ${filled.length} runs over their steps`,
  });
  if (filled.length) {
    const xs = extent(filled.flatMap((one) => [one.points[0][0], one.points[one.points.length - 1][0]]));
    let ys = extent(filled.flatMap((one) => (state.smoothing ? one.points : one.raw).map((point) => point[1])));
    if (ys[0] === ys[1]) ys = state.log ? [ys[0] / 2, ys[1] * 2] : [ys[0] - 1, ys[1] + 1];
    const area = { left: 58, right: width - 14, top: 12, bottom: height - 34 };
    const x = linear(xs, area.left, area.right);
    const linearY = linear(state.log ? ys.map(Math.log) : ys, area.bottom, area.top);
    const y = state.log ? (value) => linearY(Math.log(value)) : linearY;
    for (const value of state.log ? logTicks(ys) : ticks(ys, 6))
      svg.append(
        make('line', { class: 'grid', x1: area.left, x2: area.right, y1: y(value), y2: y(value) }),
        make('text', { x: area.left - 6, y: y(value) + 4, 'text-anchor': 'end' }, short(value)),
      );
    for (const value of ticks(xs, Math.max(2, Math.floor(width / 120))))
      svg.append(make('text', { x: x(value), y: area.bottom + 16, 'text-anchor': 'middle' }, short(value)));
    svg.append(make('text', { x: area.right, y: area.bottom + 31, 'text-anchor': 'end' }, 'step'));
    for (const one of filled) {
      if (state.smoothing)
        svg.append(
          make('path', {
            class: `line raw ${one.colour}`,
            d: path(
              one.raw.map(([step, value]) => [step, Math.min(Math.max(value, ys[0]), ys[1])]),
              x,
              y,
            ),
          }),
        );
      svg.append(
        make('path', {
          class: `line ${one.colour}`,
          d: path(one.points, x, y),
          'data-run': one.id,
          'data-points': one.points.length,
        }),
      );
    }
    const cursor = make('line', { class: 'cursor', y1: area.top, y2: area.bottom, x1: 0, x2: 0, visibility: 'hidden' });
    svg.append(cursor);
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect(),
        place = ((event.clientX - box.left) / box.width) * width;
      const step = xs[0] + ((place - area.left) / (area.right - area.left)) * (xs[1] - xs[0]);
      (cursor.setAttribute('x1', place),
        cursor.setAttribute('x2', place),
        cursor.setAttribute('visibility', place >= area.left && place <= area.right ? 'visible' : 'hidden'));
      drawLegend(step);
    });
    svg.addEventListener('pointerleave', () => {
      cursor.setAttribute('visibility', 'hidden');
      drawLegend();
    });
  } else if (ids.length) {
    svg.append(
      make('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle' }, `No values of ${state.metric} yet.`),
    );
  }
  $('chart').replaceChildren(svg);
  drawLegend();
}

// With the last values, or those at a step.
function drawLegend(step = undefined) {
  $('legend').replaceChildren(
    ...(state.series || []).map((one) => {
      let point = one.points[one.points.length - 1];
      if (step !== undefined)
        point = one.points.reduce(
          (best, next) => (Math.abs(next[0] - step) < Math.abs(best[0] - step) ? next : best),
          one.points[0],
        );
      return make(
        'li',
        {},
        make(
          'svg',
          { viewBox: '0 0 26 10', 'aria-hidden': 'true' },
          make('line', { class: one.colour, x1: 0, x2: 26, y1: 5, y2: 5 }),
        ),
        make('span', {}, one.id),
        make('span', { class: 'value' }, `${Number(point[1].toPrecision(5))} at ${point[0]}`),
      );
    }),
  );
}

$('metric').addEventListener('change', (event) => {
  state.metric = event.target.value;
  refreshCurves();
});
$('log-axis').addEventListener('change', (event) => {
  state.log = event.target.checked;
  drawCurves();
});
$('smoothing').addEventListener('input', (event) => {
  state.smoothing = Number(event.target.value);
  $('smoothing-value').textContent = state.smoothing;
  drawCurves();
});
