// The time of every step, by phase.

function stepRows() {
  const run = profile.performance_summary.performance_summary;
  return run.step_seconds.map((seconds, i) => {
    const row = {step: printedStep(run.first_step + i), seconds,
      forward: run.forward_seconds[i] || 0, backward: run.backward_seconds[i] || 0,
      optimizer: run.optimizer_seconds[i] || 0};
    row.other = Math.max(0, seconds - row.forward - row.backward - row.optimizer);
    return row;
  });
}

function drawSteps() {
  const title = 'Step times';
  if (!profile.performance_summary || !profile.performance_summary.performance_summary.step_seconds.length)
    return missing('steps', title, 'This directory has no performance_summary.json. A run writes it ' +
      'when it ends; profile again to get it.');
  const rows = stepRows();
  const run = profile.performance_summary.performance_summary;
  const {first_step: first, last_step: last} = profile.operators || {};
  const chart = element('div', {class: 'chart'});
  const colors = {...phaseColors, other: 'var(--gray)'};
  const entries = Object.entries(colors).map(([name, color]) =>
    [color, name === 'other' ? 'data and the rest' : name]);
  onWidth(chart, width => drawStepChart(chart, width, rows, colors, {median: run.median_batch_time,
    first, last}));
  return section('steps', title,
    `How long each of the ${asCount(rows.length)} steps took. The dashed line is the median of ` +
    `those after warm-up, ${asTime(run.median_batch_time)}` +
    (profile.operators ? '; the shaded steps were recorded.' : '.'),
    chart, legend(entries));
}

function drawStepChart(container, width, rows, colors, {median, first, last}) {
  const height = 230, left = 56, right = 8, top = 24, bottom = 30;
  const highest = d3.max(rows, r => r.seconds);
  // One slow first step must not flatten all others.
  const limit = Math.min(highest, 2.2 * d3.quantile(rows.map(r => r.seconds).sort(d3.ascending), 0.9))
    || 1;
  const x = d3.scaleLinear([rows[0].step - 0.5, rows[rows.length - 1].step + 0.5],
    [left, width - right]);
  const y = d3.scaleLinear([0, limit * 1.06], [height - bottom, top]);
  const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height)
    .attr('role', 'img').attr('aria-label', `Step times, median ${asTime(median)}`);
  const band = [Math.max(first - 0.5, x.domain()[0]), Math.min(last + 0.5, x.domain()[1])].map(x);
  if (band[1] > band[0]) {
    svg.append('rect').attr('x', band[0]).attr('y', top).attr('width', band[1] - band[0])
      .attr('height', height - top - bottom).style('fill', 'var(--accent-soft)');
    svg.append('text').attr('x', (band[0] + band[1]) / 2).attr('y', top - 8)
      .attr('text-anchor', 'middle').text('recorded');
  }
  axis(svg, d3.axisLeft(y).ticks(5).tickFormat(asTick(asTime)).tickSize(left + right - width), left, 0);
  const steps = axis(svg, d3.axisBottom(x).ticks(Math.min(width / 60, rows.length))
    .tickFormat(v => Number.isInteger(v) ? asCount(v) : '').tickSize(0).tickPadding(8),
  0, height - bottom);
  steps.append('text').attr('x', left - 8).attr('y', 17).attr('text-anchor', 'end').text('step');

  const keys = Object.keys(colors), stacked = d3.stack().keys(keys)(rows);
  const area = d3.area().curve(d3.curveStep).x(d => x(d.data.step))
    .y0(d => y(Math.min(d[0], limit * 1.06))).y1(d => y(Math.min(d[1], limit * 1.06)));
  const bar = Math.max(1, Math.min(46, (x(1) - x(0)) * 0.72));
  for (const layer of stacked) {
    if (rows.length > 150) {
      svg.append('path').attr('d', area(layer)).style('fill', colors[layer.key]);
      continue;
    }
    svg.append('g').style('fill', colors[layer.key]).selectAll('rect').data(layer).join('rect')
      .attr('x', d => x(d.data.step) - bar / 2).attr('width', bar)
      .attr('y', d => y(Math.min(d[1], limit * 1.06)))
      .attr('height', d => y(Math.min(d[0], limit * 1.06)) - y(Math.min(d[1], limit * 1.06)));
  }
  for (const row of rows.filter(r => r.seconds > limit * 1.06).slice(0, 12))
    svg.append('text').attr('class', 'halo').attr('x', Math.max(x(row.step) - bar / 2, left))
      .attr('y', top - 8).text(`↑ ${asTime(row.seconds)}`);
  svg.append('line').attr('class', 'median').attr('x1', left).attr('x2', width - right)
    .attr('y1', y(median)).attr('y2', y(median));

  const node = svg.node();
  node.addEventListener('pointerleave', hideTooltip);
  node.addEventListener('pointermove', event => {
    const step = Math.round(x.invert(event.clientX - node.getBoundingClientRect().left));
    const row = rows[step - rows[0].step];
    if (!row) return hideTooltip();
    showTooltip(event.clientX, event.clientY, element('h3', {}, `Step ${step}`),
      tooltipRows([...keys.map(k => [k === 'other' ? 'data and the rest' : k, asTime(row[k]),
        colors[k]]), ['all', asTime(row.seconds)]]));
  });
  container.replaceChildren(node);
}
