// One run: what it is, its note, its last lines, how to go on with it.
import { $, alertIn, announce, ask, make } from './dom.js';
import { refresh } from './refresh.js';
import { state } from './state.js';
import { rows } from './table.js';

export async function open(id) {
  state.opened = id;
  await drawDetails();
  if (!$('details').open) $('details').showModal();
}

export async function drawDetails() {
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

$('details-close').addEventListener('click', () => $('details').close());
$('details').addEventListener('close', () => {
  const row = rows.get(state.opened);
  state.opened = null;
  if (row) row.element.focus();
});
