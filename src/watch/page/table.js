// The table of runs: its columns, order, filter and choice.
import { $, make } from './dom.js';
import { extent, linear, path } from './scale.js';
import { state } from './state.js';
import { refreshCurves } from './curves.js';
import { open } from './details.js';
import { drawExamples } from './examples.js';

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

export const rows = new Map(); // id: { element, drawn }

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

export function drawTable() {
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

export function choose(id) {
  state.touched = true;
  if (!state.chosen.delete(id)) state.chosen.add(id);
  afterChoice();
}

export function afterChoice() {
  drawTable();
  drawExamples();
  refreshCurves();
}

// Until the user chooses, those that run are compared, or the youngest.
export function chooseByDefault() {
  if (state.touched) return;
  const young = [...state.runs.values()]
    .filter((run) => !run.archived)
    .sort((a, b) => b.live - a.live || b.updated - a.updated);
  const live = young.filter((run) => run.live);
  state.chosen = new Set((live.length ? live : young).slice(0, 6).map((run) => run.id));
}

export function setFilter(text) {
  state.filter = $('filter').value = text;
  drawTable();
  $('filter').scrollIntoView({ block: 'center' });
}
