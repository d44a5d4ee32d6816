// The page of hinge watch: this file starts it and listens to the keyboard. Plain modules: no library, no build.
import { $ } from './dom.js';
import { drawCurves } from './curves.js';
import { open } from './details.js';
import { poll, refresh } from './refresh.js';
import { download } from './report.js';
import { state } from './state.js';
import { afterChoice, choose, drawTable, setFilter } from './table.js';

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
