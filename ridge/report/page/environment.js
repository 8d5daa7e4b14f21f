// Where and how the run took place.

function drawEnvironment() {
  const run = profile.performance_summary, entries = [['Profile', profile.directory || '']];
  if (run) {
    const system = run.system_info;
    entries.push(['Workload', run.description], ['Date', run.timestamp], ['Host', system.host], ['CPU', system.cpu],
      ['Threads', system.threads], ['Device', system.device], ['System', system.os],
      ['Memory', system.memory_bytes > 0 ? asBytes(system.memory_bytes) : ''],
      ['Compiler', system.compiler], ['Ridge', system.ridge_version],
      ['Schedule', run.version]);
  } else {
    entries.push(['Device', profile.operators.device || ''],
      ['Threads', profile.operators.threads || '']);
  }
  const known = entries.filter(([, value]) => value !== undefined && value !== '');
  const parts = [plainTable(known)];
  if (!run) parts.push(element('p', {class: 'quiet'}, 'Host, compiler and date are in ' +
    'performance_summary.json, which this directory does not have.'));
  if (profile.config) {
    const command = profile.config.mode === 'inference' ? 'bench' : 'train';
    if (profile.directory)
      parts.push(element('p', {class: 'quiet'}, 'To run it again: ',
        code(`ridge ${command} --config ${shown(profile.directory, 300)}/config.json`)));
    parts.push(element('details', {}, element('summary', {}, 'All options of the run'),
      plainTable(Object.entries(profile.config).map(([k, v]) =>
        [k, typeof v === 'string' ? v : JSON.stringify(v)]))));
  }
  return section('environment', 'Environment', 'The machine, the program and the options of the run.',
    parts);
}
