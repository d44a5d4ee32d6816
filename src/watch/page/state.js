// What the page knows, and what the user has chosen.
export const kMostCurves = 24;

export const state = {
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

export const drawnRuns = () => [...state.chosen].filter((id) => state.runs.has(id)).slice(0, kMostCurves);
