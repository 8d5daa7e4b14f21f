// What a metric was over time, in series of equal runs, and where its level changed.

function trendChange(change, metric) {
  return [element('h3', {}, `${change.change > 0 ? '+' : ''}${(100 * change.change).toFixed(1)} % on ${dateOf(change.created)}`),
    tooltipRows([['before', columnText(metric, change.mean_before)], ['after', columnText(metric, change.mean_after)],
      ['last commit before', asCommit(change.commit_before) || '–'], ['first commit after', asCommit(change.commit) || '–'],
      ['p', change.p_value.toExponential(1)]])];
}

// Level lines between the changes, beside what was measured.
function trendSeries(series, commits, color) {
  const {run, created, commit, value} = series.points;
  return {name: series.label, color, kind: run.length > 400 ? 'line' : 'both',
    points: run.map((id, i) => ({x: new Date(1000 * created[i]), y: value[i], run: id,
      commit: commits[commit[i]]}))};
}

function changeTable(reply) {
  const rows = reply.series.flatMap((series, i) => series.changes.map(change => ({series, i, change})))
    .sort((a, b) => b.change.created - a.change.created);
  if (!rows.length) return element('p', {class: 'missing'}, 'No series changed its level.');
  const link = (id, commit) => [runLink(id), commit ? [' ', code(asCommit(commit))] : ''];
  return element('div', {class: 'scroll'}, element('table', {class: 'left'},
    element('thead', {}, element('tr', {}, ['Change', 'When (UTC)', 'Last before', 'First after', 'Series']
      .map(name => element('th', {scope: 'col'}, name)))),
    element('tbody', {}, rows.map(({series, i, change}) => element('tr', {},
      element('td', {}, `${change.change > 0 ? '+' : ''}${(100 * change.change).toFixed(1)} %`),
      element('td', {}, dateOf(change.created)),
      element('td', {}, link(change.run_before, change.commit_before)),
      element('td', {}, link(change.run, change.commit)),
      element('td', {}, swatch(colorOf(i)), shown(series.label, 120)))))));
}

function trendSays(reply) {
  const parts = [`${asCount(reply.runs)} ${reply.runs === 1 ? 'run' : 'runs'} in ${asCount(reply.groups)} series of equal configuration and machine.`];
  if (reply.series.length < reply.groups) parts.push(`The ${reply.series.length} longest are drawn; a filter shows others.`);
  const measured = d3.sum(reply.series, s => s.runs);
  if (reply.shown < measured)
    parts.push(`Of their ${asCount(measured)} points ${asCount(reply.shown)} are drawn: the least and the largest of each span of time.`);
  const searched = reply.series.filter(s => s.searched < s.runs);
  if (searched.length) parts.push(`Changes were sought in the newest ${asCount(searched[0].searched)} runs of a series.`);
  return parts.join(' ');
}

function viewTrends(first) {
  let params = first;
  const chart = makeChart('Metric over time', 360), says = element('p', {class: 'says'});
  const fault = element('p', {class: 'fault', role: 'alert'}), below = element('div', {});
  const metric = element('select', {'aria-label': 'Metric', onchange: () => change({metric: metric.value})});
  const change = next => goTo('trends', {...params, ...next});
  const controls = exported ? [] : filterControls(params, 'Filter: workload=tiny_llama and version=v4', change)
    .filter(input => input.id === 'filter');

  async function update(next) {
    params = next;
    const name = next.metric || 'median_seconds';
    const columns = (await ask('columns')).columns.filter(c => c.measured);
    metric.replaceChildren(...columns.map(c => element('option', {value: c.name}, columnName(c.name))));
    metric.value = name;
    for (const input of controls) if (document.activeElement !== input) input.value = next.filter || '';
    let reply;
    try {
      reply = await ask('trend', {metric: name, filter: next.filter || ''});
      fault.textContent = '';
    } catch (error) {
      fault.textContent = shown(error.message, 400);
      return;
    }
    if (params !== next) return;
    says.textContent = trendSays(reply);
    const marks = reply.series.flatMap((series, i) => series.changes.map(c => ({x: new Date(1000 * c.created),
      color: colorOf(i), tip: () => trendChange(c, name)})));
    chart.tell({series: reply.series.map((s, i) => trendSeries(s, reply.commits, colorOf(i))), marks,
      x: {time: true, label: 'UTC', format: d => d}, y: {format: v => columnText(name, v), zero: true},
      tip: (p, s) => [element('h3', {}, columnText(name, p.y)), tooltipRows([['run', String(p.run)],
        ['when', dateOf(p.x / 1000)], ['commit', asCommit(p.commit) || '–']]),
      element('p', {}, shown(s.name, 120))],
      pick: p => goTo('run', {run: p.run})});
    below.replaceChildren(
      legend(reply.series.map((s, i) => [colorOf(i), shown(s.label, 160), asCount(s.runs)])),
      element('h3', {class: 'apart'}, 'Changes of level'), changeTable(reply));
  }
  const view = section('trend', null, null, element('div', {class: 'controls'},
    element('label', {}, 'Metric ', metric), controls), fault, says, chart.element, below);
  return {title: 'Trends', element: view, update};
}
