// Sweeps and their figures.
import { $, make } from './dom.js';
import { download } from './report.js';
import { state } from './state.js';
import { setFilter } from './table.js';

export function drawSweeps() {
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
