// Two to four runs side by side.

const ratioText = ratio => ratio === null ? '' : `${ratio.toFixed(ratio < 10 ? 3 : 1)}×`;

// A table with a column for each run.
function sideBySide(runs, firstHead, rows) {
  return element('div', {class: 'scroll'}, element('table', {class: 'beside'},
    element('thead', {}, element('tr', {}, element('th', {scope: 'col'}, firstHead),
      runs.map((run, i) => element('th', {scope: 'col'}, swatch(colorOf(i)), runLink(run.row.id))))),
    element('tbody', {}, rows.map(([name, cells]) => element('tr', {},
      element('th', {scope: 'row'}, shown(name, 80)), cells.map(cell => element('td', {}, cell)))))));
}

function compareHeads(runs) {
  return sideBySide(runs, 'Run', [
    ['Setting', runs.map(r => titleOf(r.row))], ['Hardware', runs.map(r => hardwareOf(r.row))],
    ['Created', runs.map(r => asMinute(r.row.created))],
    ['Commit', runs.map(r => asCommit(r.row.commit))],
    ['Tags', runs.map(r => r.row.tags.map(t => shown(t, 40)).join(', '))]]);
}

function compareDistribution(runs) {
  const chart = makeChart('Distribution of step times', 280);
  chart.tell({series: runs.map((run, i) => ({name: `run ${run.row.id}`, color: colorOf(i),
    points: run.step_quantiles.map((seconds, percent) => ({x: percent, y: seconds}))})),
  x: {label: 'percent of steps that took no longer', format: v => `${v}`}, y: {format: asTime},
  tip: (p, s) => [element('h3', {}, s.name),
    element('p', {}, `${p.x} % of steps took at most ${asTime(p.y)}`)]});
  return chart.element;
}

function compareLosses(runs) {
  const chart = makeChart('Losses', 280);
  chart.tell({series: runs.map((run, i) => ({name: `run ${run.row.id}`, color: colorOf(i),
    points: run.losses.value.map((loss, s) => ({x: run.losses.step[s], y: loss}))})),
  x: {label: 'step', format: asCount}, y: {format: asLossTick},
  tip: (p, s) => [element('h3', {}, `Step ${asCount(p.x)}`), tooltipRows([[s.name, p.y.toFixed(5), s.color]])]});
  return chart.element;
}

function viewCompare(first) {
  const box = element('div', {});
  async function update(params) {
    let reply;
    try {
      reply = await ask('compare', {runs: params.runs || ''});
    } catch (error) {
      box.replaceChildren(element('p', {class: 'fault', role: 'alert'}, shown(error.message, 400)),
        element('p', {}, 'Choose two to four runs in the table of ', element('a', {href: '#runs'}, 'runs'), '.'));
      return;
    }
    const {runs} = reply, key = () => legend(runs.map((r, i) => [colorOf(i), `run ${r.row.id}`]));
    setTitle(`Runs ${runs.map(r => r.row.id).join(', ')}`, 'Ratios are to the first.');
    const withRatio = (name, m) => m.values.map((value, i) => value === null ? '–'
      : [columnText(name, value), i && m.ratios[i] !== null ? element('span', {class: 'ratio'}, ` ${ratioText(m.ratios[i])}`) : '']);
    box.replaceChildren(...[
      section('what', 'Runs', null, compareHeads(runs)),
      section('metrics', 'Metrics', null, sideBySide(runs, 'Metric',
        reply.metrics.map(m => [columnName(m.name), withRatio(m.name, m)]))),
      section('differences', 'Options that differ', null, reply.options.length
        ? sideBySide(runs, 'Option', reply.options.map(o => [o.name, o.values.map(v => v === null ? '–' : shown(jsonText(v), 120))]))
        : element('p', {class: 'missing'}, 'None: the runs have the same options.')),
      runs.some(r => r.step_quantiles.length) ? section('distribution', 'Step times',
        'How long a share of the steps took at most, those that warm up left out.',
        compareDistribution(runs), key()) : null,
      runs.some(r => r.losses.value.length) ? section('losses', 'Losses', null, compareLosses(runs), key()) : null,
      reply.operators.length ? section('operators', 'Operators', 'Time a step, by name.', sideBySide(runs, 'Operator',
        reply.operators.map(o => [o.name, o.seconds.map((s, i) => s === null ? '–'
          : [asTime(s), i && o.seconds[0] ? element('span', {class: 'ratio'}, ` ${ratioText(s / o.seconds[0])}`) : ''])])))
        : missing('operators', 'Operators', 'None of these runs was profiled.'),
    ].filter(Boolean));
  }
  return {title: `Runs ${shown(first.runs || '', 40)}`, element: box, update};
}
