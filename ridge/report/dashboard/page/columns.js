// What the columns of a store are called and how their values read.

const dateOf = seconds => new Date(1000 * seconds).toISOString().slice(0, 16).replace('T', ' ');
const asMinute = text => String(text).slice(0, 16).replace('T', ' ');
const asRate = value => value >= 100 ? asCount(value) : value.toPrecision(3);
const asLoss = value => value.toFixed(4);
const asLossTick = value => String(+value.toPrecision(4));
// A commit, as far as it tells it from others; a + says that files had changed.
const asCommit = commit => commit.length <= 11 ? shown(commit)
  : shown(commit.slice(0, 10)) + (commit.endsWith('+') ? '+' : '');

const columnTexts = {
  id: ['Run', String], created: ['Created (UTC)', asMinute], median_seconds: ['Step', asTime],
  samples_per_second: ['Samples/s', asRate], tokens_per_second: ['Tokens/s', asRate],
  peak_bytes: ['Peak memory', asBytes], flops: ['FLOPs', asFlops], kernels: ['Kernels', asCount],
  final_loss: ['Loss', asLoss], batch_size: ['Batch', asCount], seq_len: ['Sequence', asCount],
  image_size: ['Image size', asCount], cores: ['Cores', asCount], commit: ['Commit', asCommit],
  uuid: ['UUID', String], gpu_uuid: ['GPU UUID', String], cpu: ['CPU'], gpu: ['GPU'],
  ridge_version: ['Ridge'], tags: ['Tags', tags => tags.map(t => shown(t, 40)).join(', ')],
};
const columnName = name => columnTexts[name] ? columnTexts[name][0]
  : (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll('_', ' ').replaceAll('-', ' ');
function columnText(name, value) {
  if (value === null || value === undefined || value === '') return '';
  const format = columnTexts[name] && columnTexts[name][1];
  if (format) return format(value);
  return typeof value === 'number' ? asNumber(value) : shown(value, 80);
}
const asNumber = value => Number.isInteger(value) && Math.abs(value) < 1e12 ? asCount(value)
  : String(+value.toPrecision(4));
// For the axis of a chart.
const columnTick = name => asTick(value => columnText(name, value));
const isWords = kind => kind === 'text' || kind === 'uuid' || kind === 'date' || kind === 'tags';

const runHref = id => `#run?run=${encodeURIComponent(id)}`;
const runLink = (id, text) => element('a', {href: runHref(id)}, text ?? `Run ${id}`);
const asCores = cores => `${cores} ${cores === 1 ? 'core' : 'cores'}`;
const hardwareOf = row => shown(row.gpu || `${row.cpu}, ${asCores(row.cores)}`, 60);
const titleOf = row => [row.workload, row.mode, row.version, row.dtype].filter(Boolean)
  .map(part => shown(part, 60)).join(' ');

const palette = ['--blue', '--coral', '--teal', '--yellow', '--purple', '--pink', '--green',
  '--brown'].map(name => `var(${name})`);
const colorOf = i => palette[i % palette.length];
