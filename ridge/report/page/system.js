// What the machine did beside the steps: what stands out, and a small plot for each counter.

const systemUnits = {
  '%': value => `${value.toFixed(1)}\u00a0%`,
  'cores': value => `${value.toFixed(2)}\u00a0cores`,
  'MHz': value => `${asCount(value)}\u00a0MHz`,
  'B': asBytes,
  'B/s': asByteRate,
  '1/s': value => `${value < 10 ? value.toFixed(1) : asCount(value)}\u00a0/s`,
  'W': value => `${value.toFixed(1)}\u00a0W`,
  'C': value => `${value.toFixed(0)}\u00a0°C`,
};
const asSystem = (unit, value) => value === null ? '–'
  : (systemUnits[unit] || (v => String(Number(v.toPrecision(4)))))(value);

const systemGroups = [
  ['cores', 'Cores', '--blue'],
  ['frequency', 'Frequency', '--purple'],
  ['memory', 'Memory', '--teal'],
  ['faults', 'Page faults', '--brown'],
  ['disk', 'Disk', '--coral'],
  ['network', 'Network', '--sky'],
  ['power', 'Power and card', '--yellow'],
];

function drawSystem() {
  const data = profile.system, title = 'System';
  if (!data) return null;  // it was not asked for
  const found = data.findings.map((finding, i) => element('li', {},
    element('span', {class: 'rank'}, String(i + 1)),
    element('div', {}, element('h3', {}, shown(finding.what, 1000)),
      element('p', {}, shown(finding.remedy, 1000)))));
  const quiet = data.series.filter(series => series.max === 0);
  if (!data.series.length) return missing('system', title, 'Nothing could be read of the machine.');
  const parts = [found.length ? element('ol', {class: 'findings'}, found)
    : element('p', {class: 'quiet'}, 'No other load, no swapping, no waiting for disks: nothing ' +
      'stands out.')];
  const cores = data.series.filter(series => series.core !== undefined && series.group === 'cores');
  if (cores.length) parts.push(coreMap(data, cores));
  for (const [group, name, color] of systemGroups) {
    const series = data.series.filter(one => one.group === group && one.max > 0 &&
      !(group === 'cores' && one.core !== undefined));
    if (!series.length) continue;
    parts.push(element('h3', {class: 'apart'}, name), element('div', {class: 'small-plots'},
      fewest(series).map(one => smallPlot(data, one, `var(${color})`))));
  }
  const notes = [];
  if (quiet.length) notes.push(`0 all the time: ${quiet.map(one => shown(one.name, 60)).join('; ')}. `);
  if (data.missing.length) notes.push(`Not known here: ${data.missing.map(m => shown(m, 300)).join(' ')}`);
  return section('system', title,
    `What the machine did beside ${data.steps.length ? `${asCount(data.steps.length)} steps` : 'the run'}: ` +
    `${asCount(data.samples)} samples in ${asTime(data.duration_ns * 1e-9)}. Taking them took ` +
    `${asPercent(data.sampler_core_share)} of a core. Dotted lines are begins of steps, shaded steps ` +
    'were recorded.',
    parts, notes.length ? element('p', {class: 'quiet'}, notes) : '');
}

// A few of many cores' frequencies say it.
function fewest(series) {
  const most = 8, of = series.filter(one => one.core !== undefined);
  if (of.length <= most) return series;
  const sorted = [...of].sort((a, b) => a.mean - b.mean);
  const kept = new Set([...sorted.slice(0, most / 2), ...sorted.slice(-most / 2)]);
  return series.filter(one => one.core === undefined || kept.has(one));
}

// The plot's width in pixels for its time, and marks of the steps that it can show apart.
function systemScale(data, left, width) {
  return d3.scaleLinear([0, data.bin_ns * data.series[0].values.length], [left, width]);
}
function markSteps(svg, data, x, top, low) {
  const {first_step: first, last_step: last} = profile.operators || {};
  const recorded = data.steps.filter(s => s.step >= first && s.step <= last);
  if (recorded.length)
    svg.append('rect').attr('x', x(recorded[0].begin_ns)).attr('y', top).attr('height', low - top)
      .attr('width', x(recorded[recorded.length - 1].end_ns) - x(recorded[0].begin_ns))
      .style('fill', 'var(--accent-soft)');
  if (data.steps.length < 2 || x(data.steps[1].begin_ns) - x(data.steps[0].begin_ns) < 4) return;
  for (const step of data.steps)
    svg.append('line').attr('x1', x(step.begin_ns)).attr('x2', x(step.begin_ns)).attr('y1', top)
      .attr('y2', low).style('stroke', 'var(--faint)').style('stroke-dasharray', '1 3');
}
function stepAt(data, time) {
  const step = data.steps.find(s => s.begin_ns <= time && time < s.end_ns);
  return step ? `step ${step.step}` : `at ${asTime(time * 1e-9)}`;
}

function listenToSystem(node, data, x, rows) {
  node.addEventListener('pointerleave', hideTooltip);
  node.addEventListener('pointermove', event => {
    const box = node.getBoundingClientRect(), time = x.invert(event.clientX - box.left);
    const bin = Math.floor(time / data.bin_ns);
    if (bin < 0 || bin >= data.series[0].values.length) return hideTooltip();
    const found = rows(bin, event.clientY - box.top);
    if (!found) return hideTooltip();
    showTooltip(event.clientX, event.clientY, element('h3', {}, found.name),
      element('p', {}, `${stepAt(data, (bin + 0.5) * data.bin_ns)}: ${found.text}`));
  });
}

// A row for each core, the darker the busier.
function coreMap(data, cores) {
  const chart = element('div', {class: 'chart'});
  onWidth(chart, width => {
    const left = 56, right = 4, row = Math.max(3, Math.min(18, 260 / cores.length));
    const height = row * cores.length + 26;
    const x = systemScale(data, left, width - right);
    const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height)
      .attr('role', 'img').attr('aria-label', `Use of ${cores.length} cores over time`);
    cores.forEach((core, i) => {
      svg.append('rect').attr('x', left).attr('y', i * row).attr('height', row - (row > 6 ? 1 : 0))
        .attr('width', x.range()[1] - left).style('fill', 'var(--stripe)');
      const bars = svg.append('g').style('fill', 'var(--blue)');
      core.values.forEach((value, bin) => {
        if (!value) return;
        bars.append('rect').attr('x', x(bin * data.bin_ns)).attr('y', i * row)
          .attr('width', Math.max(0.5, x(data.bin_ns) - x(0) + 0.3))
          .attr('height', row - (row > 6 ? 1 : 0)).style('fill-opacity', value / 100);
      });
      if (row >= 11 || i % Math.ceil(11 / row) === 0)
        svg.append('text').attr('x', left - 8).attr('y', (i + 0.5) * row).attr('dy', '0.35em')
          .attr('text-anchor', 'end').text(`core ${core.core}`);
    });
    const low = row * cores.length;
    markSteps(svg, {...data, steps: data.steps}, x, low, low + 6);
    axis(svg, d3.axisBottom(x).ticks(width / 110).tickFormat(t => asTick(asTime)(t * 1e-9))
      .tickSize(0).tickPadding(9), 0, low);
    listenToSystem(svg.node(), data, x, (bin, y) => {
      const core = cores[Math.floor(y / row)];
      return core && {name: shown(core.name, 60), text: asSystem('%', core.values[bin])};
    });
    chart.replaceChildren(svg.node());
  });
  return [element('h3', {class: 'apart'}, 'Use of each core'), chart];
}

function smallPlot(data, series, color) {
  const chart = element('div', {class: 'chart'});
  onWidth(chart, width => {
    const height = 74, top = 4, low = height - 4;
    const x = systemScale(data, 0, width);
    const highest = d3.max(series.values.filter(v => v !== null)) || 1;
    const ceiling = series.unit === '%' && highest > 50 ? Math.max(100, highest) : highest;
    const y = d3.scaleLinear([0, ceiling], [low, top]);
    const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height)
      .attr('role', 'img').attr('aria-label', `${series.name}: mean ` +
        `${asSystem(series.unit, series.mean)}, most ${asSystem(series.unit, series.max)}`);
    markSteps(svg, data, x, top, low);
    // What was not read in a stretch of time is as it was before.
    let before = null;
    const values = series.values.map(v => before = v === null ? before : v);
    values.push(before);
    const area = d3.area().curve(d3.curveStepAfter).defined(v => v !== null)
      .x((v, bin) => x(bin * data.bin_ns)).y0(low).y1(v => y(v));
    svg.append('path').attr('d', area(values)).style('fill', color).style('fill-opacity', 0.25);
    svg.append('path').attr('d', area.lineY1()(values)).style('fill', 'none').style('stroke', color)
      .style('stroke-width', 1.3);
    svg.append('line').attr('x1', 0).attr('x2', width).attr('y1', low).attr('y2', low)
      .style('stroke', 'var(--line)');
    listenToSystem(svg.node(), data, x, bin =>
      ({name: shown(series.name, 80), text: asSystem(series.unit, values[bin])}));
    chart.replaceChildren(svg.node());
  });
  return element('figure', {},
    element('figcaption', {}, element('b', {}, shown(series.name, 80)),
      element('span', {}, `mean ${asSystem(series.unit, series.mean)}, most ` +
        `${asSystem(series.unit, series.max)} (${stepAt(data, series.max_at_ns)})`)), chart);
}
