// Asks the server every two seconds for what has changed, and draws that.
import { $, ask, make } from './dom.js';
import { refreshCurves } from './curves.js';
import { drawDetails } from './details.js';
import { drawExamples } from './examples.js';
import { state } from './state.js';
import { drawSweeps } from './sweeps.js';
import { chooseByDefault, drawTable } from './table.js';

const kPoll = 2000;

export async function refresh() {
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

export async function poll() {
  if (!document.hidden) await refresh();
  setTimeout(poll, kPoll);
}
