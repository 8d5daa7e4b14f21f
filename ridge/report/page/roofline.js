// Operators under the machine's ceilings, on logarithmic axes.

function drawRoofline() {
  const title = 'Roofline', roof = profile.roof;
  if (!roof)
    return missing('roofline', title, 'The ceilings of the machine are not known. Measure them once ' +
      'on the machine of the profile with ', code('ridge roofline'), ', then draw this page again.');
  const chart = element('div', {class: 'chart'}), off = element('p', {class: 'quiet'});
  let grouping = 'operator', redraw = () => {};
  onWidth(chart, width => {
    redraw = () => {
      const rows = operatorRows(grouping);
      drawRooflineChart(chart, width, rows.filter(row => row.intensity > 0 && row.seconds > 0), roof);
      const none = rows.filter(row => !(row.intensity > 0));
      off.textContent = none.length === 0 ? '' : 'Without FLOPs, and so without a place here: ' +
        none.slice(0, 12).map(row => `${shown(row.name, 60)} (${asPercent(row.share)})`).join(', ') +
        (none.length > 12 ? ` and ${none.length - 12} others` : '') + '.';
    };
    redraw();
  });
  const notes = ((profile.bottlenecks && profile.bottlenecks.notes) || []).map(note => shown(note, 400));
  return section('roofline', title,
    'How fast each operator computes over how much it computes per byte. A point as high as a line ' +
    'is as fast as that ceiling allows; below the slopes memory holds it back, below the flat lines ' +
    `arithmetic does. The area of a point is its share of the time. Ceilings of ${ownerOf(roof)}.`,
    profile.nodes ? element('div', {class: 'controls'}, choice('Points',
      [['operator', 'Operators'], ['shape', 'Shapes'], ['module', 'Modules']], grouping, value => {
        grouping = value;
        redraw();
      })) : '',
    chart, element('p', {class: 'quiet'}, 'Ceilings: ', roof.levels.map(level =>
      `${shown(level.level, 30)} ${asByteRate(level.bytes_per_second)}`).join(', '),
    peaksOf(roof).map(peak => `, ${peak.name} ${asFlopRate(peak.rate)}`), '.'),
    off, notes.map(note => element('p', {class: 'quiet'}, note)));
}

function ownerOf(roof) {
  const threads = `${roof.threads} ${roof.threads === 1 ? 'thread' : 'threads'}`;
  return roof.device !== 'cpu' ? shown(roof.hardware || 'the GPU', 60) : threads;
}

// What it computes in, as name and rate: all members that end so, but for the vendor's.
function peaksOf(roof) {
  const end = '_flops_per_second';
  return Object.keys(roof).filter(key => key.endsWith(end) && key !== 'vendor' + end &&
    roof[key] > 0).map(key => ({name: shown(key.slice(0, -end.length), 12), rate: roof[key]}));
}

function rooflineScales(rows, roof, box) {
  const peak = Math.max(...peaksOf(roof).map(p => p.rate), roof.vendor_flops_per_second || 0);
  const memory = roof.levels[roof.levels.length - 1].bytes_per_second;
  const xs = [...rows.map(r => r.intensity), 0.1, 4 * peak / memory];
  const ys = [...rows.map(r => r.flopRate), peak / 100, peak * 1.3];
  return {peak,
    x: d3.scaleLog([d3.min(xs) / 1.5, d3.max(xs) * 1.5], [box.left, box.right]),
    y: d3.scaleLog([d3.min(ys) / 1.6, d3.max(ys) * 1.2], [box.bottom, box.top])};
}

function drawRooflineChart(container, width, rows, roof) {
  const height = Math.round(Math.max(320, Math.min(480, width * 0.5)));
  const box = {left: 82, right: width - 12, top: 14, bottom: height - 44};
  const {x, y, peak} = rooflineScales(rows, roof, box);
  const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height)
    .attr('role', 'group').attr('aria-label', 'Roofline');
  svg.append('clipPath').attr('id', 'roof-clip').append('rect').attr('x', box.left).attr('y', box.top)
    .attr('width', box.right - box.left).attr('height', box.bottom - box.top);
  const powers = scale => d3.range(Math.ceil(Math.log10(scale.domain()[0])),
    Math.floor(Math.log10(scale.domain()[1])) + 1).map(p => 10 ** p);
  axis(svg, d3.axisLeft(y).tickValues(powers(y)).tickFormat(asTick(asFlopRate))
    .tickSize(box.left - box.right), box.left, 0);
  axis(svg, d3.axisBottom(x).tickValues(powers(x)).tickFormat(d3.format('~g'))
    .tickSize(box.top - box.bottom).tickPadding(8), 0, box.bottom);
  svg.append('text').attr('x', box.right).attr('y', height - 6).attr('text-anchor', 'end')
    .text('FLOP per byte');
  drawCeilings(svg, roof, x, y, box, peak);
  drawRooflinePoints(svg, rows, roof, x, y);
  container.replaceChildren(svg.node());
}

function drawCeilings(svg, roof, x, y, box, peak) {
  const lines = svg.append('g').attr('clip-path', 'url(#roof-clip)');
  const ends = x.domain()[1], fastest = roof.levels[0].bytes_per_second;
  const flat = (rate, name, kind) => {
    lines.append('line').attr('class', `ceiling ${kind}`).attr('y1', y(rate)).attr('y2', y(rate))
      .attr('x1', x(Math.max(rate / fastest, x.domain()[0]))).attr('x2', x(ends));
    svg.append('text').attr('class', 'halo').attr('x', box.right - 4).attr('y', y(rate) - 6)
      .attr('text-anchor', 'end').text(`${name} ${asFlopRate(rate)}`);
  };
  for (const {name, rate} of peaksOf(roof))
    if (name === 'f32' || rate > 1.02 * roof.f32_flops_per_second) flat(rate, `${name} peak`, 'main');
  if (roof.vendor_flops_per_second) flat(roof.vendor_flops_per_second, 'vendor’s peak', 'vendor');
  const slope = Math.atan2(y(1e1) - y(1), x(1e1) - x(1)) * 180 / Math.PI;
  let labeled = null;
  roof.levels.forEach((level, i) => {
    const rate = level.bytes_per_second, last = i === roof.levels.length - 1;
    lines.append('line').attr('class', `ceiling ${last ? 'main' : ''}`)
      .attr('x1', x(x.domain()[0])).attr('y1', y(x.domain()[0] * rate))
      .attr('x2', x(peak / rate)).attr('y2', y(peak));
    // Where the line enters the picture, unless it is too close to one that has a name.
    const away = (y(rate) - y(labeled || rate)) * Math.cos(slope * Math.PI / 180);
    if (labeled && away < 13 && !last) return;
    labeled = rate;
    const start = Math.max(x.domain()[0], y.domain()[0] / rate) * (1.15 + 0.5 * (i % 2));
    svg.append('text').attr('class', 'halo')
      .attr('transform', `translate(${x(start)},${y(start * rate) - 5}) rotate(${slope})`)
      .text(`${shown(level.level, 30)} ${asByteRate(rate)}`);
  });
}

function drawRooflinePoints(svg, rows, roof, x, y) {
  const colors = d3.scaleOrdinal().range(['--blue', '--coral', '--teal', '--yellow', '--purple',
    '--pink', '--green', '--brown', '--sky', '--gray'].map(c => `var(${c})`));
  const radius = row => 4 + 20 * Math.sqrt(row.share);
  const memory = roof.levels[roof.levels.length - 1].bytes_per_second;
  const tip = (event, row) => {
    const box = event.currentTarget.getBoundingClientRect();
    const bound = Math.min(roof.f32_flops_per_second, row.intensity * memory);
    showTooltip(event.clientX || box.right, event.clientY || box.bottom,
      element('h3', {}, shown(row.name, 160)), tooltipRows([
        ['share of the time', asPercent(row.share)], ['time', asTime(row.seconds)],
        ['calls', asCount(row.calls)], ['speed', asFlopRate(row.flopRate)],
        ['bandwidth', asByteRate(row.byteRate)], ['intensity', `${row.intensity.toFixed(2)} FLOP/B`],
        ['of what memory and f32 allow', asPercent(row.flopRate / bound)]]));
  };
  svg.append('g').selectAll('circle').data(rows).join('circle').attr('class', 'point')
    .attr('cx', r => x(r.intensity)).attr('cy', r => y(r.flopRate)).attr('r', radius)
    .style('fill', r => colors(r.name)).attr('tabindex', (r, i) => i < 40 ? 0 : -1)
    .attr('role', 'img').attr('aria-label', r => `${r.text}: ${asFlopRate(r.flopRate)} at ` +
      `${r.intensity.toFixed(2)} FLOP per byte, ${asPercent(r.share)} of the time`)
    .each(function listen(row) {
      this.addEventListener('pointermove', event => tip(event, row));
      this.addEventListener('focus', event => tip(event, row));
      this.addEventListener('pointerleave', hideTooltip);
      this.addEventListener('blur', hideTooltip);
    });
  // Names of the largest, where they do not cover each other.
  const taken = [];
  for (const row of rows.slice(0, 14)) {
    const name = shown(row.name, 26), at = {x: x(row.intensity) + radius(row) + 4, y: y(row.flopRate) + 4};
    if (at.x + 7 * name.length > x.range()[1]) at.x = x(row.intensity) - radius(row) - 4 - 6.6 * name.length;
    if (taken.some(o => Math.abs(o.y - at.y) < 14 && at.x < o.end && o.x < at.x + 7 * name.length)) continue;
    taken.push({...at, end: at.x + 7 * name.length});
    svg.append('text').attr('class', 'halo').attr('x', at.x).attr('y', at.y)
      .style('fill', 'var(--ink)').style('pointer-events', 'none').text(name);
  }
}
