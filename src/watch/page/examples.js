// A picture or a sentence of the user: what the chosen runs make of it.
import { $, announce, ask, make } from './dom.js';
import { drawnRuns, state } from './state.js';

const example = { kind: '', asked: 0 };

function exampleRuns(kind) {
  return drawnRuns()
    .map((id) => state.runs.get(id))
    .filter((run) => run.example === kind)
    .slice(0, 8);
}

export function drawExamples() {
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
