// Where the page's answers come from: the server, or the file itself if the page was exported.

const exported = (() => {
  const kept = document.getElementById('replies');
  return kept && JSON.parse(kept.textContent);
})();

async function ask(name, parameters = {}) {
  if (exported) return askExported(name, parameters);
  const query = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== ''));
  let reply;
  try {
    reply = await fetch(`api/${name}?${query}`);
  } catch {
    throw new Error('The server does not answer: is ridge dashboard still running?');
  }
  const isJson = (reply.headers.get('content-type') || '').startsWith('application/json');
  if (!isJson) throw new Error((await reply.text()).trim());
  const json = await reply.json();
  if (!reply.ok) throw new Error(json.error);
  return json;
}

function askExported(name, parameters) {
  const answer = {
    runs: () => exportedRuns(parameters),
    run: () => exportedRun(parameters.run),
    compare: () => exportedComparison(parameters.runs.split(',')),
    trend: () => exported.trend[parameters.metric],
    study: () => exported.study && exported.study[parameters.study],
  }[name];
  const found = answer ? answer() : exported[name];
  if (!found) throw new Error('This is not among what was exported');
  return found;
}

const wordsOf = text => text.toLowerCase().split(/\s+/).filter(Boolean);
// A server finds the same by a filter; see searchFilter().
const hasWords = (row, words) => {
  const text = [row.workload, row.mode, row.version, row.dtype, row.gpu, row.cpu, row.commit,
    ...row.tags].join('\n').toLowerCase();
  return words.every(word => text.includes(word));
};

function exportedRuns({search = '', sort = 'created', direction, limit, offset}) {
  const words = wordsOf(search);
  const found = exported.runs.filter(row => hasWords(row, words));
  const sign = direction === 'ascending' ? 1 : -1;
  const known = row => row[sort] !== null;
  found.sort((a, b) => known(b) - known(a) ||
    sign * (d3.ascending(a[sort], b[sort]) || a.id - b.id));
  return {total: found.length, offset, runs: found.slice(offset, offset + limit)};
}

function exportedRun(name) {
  if (exported.run && exported.run[name]) return exported.run[name];
  const row = exported.runs.find(r => r.tags.includes(name) || r.uuid === name);
  if (row) return exported.run[row.id];
  throw new Error(`Run ${shown(name, 60)} is not among those that were exported`);
}

// What the server computes in comparison.cpp, for runs that the page has.
function exportedComparison(names) {
  const replies = names.map(exportedRun);
  const perRun = make => replies.map(make);
  const summaries = perRun(r => numbersOf(r.record));
  const options = new Set(replies.flatMap(r => Object.keys(r.record.options || {})));
  const operators = perRun(r => operatorsOf(r) || {rows: [], steps: 1});
  const names2 = new Set(operators.flatMap(o => o.rows.map(row => row.name)));
  const same = values => values.every(v => JSON.stringify(v) === JSON.stringify(values[0]));
  const ratios = values => values.map(v => v !== null && values[0] ? v / values[0] : null);
  return {
    runs: perRun((r, i) => ({row: r.row,
      losses: {step: summaries[i].losses.map((_, s) => summaries[i].first_step + s),
        value: summaries[i].losses},
      step_quantiles: quantilesOf(summaries[i].step_seconds.slice(
        summaries[i].step_seconds.length > summaries[i].left_out ? summaries[i].left_out : 0))})),
    options: [...options].map(name => ({name,
      values: perRun(r => (r.record.options || {})[name] ?? null)})).filter(o => !same(o.values)),
    metrics: ['median_seconds', 'samples_per_second', 'tokens_per_second', 'peak_bytes', 'kernels',
      'flops', 'final_loss'].map(name => ({name, values: perRun(r => r.row[name])}))
      .filter(m => m.values.some(v => v !== null))
      .map(m => ({...m, ratios: ratios(m.values)})),
    operators: [...names2].map(name => ({name, seconds: operators.map(o => {
      const row = o.rows.find(one => one.name === name);
      return row ? row.total.time_ns * 1e-9 / (o.steps || 1) : null;
    })})).sort((a, b) => d3.max(b.seconds) - d3.max(a.seconds)),
  };
}

function quantilesOf(seconds) {
  const sorted = seconds.filter(Number.isFinite).sort(d3.ascending);
  return sorted.length ? d3.range(101).map(p => d3.quantileSorted
    ? d3.quantileSorted(sorted, p / 100) : d3.quantile(sorted, p / 100)) : [];
}

// Records may come from anywhere: what the page draws of one is of the right kind.
const isObject = value => value !== null && typeof value === 'object' && !Array.isArray(value);
const objectOf = value => isObject(value) ? value : {};
const numberOf = (value, usual = 0) => Number.isFinite(value) ? value : usual;
const listOf = value => Array.isArray(value) ? value.map(v => Number.isFinite(v) ? v : NaN) : [];
function numbersOf(record) {
  const summary = objectOf(record.performance_summary);
  return {...summary, losses: listOf(summary.losses), step_seconds: listOf(summary.step_seconds),
    forward_seconds: listOf(summary.forward_seconds), backward_seconds: listOf(summary.backward_seconds),
    optimizer_seconds: listOf(summary.optimizer_seconds),
    recorded_steps: listOf(summary.recorded_steps), first_step: numberOf(summary.first_step, 1),
    left_out: numberOf(summary.steps_left_out_of_averages),
    median_batch_time: numberOf(summary.median_batch_time)};
}

// The operators that were kept of a profile; null if none were, or not as ridge writes them.
function operatorsOf({record, context}) {
  const table = [objectOf(context).operators, objectOf(record.profile).operators].find(isObject);
  if (!table || !Array.isArray(table.rows)) return null;
  const works = row => isObject(row) && typeof row.name === 'string' && isObject(row.total);
  const numbers = ['calls', 'time_ns', 'flops', 'bytes_read', 'bytes_written'];
  return {...table, steps: numberOf(table.steps, 1), step_time_ns: numberOf(table.step_time_ns),
    rows: table.rows.filter(works).map(row => ({name: row.name,
      total: Object.fromEntries(numbers.map(n => [n, numberOf(row.total[n])]))}))};
}
