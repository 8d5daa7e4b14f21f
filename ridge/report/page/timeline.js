// Memory over the recorded steps, stacked by what it is for; who held it at any moment.

const memoryGroups = [
  ['parameters', '--blue', 'parameters'],
  ['optimizer', '--teal', 'optimizer'],
  ['gradients', '--yellow', 'gradients'],
  ['activations', '--coral', 'activations'],
  ['temporaries', '--purple', 'temporaries of backward'],
  ['workspace', '--sky', 'workspace'],
  ['inputs', '--brown', 'inputs'],
  ['unknown', '--gray', 'unknown'],
].map(([key, color, name]) => ({key, color: `var(${color})`, name}));
const groupColor = key => (memoryGroups.find(group => group.key === key) || {color: 'none'}).color;

// The largest allocations alive at a moment; they come sorted by size.
function tensorsAlive(allocations, time, most) {
  const alive = [];
  let count = 0;
  for (let i = 0; i < allocations.bytes.length; ++i) {
    if (allocations.begin_ns[i] > time || allocations.end_ns[i] <= time) continue;
    ++count;
    if (alive.length < most) alive.push({...allocations.tensors[allocations.tensor[i]],
      bytes: allocations.bytes[i]});
  }
  return {alive, count};
}

function drawTimeline() {
  const title = 'Memory', data = profile.memory_timeline, report = profile.memory;
  if (!data || !data.time_ns.length)
    return missing('memory', title, 'This directory has no memory_timeline.json. Profile again with ',
      code('--profile-memory'), ' to get it.');
  const groups = memoryGroups.filter(group => d3.max(data.bytes_by_group[group.key] || [0]) > 0);
  const peak = data.live_bytes.indexOf(d3.max(data.live_bytes));
  const chart = element('div', {class: 'chart', tabindex: '0', role: 'img', 'aria-label':
    `Memory over time, at most ${asBytes(data.live_bytes[peak])}. Left and right move the cursor.`});
  const view = {begin: 0, end: data.duration_ns};
  let redraw = () => {};
  onWidth(chart, width => (redraw = () => drawTimelineChart(chart, width, data, groups, peak, view))());
  const range = element('select', {'aria-label': 'Stretch of time', onchange: event => {
    const step = data.steps[Number(event.target.value)];
    Object.assign(view, step ? {begin: step.begin_ns, end: step.end_ns}
      : {begin: 0, end: data.duration_ns});
    redraw();
  }}, element('option', {value: -1}, `All ${data.steps.length} recorded steps`),
  data.steps.map((s, i) => element('option', {value: i}, `Step ${s.step}`)));
  const atPeak = report ? report.peak.bytes_by_group : {};
  const notes = [];
  if (!data.complete) notes.push('Of so many changes every stretch of time keeps its first, lowest, ' +
    'highest and last. ');
  if (data.allocations.left_out > 0) notes.push(`The ${asCount(data.allocations.left_out)} smallest ` +
    'allocations are not named. ');
  if (data.dropped_records > 0) notes.push(`${asCount(data.dropped_records)} records had no room. `);
  if (report) notes.push(`Figures in the legend are those at the peak. On average ${asBytes(report.average_bytes)} were alive; ` +
    `${asCount(report.allocations)} allocations; ${asBytes(report.peak_reserved_bytes)} reserved from ` +
    `the system (dashed), ${asPercent(report.peak.fragmentation)} of it idle at the peak.`);
  return section('memory', title,
    'Bytes alive, stacked by what they are for. Move over it to see which tensors they are. ' +
    (report ? `The peak of ${asBytes(report.peak_bytes)} is reached ` + (report.peak.step
      ? `in the ${report.peak.phase} phase of step ${report.peak.step}, when ` +
        `${shown(report.peak.allocated, 80)} is allocated.` : 'before the first step.') : ''),
    data.steps.length > 1 ? element('div', {class: 'controls'}, range) : '', chart,
    legend(groups.map(g => [g.color, g.name, atPeak[g.key] === undefined ? '' :
      asBytes(atPeak[g.key])])),
    element('p', {class: 'quiet'}, notes));
}

function drawTimelineChart(container, width, data, groups, peak, view) {
  const height = 340, left = 62, right = 10, top = 26, bottom = 34, low = height - bottom;
  const x = d3.scaleLinear([view.begin, view.end], [left, width - right]);
  const highest = Math.max(d3.max(data.live_bytes), 1);
  const reserved = d3.max(data.reserved_bytes);
  // Far more reserved than used would flatten everything.
  const y = d3.scaleLinear([0, reserved < 1.6 * highest ? Math.max(reserved, highest) : highest],
    [low, top]).nice(5);
  const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height);
  const clip = svg.append('clipPath').attr('id', 'memory-clip').append('rect');
  clip.attr('x', left).attr('y', 0).attr('width', width - left - right).attr('height', low);
  axis(svg, d3.axisLeft(y).ticks(6).tickFormat(asTick(asBytes)).tickSize(left + right - width), left, 0);
  axis(svg, d3.axisBottom(x).ticks(width / 110).tickFormat(t => asTick(asTime)((t - view.begin) * 1e-9))
    .tickSize(0).tickPadding(9), 0, low);

  const from = Math.max(0, d3.bisectRight(data.time_ns, view.begin) - 1);
  const to = d3.bisectRight(data.time_ns, view.end);
  const rows = d3.range(from, to), inside = svg.append('g').attr('clip-path', 'url(#memory-clip)');
  rows.push(to - 1);  // the last level holds to the end
  const time = i => i === rows.length - 1 ? view.end : data.time_ns[rows[i]];
  const stacked = d3.stack().keys(groups.map(g => g.key))
    .value((row, key) => data.bytes_by_group[key][row])(rows);
  const area = d3.area().curve(d3.curveStepAfter).x((d, i) => x(time(i))).y0(d => y(d[0]))
    .y1(d => y(d[1]));
  inside.selectAll('path.group').data(stacked).join('path').attr('class', 'group').attr('d', area)
    .style('fill', layer => groupColor(layer.key)).style('fill-opacity', 0.88);
  const dashed = d3.line().curve(d3.curveStepAfter).x((d, i) => x(time(i)))
    .y(row => y(data.reserved_bytes[row]));
  inside.append('path').attr('class', 'reserved').attr('d', dashed(rows));
  drawStepBounds(svg, data, x, view, {top, low});

  const peakTime = data.time_ns[peak];
  if (peakTime >= view.begin && peakTime <= view.end) {
    const px = x(peakTime), py = y(data.live_bytes[peak]);
    svg.append('circle').attr('class', 'mark').attr('cx', px).attr('cy', py).attr('r', 4.5);
    svg.append('text').attr('class', 'strong halo').attr('y', py - 9)
      .attr('x', Math.min(Math.max(px, left + 60), width - right - 60))
      .attr('text-anchor', 'middle').text(`peak ${asBytes(data.live_bytes[peak])}`);
  }
  listenToTimeline(container, svg.node(), data, groups, x, view, {top, low, left});
  container.replaceChildren(svg.node());
}

function drawStepBounds(svg, data, x, view, {top, low}) {
  const steps = data.steps.filter(s => s.end_ns > view.begin && s.begin_ns < view.end);
  for (const step of steps) {
    const at = x(Math.max(step.begin_ns, view.begin)), wide = x(step.end_ns) - x(step.begin_ns);
    if (step.begin_ns > view.begin)
      svg.append('line').attr('x1', at).attr('x2', at).attr('y1', top - 14).attr('y2', low)
        .style('stroke', 'var(--faint)').style('stroke-dasharray', '2 4');
    if (wide > 44)
      svg.append('text').attr('x', at + 5).attr('y', top - 12).text(`step ${step.step}`);
  }
}

function listenToTimeline(container, svg, data, groups, x, view, {top, low, left}) {
  const line = d3.select(svg).append('line').attr('class', 'cross').attr('y1', top).attr('y2', low)
    .style('display', 'none');
  let cursor = null;  // an index of data.time_ns

  function show(time, clientX, clientY) {
    const i = Math.max(0, d3.bisectRight(data.time_ns, time) - 1);
    cursor = i;
    line.attr('x1', x(time)).attr('x2', x(time)).attr('data-time', time).style('display', null);
    const phase = data.phases.find(p => p.begin_ns <= time && time < p.end_ns);
    const step = data.steps.find(s => s.begin_ns <= time && time < s.end_ns);
    const {alive, count} = tensorsAlive(data.allocations, Math.max(time, data.time_ns[i]), 8);
    const where = [step ? `step ${step.step}` : '', phase ? phase.phase : ''].filter(Boolean);
    showTooltip(clientX, clientY,
      element('h3', {}, `${asBytes(data.live_bytes[i])} alive`),
      element('p', {}, [...where, `at ${asTime((time - view.begin) * 1e-9)}`].join(', ')),
      tooltipRows(groups.filter(g => data.bytes_by_group[g.key][i] > 0)
        .map(g => [g.name, asBytes(data.bytes_by_group[g.key][i]), g.color])),
      element('p', {style: {marginTop: '8px'}}, alive.length
        ? `The largest of ${data.allocations.left_out ? 'at least ' : ''}${asCount(count)} tensors:` : 'No tensor is alive.'),
      tooltipRows(alive.map(t => [`${shown(t.name, 90)} ${t.type}`, asBytes(t.bytes),
        groupColor(t.group)])));
  }
  function hide() {
    line.style('display', 'none');
    hideTooltip();
  }
  svg.addEventListener('pointermove', event => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const time = x.invert(at);
    if (at < left || time > view.end) return hide();
    show(time, event.clientX, event.clientY);
  });
  svg.addEventListener('pointerleave', hide);
  container.onblur = hide;
  container.onkeydown = event => {
    if (event.key === 'Escape') return hide();
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    const first = d3.bisectLeft(data.time_ns, view.begin);
    const last = d3.bisectRight(data.time_ns, view.end) - 1;
    const move = (event.key === 'ArrowLeft' ? -1 : 1) * (event.shiftKey ? 25 : 1);
    const next = cursor === null ? first : Math.max(first, Math.min(last, cursor + move));
    const box = svg.getBoundingClientRect();
    show(data.time_ns[next], box.left + x(data.time_ns[next]), box.top + 40);
    cursor = next;
  };
}
