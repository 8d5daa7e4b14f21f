// One run: all that is kept of it.

const jsonText = value => typeof value === 'string' ? value : JSON.stringify(value);

// A section, or the reason why it cannot be drawn: what is kept may come from anywhere.
function attempt(id, title, draw) {
  try {
    return draw();
  } catch (error) {
    return missing(id, title, `This run’s record is not as the page knows it: ${shown(error.message, 200)}`);
  }
}

function runCards(row, summary) {
  const entries = [
    ['Step time, median', row.median_seconds, asTime, Number.isFinite(summary.min_batch_time)
      ? `${asTime(summary.min_batch_time)} to ${asTime(numberOf(summary.max_batch_time))}` : ''],
    ['Throughput', row.samples_per_second, v => `${asRate(v)}\u00a0samples/s`,
      row.tokens_per_second ? `${asRate(row.tokens_per_second)} tokens/s` : ''],
    ['Peak memory', row.peak_bytes, asBytes, ''],
    ['Final loss', row.final_loss, asLoss, row.outcome === 'completed' ? '' : shown(row.outcome, 40)],
    ['Kernels', row.kernels, asCount, 'a step'],
    ['FLOPs', row.flops, asFlops, 'a step'],
  ].filter(([, value]) => value !== null);
  return element('div', {class: 'cards'}, entries.map(([label, value, format, note]) => {
    const [figure, unit = ''] = format(value).split('\u00a0');
    return element('div', {class: 'card'}, element('div', {class: 'label'}, label),
      element('div', {class: 'value'}, figure, unit ? element('span', {class: 'unit'}, unit) : ''),
      element('div', {class: 'note'}, note));
  }));
}

function lossSection(summary, validation) {
  const finite = summary.losses.filter(Number.isFinite);
  if (!finite.length) return null;
  const chart = makeChart('Loss by step', 260);
  const series = [{name: 'training', color: 'var(--blue)',
    points: summary.losses.map((y, i) => ({x: summary.first_step + i, y}))}];
  if (validation.length) series.push({name: 'validation', color: 'var(--coral)', kind: 'both', points: validation});
  chart.tell({series, x: {label: 'step', format: asCount}, y: {format: asLossTick},
    tip: (p, s) => [element('h3', {}, `Step ${asCount(p.x)}`), tooltipRows([[s.name, p.y.toFixed(5), s.color]])]});
  return section('loss', 'Loss', 'In nats, at each step.', chart.element,
    series.length > 1 ? legend(series.map(s => [s.color, s.name])) : null);
}

function validationOf(summary) {
  const entries = Array.isArray(summary.validation_losses) ? summary.validation_losses : [];
  return entries.filter(isObject).map(v => ({x: v.step, y: v.loss})).filter(p => Number.isFinite(p.x));
}

function conditionRows(conditions) {
  const gpu = objectOf(conditions.gpu), clock = objectOf(gpu.sm_mhz);
  const number = (value, text) => Number.isFinite(value) ? text(value) : '';
  return [
    ['Load', [number(conditions.load_average, v => `${v.toFixed(2)} before the run`),
      number(conditions.busy_cores_of_others, v => `others kept ${v.toFixed(2)} cores busy`)]
      .filter(Boolean).join(', ')],
    ['CPU clock', number(conditions.cpu_mhz, v => `${v.toFixed(0)} MHz`)],
    ['GPU seen', [number(clock.min, v => `${v.toFixed(0)} MHz at least`),
      number(gpu.power_w, v => `${v.toFixed(0)} W`), number(gpu.temperature_c, v => `${v.toFixed(0)} °C`),
      gpu.throttled_by ? `slowed by ${shown(gpu.throttled_by, 60)}` : ''].filter(Boolean).join(', ')],
  ];
}

function machineSection({row, context, record}) {
  const system = objectOf(record.system_info);
  const rows = [['Digest', row.machine], ['CPU', `${row.cpu}, ${asCores(row.cores)} used`],
    ['GPU', [row.gpu, row.gpu_uuid].filter(Boolean).join(', ')], ['Driver', row.driver],
    ['Libraries', row.libraries], ...conditionRows(objectOf(objectOf(context).conditions)),
    ['Host', system.host || ''], ['System', system.os || ''],
    ['Ridge', [row.ridge_version, row.compiler].filter(Boolean).join(', ')], ['Commit', row.commit],
    ['Binary', row.binary]];
  return section('machine', 'Machine and program', null, plainTable(rows.filter(([, v]) => v !== '')));
}

function optionsSection({given, record}) {
  const all = Object.entries(objectOf(record.options));
  return section('options', 'Options', given.length ? 'Those that are not the defaults of this workload.'
    : 'All are the defaults of this workload, or it is not known here.',
  given.length ? plainTable(given.map(o => [o.name, o.value])) : null,
  element('details', {}, element('summary', {}, `All ${all.length} options`),
    plainTable(all.map(([name, value]) => [name, jsonText(value)]))));
}

function ceilingsSection(context) {
  const ceilings = objectOf(objectOf(context).ceilings), levels = ceilings.levels;
  if (!Array.isArray(levels)) return null;
  const rows = ['f32', 'bf16', 'f16', 'tf32'].map(type => [`Peak ${type}`, ceilings[`${type}_flops_per_second`]])
    .filter(([, rate]) => Number.isFinite(rate)).map(([name, rate]) => [name, asFlopRate(rate)]);
  for (const level of levels.filter(isObject))
    if (Number.isFinite(level.bytes_per_second))
      rows.push([`Bandwidth, ${shown(level.level, 30)}`, asByteRate(level.bytes_per_second)]);
  return section('ceilings', 'Ceilings of the machine', null, plainTable(rows));
}

function profileSections(reply, summary) {
  // The sections of a report read the profile that they are about here.
  const operators = operatorsOf(reply);
  profile = {operators, performance_summary: {...reply.record, performance_summary: summary}};
  const parts = [];
  if (summary.step_seconds.length) parts.push(attempt('steps', 'Step times', drawSteps));
  parts.push(attempt('loss', 'Loss', () => lossSection(summary, validationOf(summary))));
  parts.push(operators ? attempt('operators', 'Operators', drawOperators)
    : missing('operators', 'Operators', 'This run was not profiled. With ', code('--profile-operators'),
      ' its operators are kept.'));
  return parts;
}

// What the tensors were for that were alive at the peak.
const memoryUses = [['parameters', 'Parameters', '--blue'], ['packed_weights', 'Packed weights', '--sky'],
  ['gradients', 'Gradients', '--coral'], ['optimizer_state', 'Optimizer state', '--teal'],
  ['intermediates', 'Intermediates', '--yellow'], ['workspace', 'Workspace', '--purple'],
  ['inputs', 'Inputs', '--gray']];

function memorySection(summary) {
  const uses = objectOf(summary.memory_at_peak_bytes);
  const known = memoryUses.map(([key, name, color]) => [`var(${color})`, name, numberOf(uses[key])])
    .filter(([, , bytes]) => bytes > 0);
  const total = d3.sum(known, ([, , bytes]) => bytes);
  if (!(total > 0)) return null;
  return section('memory', 'Memory at the peak', 'Tensors alive at the peak of a step, by their use.',
    element('div', {class: 'stack', role: 'img', 'aria-label': 'Memory at the peak by use'},
      known.map(([color, name, bytes]) => element('span', {title: `${name}: ${asBytes(bytes)}`,
        style: {background: color, flex: `${bytes / total} 1 0`}}))),
    legend(known.map(([color, name, bytes]) => [color, name, asBytes(bytes)])));
}

// The whole page of `ridge report`, in a frame that can do nothing but draw.
function reportSection(row, profiled) {
  if (!Number.isInteger(profiled)) return null;
  if (exported && !(exported.exported.reports || []).includes(profiled)) return null;
  const href = exported ? `profile-${profiled}.html` : `profile?run=${profiled}`;
  return section('report', 'Report of the profile', profiled === row.id
    ? 'The page that ridge report makes of this run’s profile.'
    : 'The page that ridge report makes of a profiled run with the same options, machine and program.',
  element('p', {class: 'controls'}, element('a', {href, target: '_blank', rel: 'noopener'}, 'Open it alone')),
  element('iframe', {class: 'report', src: href, sandbox: 'allow-scripts', loading: 'lazy',
    title: `Report of the profile of run ${profiled}`}));
}

function viewRun(first) {
  const box = element('div', {});
  async function update(params) {
    let reply;
    try {
      reply = await ask('run', {run: params.run || ''});
    } catch (error) {
      box.replaceChildren(element('p', {class: 'fault', role: 'alert'}, shown(error.message, 400)));
      return;
    }
    const {row} = reply, summary = numbersOf(reply.record);
    setTitle(`Run ${row.id}`, [titleOf(row), row.batch_size ? `batch ${row.batch_size}` : '',
      row.seq_len ? `sequence ${row.seq_len}` : '', row.image_size ? `images of ${row.image_size}` : '',
      hardwareOf(row), asMinute(row.created) + ' UTC', row.outcome].filter(Boolean).join(' · '));
    const facts = [['UUID', row.uuid], ['Study', row.study ? element('a',
      {href: hashOf('studies', {study: row.study})}, shown(row.study, 80)) : '']].filter(([, v]) => v !== '');
    box.replaceChildren(...[
      element('p', {class: 'facts'}, tagList(row.tags), ' ', ...facts.flatMap(([name, value]) =>
        [element('span', {class: 'fact'}, `${name} `, value)]),
      element('a', {href: hashOf('trends', {filter: sameFilter(row)}), class: 'fact'},
        exported ? '' : 'Trend of runs like this')),
      runCards(row, summary), ...profileSections(reply, summary),
      attempt('memory', 'Memory at the peak', () => memorySection(summary)),
      reportSection(row, reply.profiled_run), optionsSection(reply),
      machineSection(reply), ceilingsSection(reply.context),
      section('raw', 'Record', 'All that is kept, as JSON.', element('details', {},
        element('summary', {}, 'Show'), element('pre', {},
          shown(JSON.stringify({record: reply.record, context: reply.context}), 200_000)))),
    ].filter(Boolean));
  }
  return {title: `Run ${shown(first.run || '', 40)}`, element: box, update};
}

// The runs with the same columns that decide what is computed.
function sameFilter(row) {
  const quoted = value => `'${String(value).replaceAll("'", "''")}'`;
  return ['workload', 'mode', 'version', 'dtype', 'batch_size', 'seq_len', 'image_size', 'machine']
    .filter(name => row[name] !== null && row[name] !== '').map(name => `${name}=${quoted(row[name])}`)
    .join(' and ');
}
