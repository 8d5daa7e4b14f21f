// How busy each unit of the device is, operator by operator, and what passes between the levels of
// its memory.

function drawUnits() {
  const title = 'Units', light = profile.speed_of_light;
  if (!light)
    return missing('units', title, 'There is no speed_of_light.json: when this profile was taken, the ' +
      'machine’s ceilings were not known. Measure them once with ', code('ridge roofline'),
    ', then profile again.');
  const chart = element('div', {class: 'chart'}), rows = light.operators.slice(0, 12);
  let row = light.all, redraw = () => {};
  onWidth(chart, width => {
    redraw = () => drawLevels(chart, width, light, row);
    redraw();
  });
  const source = light.counted ? 'What has a star was counted in hardware; the rest follows'
    : `Nothing was counted${light.fault ? ` (${shown(light.fault, 300)})` : ''}: all follows`;
  return section('units', title,
    'How busy an operator keeps each unit, as a part of what it could do in the operator’s time. ' +
    `${source} from FLOPs, each operand moved once, the ceilings and the time.`,
    unitTable(light, 'Operator', light.operators), light.kernels.length
      ? unitTable(light, 'Family of kernels', light.kernels) : '',
    light.occupancy.length ? fitTable(light.occupancy) : '',
    element('h3', {class: 'apart'}, 'Between the levels of memory, in a step'),
    element('div', {class: 'controls'}, choice('Levels of', [['', 'All operators'],
      ...rows.map(one => [one.name, shown(one.name, 24)])], '', name => {
      row = rows.find(one => one.name === name) || light.all;
      redraw();
    })), chart);
}

function plainRows(headings, rows) {
  return element('div', {class: 'scroll'}, element('table', {},
    element('thead', {}, element('tr', {}, headings.map(name =>
      element('th', {scope: 'col'}, shown(name, 40))))),
    element('tbody', {}, rows.map(cells => element('tr', {}, cells.map(cell =>
      element('td', {}, cell)))))));
}

function unitTable(light, heading, all) {
  const most = 20, use = (row, unit) => {
    const found = Object.hasOwn(row.units, unit) ? row.units[unit] : null;
    return found ? asPercent(found.part) + (found.counted ? '*' : '') : '–';
  };
  return plainRows([heading, 'Time', ...light.units, 'Limit'], [...all.slice(0, most), light.all]
    .map(row => [shown(row.name, 80), asTime(row.seconds),
      ...light.units.map(unit => use(row, unit)), shown(row.limit, 30)]));
}

function fitTable(fits) {
  return plainRows(['Kernel', 'Blocks that fit', 'Waves', 'Occupancy', 'Limit', 'Why no more fit'],
    fits.slice(0, 20).map(fit => [shown(fit.name, 80), asCount(fit.blocks), fit.waves.toFixed(1),
      asPercent(fit.occupancy), shown(fit.limit, 30), shown(fit.why, 200)]));
}

// Boxes from the registers to memory, and between them arrows as wide as the part of the bandwidth.
function drawLevels(container, width, light, row) {
  const names = light.units.filter(unit => Object.hasOwn(row.levels, unit));
  const boxes = ['registers', ...names], high = 46, gap = 52, wide = Math.min(190, width * 0.4);
  const height = boxes.length * high + names.length * gap + 4;
  const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height)
    .attr('role', 'img').attr('aria-label', `Levels of memory of ${shown(row.name, 80)}`);
  boxes.forEach((name, i) => {
    const y = 2 + i * (high + gap);
    svg.append('rect').attr('x', 2).attr('y', y).attr('width', wide).attr('height', high)
      .attr('rx', 6).style('fill', 'var(--stripe)').style('stroke', 'var(--line)');
    svg.append('text').attr('x', 2 + wide / 2).attr('y', y + high / 2 + 5)
      .attr('text-anchor', 'middle').style('fill', 'var(--ink)').text(shown(name, 20));
    if (i === 0) return;
    const traffic = row.levels[name], use = Object.hasOwn(row.units, name) ? row.units[name] : null;
    const part = use ? Math.max(0, Math.min(1, use.part)) : 0, thick = 2 + 0.6 * part * wide;
    svg.append('rect').attr('class', 'traffic').attr('x', 2 + (wide - thick) / 2)
      .attr('y', y - gap + 3).attr('width', thick).attr('height', gap - 6)
      .style('fill', 'var(--blue)').style('opacity', 0.35 + 0.65 * part);
    const rate = row.seconds > 0 ? traffic.bytes / row.seconds : 0;
    svg.append('text').attr('x', wide + 14).attr('y', y - gap / 2 + 5).style('fill', 'var(--soft)')
      .text(`${asBytes(traffic.bytes)}${traffic.counted ? '*' : ''}, ${asByteRate(rate)}` +
        (use ? `, ${asPercent(use.part)} of the ceiling` : ''));
  });
  container.replaceChildren(svg.node());
}
