// Headline figures and where a step's time goes.

function subtitle() {
  const run = profile.performance_summary, steps = profile.operators;
  const recorded = steps.first_step === steps.last_step ? `step ${steps.first_step}`
    : `steps ${steps.first_step} to ${steps.last_step}`;
  if (!run) return `A profile of ${recorded}`;
  const params = run.training_params;
  return [
    `${shown(run.title, 60)} ${shown(run.version, 60)}, ` +
      `${asCount(run.config.total_parameters)} parameters`,
    `${params.mode}, batch ${params.batch_size}` +
      (run.tokens_per_sample ? ` × ${run.tokens_per_sample} tokens` : ` ${shown(run.sample, 30)}s`) +
      `, ${shown(params.dtype, 30)}`,
    `${recorded} recorded`,
    `${shown(run.system_info.cpu || 'unknown CPU', 80)}, ${run.system_info.threads} ` +
      (run.system_info.threads === 1 ? 'thread' : 'threads'),
    run.timestamp.replace('T', ' ').replace('Z', ' UTC'),
  ].join(' · ');
}

function madeBy() {
  const run = profile.performance_summary;
  const version = run && run.system_info.ridge_version;
  return `Made by ridge report${version ? ` from a run of ridge ${version}` : ''}. ` +
    'Prefixes are decimal: 1 MB is 1,000,000 bytes.';
}

function card(label, [figure, unit], note) {
  return element('div', {class: 'card'},
    element('div', {class: 'label'}, label),
    element('div', {class: 'value'}, figure, element('span', {class: 'unit'}, unit)),
    element('div', {class: 'note'}, note || '\u00a0'));
}

function cards() {
  const run = profile.performance_summary, why = profile.bottlenecks, memory = profile.memory;
  const table = profile.operators;
  const list = [];
  if (run) {
    const s = run.performance_summary;
    list.push(card('Step time, median', withPrefix(s.median_batch_time, 's'),
      `± ${asTime(s.std_batch_time)} standard deviation`));
    const steps = s.step_seconds.length - s.steps_left_out_of_averages;
    const tokens = run.tokens_per_sample
      ? `${joined(withPrefix(s.avg_tokens_per_second, 'tokens/s'))}, ` : '';
    list.push(card('Throughput', withPrefix(s.samples_per_second, 'samples/s'),
      tokens + (s.outcome === 'completed' ? `over ${steps} steps` : `run was ${s.outcome}`)));
  } else {
    list.push(card('Step time, mean', withPrefix(table.step_time_ns / table.steps * 1e-9, 's'),
      `over ${table.steps} recorded steps`));
  }
  if (why)
    list.push(card('Achieved', withPrefix(why.flops_per_second, 'FLOP/s'),
      `${asPercent(why.mfu)} of the measured peak (MFU)`));
  else if (run && run.performance_summary.achieved_gflops)
    list.push(card('Achieved', withPrefix(run.performance_summary.achieved_gflops * 1e9, 'FLOP/s'),
      'FLOPs of a step over its time'));
  if (memory)
    list.push(card('Peak memory', withPrefix(memory.peak_bytes, 'B'),
      memory.peak.step ? `in ${memory.peak.phase}, step ${memory.peak.step}` : 'before step 1'));
  if (run && run.performance_summary.final_loss !== null)
    list.push(card('Final loss', [run.performance_summary.final_loss.toFixed(4), 'nats'],
      `at step ${printedStep(run.performance_summary.last_step)}`));
  return list;
}

// Parts of a step with their shares of its time, largest first.
function partsOfStep() {
  const table = profile.operators, total = table.step_time_ns || 1;
  let parts;
  if (profile.bottlenecks) {
    parts = (profile.bottlenecks.parts || []).map(p => [p.name, p.share]);
  } else if (profile.nodes) {
    const phases = new Map();
    for (const {phase, time_ns: ns} of profile.nodes.nodes)
      phases.set(phase, (phases.get(phase) || 0) + ns / total);
    parts = [...phases];
  } else {
    parts = [['operators', d3.sum(table.rows, row => row.total.time_ns) / total]];
  }
  parts.sort((a, b) => b[1] - a[1]);
  return [...parts, ['between operators', table.between_operators_ns / total],
    ['outside the phases', table.outside_phases_ns / total]];
}

function drawSummary() {
  const colors = ['--blue', '--coral', '--teal', '--yellow', '--purple', '--pink', '--green',
    '--brown'].map(name => `var(${name})`);
  const rest = {'between operators': 'var(--gray)', 'outside the phases': 'var(--line)'};
  // Phases look as they do elsewhere; parts of the model are of another kind.
  const known = profile.bottlenecks ? rest : {...phaseColors, ...rest};
  const parts = partsOfStep().map(([name, share], i) =>
    ({name: shown(name), share, color: known[name] || colors[i % colors.length]}));
  const bar = element('div', {class: 'stack', role: 'img',
    'aria-label': parts.map(p => `${p.name} ${asPercent(p.share)}`).join(', ')},
  parts.map(p => element('span', {style: {flexGrow: Math.max(p.share, 0), background: p.color},
    title: `${p.name} ${asPercent(p.share)}`})));
  return element('section', {id: 'summary', class: 'bare', 'aria-label': 'Summary'},
    element('div', {class: 'cards'}, cards()),
    element('section', {},
      element('h2', {}, 'Where a step’s time goes'),
      element('p', {class: 'says'}, 'Shares of the recorded steps’ time. All of it is here: what ' +
        'no operator accounts for stands at the end.'),
      bar, legend(parts.map(p => [p.color, p.name, asPercent(p.share)]))));
}
