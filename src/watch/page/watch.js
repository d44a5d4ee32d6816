// The page of hinge watch. It asks the server every two seconds for what has changed, and draws that. Plain script: no library, no build.
const $ = (id) => document.getElementById(id);
const kPoll = 2000,
  kMostCurves = 24,
  kColours = 10;

const state = {
  revision: 0,
  keys: [],
  runs: new Map(),
  sweeps: [],
  folder: '',
  loaded: false,
  sort: { column: 'updated', down: true },
  filter: '',
  archived: false,
  showKeys: true,
  chosen: new Set(),
  touched: false,
  metric: 'train/loss',
  log: false,
  smoothing: 0,
  opened: null,
  curves: new Map(),
  drawn: '',
};

// An element with attributes, listeners (onclick) and children; texts are never read as HTML.
function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'path', 'line', 'text', 'rect', 'g'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

async function ask(path, parameters = [], body = undefined) {
  const query = new URLSearchParams(parameters).toString();
  const options =
    body === undefined
      ? {}
      : { method: 'POST', body, headers: { 'X-Hinge-Watch': '1', 'Content-Type': 'application/octet-stream' } };
  const response = await fetch(query ? `${path}?${query}` : path, options);
  const object = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(object.error || `the server says ${response.status}`);
  return object;
}

const announce = (text) => {
  $('announce').textContent = text;
};

// ---- the table

const columns = [
  { id: 'id', title: 'run', text: (run) => run.id },
  { id: 'state', title: 'state', text: (run) => run.state },
  { id: 'step', title: 'step', number: true, less: true, text: (run) => `${run.step}/${run.steps}` },
  { id: 'left', title: 'left', number: true, less: true, text: (run) => run.leftText },
  { id: 'score', title: 'score', number: true, text: (run) => run.scoreText },
  { id: 'best', title: 'best', number: true, text: (run) => run.bestText },
  {
    id: 'loss',
    title: 'loss',
    number: true,
    text: (run) => (run.loss === null ? '-' : Number(run.loss.toPrecision(4)).toString()),
  },
  { id: 'losses', title: 'loss curve', sortBy: 'loss' },
  { id: 'speed', title: 'speed', number: true, less: true, text: (run) => run.speedText },
  {
    id: 'peak',
    title: 'peak',
    number: true,
    less: true,
    text: (run) => run.peakText,
    help: 'Share of the multiply-adds that the machine can do',
  },
  { id: 'updated', title: 'updated', number: true, less: true, text: (run) => ago(run.updated) },
];

function ago(seconds) {
  const past = Math.max(0, Date.now() / 1000 - seconds);
  if (past < 60) return 'now';
  if (past < 3600) return `${Math.floor(past / 60)} min`;
  if (past < 86400) return `${Math.floor(past / 3600)} h`;
  return `${Math.floor(past / 86400)} d`;
}

function allColumns() {
  const keys = state.showKeys ? state.keys : [];
  return [
    ...columns,
    ...keys.map((key) => ({ id: `key:${key}`, title: key, key, text: (run) => run.values[key] ?? '-' })),
  ];
}

function sortValue(run, column) {
  if (column.key) {
    const text = run.values[column.key];
    const number = Number(text);
    return text === undefined ? null : Number.isNaN(number) ? text : number;
  }
  return run[column.sortBy || column.id];
}

// What is not known comes last, whichever way it is sorted.
function compare(a, b, column, down) {
  const x = sortValue(a, column),
    y = sortValue(b, column);
  const none = (value) => value === null || value === undefined;
  if (none(x) !== none(y)) return none(x) ? 1 : -1;
  let order = 0;
  if (!none(x))
    order =
      typeof x === 'number' && typeof y === 'number'
        ? x - y
        : String(x).localeCompare(String(y), undefined, { numeric: true });
  return (down ? -order : order) || a.id.localeCompare(b.id, undefined, { numeric: true });
}

function matches(run) {
  if (run.archived && !state.archived) return false;
  return state.filter
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) =>
      [
        run.id,
        run.state,
        run.task,
        run.note,
        ...Object.entries(run.values).map(([key, value]) => `${key}=${value}`),
      ].some((text) => text.toLowerCase().includes(word)),
    );
}

function shownRuns() {
  const column = allColumns().find((one) => one.id === state.sort.column) || columns[0];
  return [...state.runs.values()].filter(matches).sort((a, b) => compare(a, b, column, state.sort.down));
}

function sparkline(points) {
  const svg = make('svg', {
    class: 'spark',
    viewBox: '0 0 110 22',
    preserveAspectRatio: 'none',
    'aria-hidden': 'true',
  });
  if (points.length > 1)
    svg.append(
      make('path', {
        d: path(
          points,
          linear(extent(points.map((p) => p[0])), 1, 109),
          linear(extent(points.map((p) => p[1])), 20, 2),
        ),
      }),
    );
  return svg;
}

function cellOf(run, column) {
  if (column.id === 'id')
    return make(
      'td',
      { class: 'name', title: run.note ? `${run.id}: ${run.note}` : run.id },
      make(
        'button',
        {
          type: 'button',
          tabindex: '-1',
          onclick: (event) => {
            event.stopPropagation();
            open(run.id);
          },
        },
        run.id,
      ),
      run.note ? make('span', { class: 'note' }, run.note.split('\n')[0].slice(0, 40)) : null,
    );
  if (column.id === 'state') return make('td', {}, make('span', { class: `state ${run.state}` }, run.state));
  if (column.id === 'losses') return make('td', {}, sparkline(run.losses));
  if (column.id === 'step')
    return make(
      'td',
      { class: 'number less' },
      column.text(run),
      run.live ? make('progress', { value: run.step, max: run.steps || 1, 'aria-label': 'steps done' }) : null,
    );
  const name = [column.number && 'number', column.less && 'less', column.key && 'key less'].filter(Boolean).join(' ');
  return make('td', name ? { class: name, title: column.key ? column.text(run) : null } : {}, column.text(run));
}

const rows = new Map(); // id: { element, drawn }

function rowOf(run) {
  const drawn = JSON.stringify([
    run.revision,
    state.chosen.has(run.id),
    state.showKeys && state.keys,
    ago(run.updated),
  ]);
  let row = rows.get(run.id);
  if (row && row.drawn === drawn) return row.element;
  const chosen = state.chosen.has(run.id);
  const element = row
    ? row.element
    : make('tr', { tabindex: '-1', onclick: () => choose(run.id), onfocus: () => takeFocus(element) });
  element.dataset.id = run.id;
  element.className = [chosen && 'chosen', run.archived && 'archived'].filter(Boolean).join(' ');
  element.setAttribute('aria-selected', chosen);
  const box = make('input', {
    type: 'checkbox',
    tabindex: '-1',
    'aria-label': `Compare ${run.id}`,
    onclick: (event) => {
      event.stopPropagation();
      choose(run.id);
    },
  });
  box.checked = chosen;
  element.replaceChildren(make('td', { class: 'pick' }, box), ...allColumns().map((column) => cellOf(run, column)));
  rows.set(run.id, { element, drawn });
  return element;
}

// Of the rows, one is in the order of Tab; arrows move between them.
function takeFocus(element) {
  for (const row of $('runs').tBodies[0].rows) row.tabIndex = row === element ? 0 : -1;
}

function drawTable() {
  const shown = shownRuns();
  const head = make(
    'tr',
    {},
    make('th', { class: 'pick', scope: 'col' }, make('span', { class: 'hidden' }, 'compare')),
    ...allColumns().map((column) => {
      const sorted = state.sort.column === column.id;
      return make(
        'th',
        {
          scope: 'col',
          class: [column.number && 'number', column.less && 'less', column.key && 'less'].filter(Boolean).join(' '),
          'aria-sort': sorted ? (state.sort.down ? 'descending' : 'ascending') : null,
          title: column.help,
        },
        make('button', { type: 'button', onclick: () => sortBy(column) }, column.title),
      );
    }),
  );
  const wanted = head.outerHTML;
  if (state.head !== wanted) ((state.head = wanted), $('runs').tHead.replaceChildren(head));
  const body = $('runs').tBodies[0],
    focused = document.activeElement;
  const elements = shown.map(rowOf);
  for (const id of rows.keys()) if (!state.runs.has(id)) rows.delete(id);
  // The order is mended with as few moves as can be, so that a focused row stays so.
  elements.forEach((element, i) => {
    if (body.rows[i] !== element) body.insertBefore(element, body.rows[i] || null);
  });
  while (body.rows.length > elements.length) body.lastElementChild.remove();
  if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus();
  if (elements.length && !elements.some((element) => element.tabIndex === 0)) elements[0].tabIndex = 0;
  $('no-runs').hidden = shown.length > 0 || !state.loaded;
  $('no-runs').textContent = state.runs.size ? 'No run matches.' : "No runs yet: 'hinge train CONFIG' makes them.";
}

function sortBy(column) {
  const again = state.sort.column === column.id;
  state.sort = {
    column: column.id,
    down: again ? !state.sort.down : ['step', 'score', 'best', 'speed', 'peak', 'updated'].includes(column.id),
  };
  drawTable();
  const sorted = [...$('runs').tHead.querySelectorAll('th')].find((th) => th.hasAttribute('aria-sort'));
  if (sorted) sorted.querySelector('button').focus();
}

function choose(id) {
  state.touched = true;
  if (!state.chosen.delete(id)) state.chosen.add(id);
  afterChoice();
}

function afterChoice() {
  drawTable();
  drawExamples();
  refreshCurves();
}

// Until the user chooses, those that run are compared, or the youngest.
function chooseByDefault() {
  if (state.touched) return;
  const young = [...state.runs.values()]
    .filter((run) => !run.archived)
    .sort((a, b) => b.live - a.live || b.updated - a.updated);
  const live = young.filter((run) => run.live);
  state.chosen = new Set((live.length ? live : young).slice(0, 6).map((run) => run.id));
}

// ---- curves

function extent(values) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
const linear =
  ([low, high], from, to) =>
  (value) =>
    high > low ? from + ((value - low) / (high - low)) * (to - from) : (from + to) / 2;
const path = (points, x, y) =>
  points.map(([step, value], i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');

// An exponential mean that does not begin at zero: the weights of what was seen add up to one.
function smoothed(points, share) {
  if (!share) return points;
  let mean = 0,
    weight = 0;
  return points.map(([step, value]) => {
    ((mean = share * mean + (1 - share) * value), (weight = share * weight + (1 - share)));
    return [step, mean / weight];
  });
}

function ticks([low, high], wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const all = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
    all.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return all;
}

function logTicks([low, high]) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) all.push(value);
    }
  return all.length > 1 ? all : ticks([low, high], 4);
}

const short = (value) => {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(4))} M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(4))} k`;
  return Number(value.toPrecision(4)).toString();
};

const drawnRuns = () => [...state.chosen].filter((id) => state.runs.has(id)).slice(0, kMostCurves);

async function refreshCurves() {
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

function drawCurves() {
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

// ---- examples

const example = { kind: '', asked: 0 };

function exampleRuns(kind) {
  return drawnRuns()
    .map((id) => state.runs.get(id))
    .filter((run) => run.example === kind)
    .slice(0, 8);
}

function drawExamples() {
  const kinds = new Set([...state.runs.values()].map((run) => run.example).filter(Boolean));
  const chosen = new Set(
    drawnRuns()
      .map((id) => state.runs.get(id).example)
      .filter(Boolean),
  );
  $('example-section').hidden = kinds.size === 0;
  $('picture-input').hidden = !chosen.has('picture');
  $('sentence-input').hidden = !chosen.has('sentence');
  const count = [...chosen].reduce((sum, kind) => sum + exampleRuns(kind).length, 0);
  $('example-hint').textContent =
    chosen.size === 0
      ? 'Choose runs in the table to try them on a picture or a sentence of yours.'
      : `What the best weights of the ${count === 1 ? 'chosen run' : `${count} chosen runs`} make of it, and where they look. Nothing of it is kept.`;
}

async function tryExample(kind, body) {
  const runs = exampleRuns(kind),
    mine = ++example.asked;
  const boxes = runs.map((run) =>
    make(
      'article',
      { class: 'answer', 'data-run': run.id },
      make('h3', {}, run.id),
      make('p', { class: 'quiet' }, 'asking …'),
    ),
  );
  $('answers').replaceChildren(...boxes);
  for (let i = 0; i < runs.length; ++i) {
    let answer, problem;
    try {
      answer = await ask('/api/example', [['run', runs[i].id]], body);
    } catch (error) {
      problem = error.message;
    }
    if (example.asked !== mine) return;
    boxes[i].replaceChildren(
      make('h3', {}, runs[i].id),
      ...(answer ? answerParts(answer) : [make('p', { class: 'bad' }, problem)]),
    );
  }
  announce(`${runs.length} answers`);
}

function answerParts(answer) {
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const parts = [];
  if (answer.text) parts.push(make('p', { class: 'text' }, answer.text));
  if (answer.classes.length)
    parts.push(
      make(
        'div',
        { class: 'classes' },
        ...answer.classes.flatMap((one) => [
          make('span', {}, one.name),
          make('meter', { min: 0, max: 1, value: one.probability, 'aria-label': one.name }),
          make('span', {}, percent(one.probability)),
        ]),
      ),
    );
  if (answer.numbers.length)
    parts.push(
      make(
        'p',
        { class: 'numbers' },
        ...answer.numbers.map((one) =>
          make(
            'span',
            {},
            `${one.name} ${one.name.startsWith('share') ? percent(one.value) : one.value === null ? '-' : one.value.toPrecision(3)}`,
          ),
        ),
      ),
    );
  const large = answer.pictures.some((picture) => picture.src.startsWith('data:image/svg'));
  parts.push(
    make(
      'div',
      { class: large ? 'maps large' : 'maps' },
      ...answer.pictures.map((picture) =>
        make(
          'figure',
          {},
          make('img', { src: picture.src, alt: picture.title }),
          make('figcaption', {}, picture.title),
        ),
      ),
    ),
  );
  parts.push(make('p', { class: 'quiet small' }, `weights of step ${answer.step}`));
  return parts;
}

function takePicture(file) {
  if (!file) return;
  if (file.size > 16 * 2 ** 20) {
    $('answers').replaceChildren(make('p', { class: 'bad' }, 'The picture has more than 16 MB.'));
    return;
  }
  const reader = new FileReader();
  reader.onload = () => {
    $('picture-preview').src = reader.result;
    $('picture-preview').hidden = false;
  };
  if (['image/png', 'image/jpeg'].includes(file.type)) reader.readAsDataURL(file);
  tryExample('picture', file);
}

// ---- sweeps

function drawSweeps() {
  $('sweeps-section').hidden = state.sweeps.length === 0;
  const wanted = JSON.stringify(state.sweeps);
  if (wanted === state.sweepsDrawn) return;
  state.sweepsDrawn = wanted;
  const opened = new Set([...$('sweeps').querySelectorAll('details[open]')].map((one) => one.dataset.id));
  $('sweeps').replaceChildren(
    ...state.sweeps.map((sweep) =>
      make(
        'details',
        { class: 'sweep', 'data-id': sweep.id, open: state.sweeps.length === 1 || opened.has(sweep.id) },
        make(
          'summary',
          {},
          make('strong', {}, sweep.title || sweep.id),
          ' ',
          make('span', { class: 'quiet' }, sweep.problem ? '' : sweep.state),
        ),
        sweep.problem ? make('p', { class: 'bad' }, sweep.problem) : null,
        ...sweep.figures.map((figure) => {
          const image = make('img', {
            alt: figure.title,
            loading: 'lazy',
            src: `/api/figure?${new URLSearchParams({ sweep: sweep.id, name: figure.name, revision: sweep.revision })}`,
          });
          image.addEventListener('error', () =>
            image.replaceWith(make('p', { class: 'quiet' }, `${figure.title}: nothing to draw yet`)),
          );
          return image;
        }),
        make(
          'p',
          {},
          make(
            'button',
            {
              type: 'button',
              onclick: () => {
                setFilter(sweep.id);
              },
            },
            'Show its runs',
          ),
          ' ',
          sweep.problem
            ? null
            : make('button', { type: 'button', onclick: () => download([['sweep', sweep.id]]) }, 'Save report'),
        ),
      ),
    ),
  );
}

function setFilter(text) {
  state.filter = $('filter').value = text;
  drawTable();
  $('filter').scrollIntoView({ block: 'center' });
}

// ---- one run

async function open(id) {
  state.opened = id;
  await drawDetails();
  if (!$('details').open) $('details').showModal();
}

async function drawDetails() {
  const id = state.opened;
  let run;
  try {
    run = await ask('/api/run', [['run', id]]);
  } catch (error) {
    run = null;
    announce(error.message);
  }
  if (!run || state.opened !== id) return;
  state.openedRevision = run.revision;
  $('details-title').textContent = run.id;
  const fact = (name, ...value) => [make('dt', {}, name), make('dd', {}, ...value)];
  const parts = [
    make(
      'dl',
      {},
      ...fact('state', make('span', { class: `state ${run.state}` }, run.state)),
      ...fact('step', `${run.step} of ${run.steps}`),
      ...(run.live ? fact('time left', run.leftText) : []),
      ...fact('score', `${run.scoreText}, best ${run.bestText}`),
      ...fact('speed', run.peak === null ? run.speedText : `${run.speedText}, ${run.peakText} of the machine's peak`),
      ...fact('folder', run.folder),
      ...fact('started', run.started),
      ...(run.message ? fact('why', make('span', { class: 'bad' }, run.message)) : []),
      ...run.problems.flatMap((problem) => fact('problem', make('span', { class: 'bad' }, problem))),
    ),
  ];
  if (run.resume)
    parts.push(
      make('h3', {}, 'Go on with it'),
      make(
        'div',
        { class: 'command' },
        make('pre', { id: 'resume' }, run.resume),
        make('button', { type: 'button', onclick: (event) => copy(run.resume, event.target) }, 'Copy'),
      ),
    );
  const note = make('textarea', { rows: 3, id: 'note', maxlength: 20000, 'aria-label': 'Note' });
  note.value = run.note;
  parts.push(
    make('h3', {}, 'Note'),
    note,
    make(
      'p',
      {},
      make(
        'button',
        {
          type: 'button',
          id: 'save-note',
          onclick: () => change('/api/note', [['run', id]], note.value, 'The note is saved.'),
        },
        'Save note',
      ),
      ' ',
      make(
        'button',
        {
          type: 'button',
          id: 'archive',
          onclick: () =>
            change(
              '/api/archive',
              [
                ['run', id],
                ['archived', run.archived ? '0' : '1'],
              ],
              '',
              run.archived ? 'Back from the archive.' : 'Archived.',
            ),
        },
        run.archived ? 'Take out of the archive' : 'Archive',
      ),
    ),
  );
  parts.push(
    make('h3', {}, 'Last lines of output'),
    make('pre', { id: 'log', tabindex: '0' }, run.log.length ? run.log.join('\n') : 'none'),
  );
  parts.push(
    make(
      'details',
      {},
      make('summary', {}, 'Config'),
      make(
        'div',
        { class: 'config' },
        ...run.config.map(([key, value]) => make('div', {}, make('span', { class: 'quiet' }, `${key} = `), value)),
      ),
    ),
  );
  // What the user is writing stays.
  const old = $('note');
  if (old && $('details').open && $('details').dataset.id === id && old.value !== ($('details').dataset.note || ''))
    note.value = old.value;
  const writing = document.activeElement && document.activeElement.id;
  const configOpen = $('details').dataset.id === id && $('details-body').querySelector('details')?.open;
  (($('details').dataset.id = id), ($('details').dataset.note = run.note));
  $('details-body').replaceChildren(...parts);
  if (configOpen) $('details-body').querySelector('details').open = true;
  $('log').scrollTop = $('log').scrollHeight;
  if (['note', 'save-note', 'archive', 'log'].includes(writing)) $(writing)?.focus();
}

async function change(path, parameters, body, said) {
  try {
    await ask(path, parameters, body);
    announce(said);
    if (path === '/api/note') $('details').dataset.note = body;
  } catch (error) {
    alertIn($('details-body'), error.message);
    return;
  }
  await refresh();
  await drawDetails();
}

function alertIn(element, text) {
  element.prepend(make('p', { class: 'bad', role: 'alert' }, text));
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch (error) {
    // not allowed outside of a secure page: mark it, for Ctrl-C
    getSelection().selectAllChildren($('resume'));
    button.textContent = 'Press Ctrl-C';
  }
}

async function download(parameters) {
  const button = $('save-report');
  button.textContent = 'Making it …';
  try {
    const response = await fetch(`/api/report?${new URLSearchParams(parameters)}`);
    if (!response.ok) throw new Error((await response.json()).error);
    const reader = new FileReader();
    const data = await new Promise((resolve, reject) => {
      response.blob().then((blob) => {
        reader.onload = () => resolve(reader.result);
        reader.onerror = reject;
        reader.readAsDataURL(blob);
      });
    });
    const link = make('a', { href: data, download: 'report.html' });
    (document.body.append(link), link.click(), link.remove());
  } catch (error) {
    alertIn($('runs-title').closest('section'), error.message);
  }
  button.textContent = 'Save report';
}

// ---- looking again and again

async function refresh() {
  let answer;
  try {
    answer = await ask('/api/runs', [['since', state.revision]]);
    $('connection').hidden = true;
  } catch (error) {
    $('connection').hidden = false;
    $('connection').textContent =
      error instanceof TypeError ? 'No connection to hinge watch: what is shown may be old.' : error.message;
    return;
  }
  const ids = new Set(answer.ids);
  for (const id of state.runs.keys()) if (!ids.has(id)) (state.runs.delete(id), state.chosen.delete(id));
  for (const run of answer.runs) state.runs.set(run.id, run);
  ((state.keys = answer.keys),
    (state.sweeps = answer.sweeps),
    (state.revision = answer.revision),
    (state.folder = answer.folder),
    (state.loaded = true));
  $('folder').textContent = state.folder;
  document.title = `${[...state.runs.values()].filter((run) => run.live).length} running · hinge watch`;
  const counts = new Map();
  for (const run of state.runs.values()) {
    const name = run.archived ? 'archived' : run.state;
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  $('counts').replaceChildren(
    ...[...counts].map(([name, count]) => make('span', { class: `state ${name}` }, `${count} ${name}`)),
  );
  chooseByDefault();
  (drawTable(), drawExamples(), drawSweeps());
  refreshCurves();
  if ($('details').open && state.opened && state.runs.get(state.opened)?.revision !== state.openedRevision)
    drawDetails();
}

async function poll() {
  if (!document.hidden) await refresh();
  setTimeout(poll, kPoll);
}

// ---- what the user does

$('filter').addEventListener('input', (event) => {
  state.filter = event.target.value;
  drawTable();
});
$('show-archived').addEventListener('change', (event) => {
  state.archived = event.target.checked;
  drawTable();
});
$('show-keys').addEventListener('change', (event) => {
  state.showKeys = event.target.checked;
  drawTable();
});
$('choose-none').addEventListener('click', () => {
  state.touched = true;
  state.chosen.clear();
  afterChoice();
});
$('save-report').addEventListener('click', () => download([...state.chosen].map((id) => ['run', id])));
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
$('details-close').addEventListener('click', () => $('details').close());
$('details').addEventListener('close', () => {
  const row = rows.get(state.opened);
  state.opened = null;
  if (row) row.element.focus();
});
$('translate').addEventListener('click', () => {
  if ($('sentence').value.trim()) tryExample('sentence', $('sentence').value);
});
$('sentence').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    $('translate').click();
  }
});

const drop = $('picture-input');
drop.addEventListener('click', () => $('picture-file').click());
drop.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault();
    $('picture-file').click();
  }
});
$('picture-file').addEventListener('click', (event) => event.stopPropagation());
$('picture-file').addEventListener('change', (event) => takePicture(event.target.files[0]));
drop.addEventListener('dragover', (event) => {
  event.preventDefault();
  drop.classList.add('over');
});
drop.addEventListener('dragleave', () => drop.classList.remove('over'));
drop.addEventListener('drop', (event) => {
  event.preventDefault();
  drop.classList.remove('over');
  takePicture(event.dataTransfer.files[0]);
});
// A picture that misses its place is not to replace the page.
for (const name of ['dragover', 'drop']) window.addEventListener(name, (event) => event.preventDefault());
document.addEventListener('paste', (event) => {
  if (!drop.hidden && event.clipboardData.files.length) takePicture(event.clipboardData.files[0]);
});

document.addEventListener('keydown', (event) => {
  if ($('details').open || event.ctrlKey || event.altKey || event.metaKey) return;
  const typing = ['INPUT', 'TEXTAREA', 'SELECT'].includes(event.target.tagName) && event.target.type !== 'checkbox';
  if (event.key === 'Escape' && event.target === $('filter')) {
    setFilter('');
    return;
  }
  if (event.target === $('filter') && (event.key === 'ArrowDown' || event.key === 'Enter')) {
    event.preventDefault();
    $('runs').tBodies[0].rows[0]?.focus();
    return;
  }
  if (typing) return;
  if (event.key === '/') {
    event.preventDefault();
    $('filter').focus();
    return;
  }
  const list = [...$('runs').tBodies[0].rows],
    place = list.indexOf(event.target.closest?.('#runs tbody tr'));
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, Home: -list.length, End: list.length }[event.key];
  if (step !== undefined && (place >= 0 || event.key === 'j' || event.key === 'k')) {
    event.preventDefault();
    list[Math.min(list.length - 1, Math.max(0, place + step))]?.focus();
  } else if (place >= 0 && event.target === list[place] && event.key === ' ') {
    event.preventDefault();
    choose(list[place].dataset.id);
  } else if (place >= 0 && event.target === list[place] && event.key === 'Enter') {
    event.preventDefault();
    open(list[place].dataset.id);
  }
});
new ResizeObserver(() => drawCurves()).observe($('table-frame'));
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) refresh();
});
poll();
