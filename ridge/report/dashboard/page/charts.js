// One chart for all that is drawn as points or lines over a number or a time.

// A chart that is drawn again when it is told something else. What it is told:
//   series  [{name, color, kind: 'line', 'dots' or 'both', dashed, points: [{x, y, ...}]}]
//   x, y    {label, format, time, log, zero}; of y also cap: a few that are far above all others,
//           such as first steps, stand at the upper edge
//   tip     (point, series) => what the tooltip says of a point
//   marks   [{x, color, ...}]: lines down the chart, with a tip of their own
//   pick    (point) => what happens at a click on a point, or Enter
function makeChart(label, height = 300) {
  const box = element('div', {class: 'chart', tabindex: '0', role: 'img', 'aria-label': label});
  let width = 0, told = null;
  const redraw = () => { if (width && told) drawChart(box, width, height, told); };
  onWidth(box, now => { width = now; redraw(); });
  return {element: box, tell(next) { told = next; redraw(); }};
}

function scaleOf({time, log, zero}, values, range) {
  let [least, largest] = d3.extent(values);
  if (log) return d3.scaleLog([least, largest], range).nice();
  if (zero) least = Math.min(0, least);
  if (least === largest) [least, largest] = [least - (Math.abs(least) * 0.05 || 1), largest + (Math.abs(largest) * 0.05 || 1)];
  const margin = zero ? 0 : 0.04 * (largest - least);
  if (time) return d3.scaleUtc([new Date(least - margin), new Date(largest + margin)], range);
  return d3.scaleLinear([least - (time ? 0 : margin), largest + 0.04 * (largest - least)], range);
}

function drawChart(box, width, height, {series, x, y, tip, marks = [], pick}) {
  const usable = p => Number.isFinite(+p.x) && Number.isFinite(p.y) && (!x.log || p.x > 0) &&
    (!y.log || p.y > 0);
  const drawn = series.map(s => ({...s, points: s.points.filter(usable)}));
  const all = drawn.flatMap(s => s.points.map(point => ({point, of: s})));
  if (!all.length) {
    box.replaceChildren(element('p', {class: 'missing'}, 'Nothing to draw'));
    return;
  }
  const left = 66, right = 12, top = 12, bottom = 38;
  const sx = scaleOf(x, all.map(a => +a.point.x), [left, width - right]);
  const limit = y.cap ? 2.2 * d3.quantile(all.map(a => a.point.y).sort(d3.ascending), 0.9) : Infinity;
  const sy = scaleOf(y, all.map(a => Math.min(a.point.y, limit)), [height - bottom, top]);
  if (y.cap) sy.clamp(true);
  const svg = d3.create('svg').attr('viewBox', `0 0 ${width} ${height}`).attr('height', height);
  const yTicks = d3.axisLeft(sy).ticks(5).tickSize(left + right - width);
  axis(svg, y.log ? yTicks.tickFormat(v => sy.tickFormat(5)(v) ? asTick(y.format)(v) : '')
    : yTicks.tickFormat(asTick(y.format)), left, 0);
  const xTicks = d3.axisBottom(sx).ticks(Math.max(2, Math.min(8, width / 95))).tickSize(0).tickPadding(8);
  if (x.log) xTicks.tickFormat(v => sx.tickFormat(Math.max(2, width / 95))(v) ? asTick(x.format)(v) : '');
  else if (!x.time) xTicks.tickFormat(asTick(x.format));
  axis(svg, xTicks, 0, height - bottom).append('text').attr('x', width - right).attr('y', 31)
    .attr('text-anchor', 'end').text(x.label);
  for (const mark of marks)
    svg.append('line').attr('class', 'change').attr('x1', sx(mark.x)).attr('x2', sx(mark.x))
      .attr('y1', top).attr('y2', height - bottom).style('stroke', mark.color);
  const place = p => `${sx(p.x).toFixed(1)},${sy(p.y).toFixed(1)}`;
  for (const {points, color, kind = 'line', dashed} of drawn) {
    if (kind !== 'dots' && points.length > 1)
      svg.append('path').attr('class', 'curve').style('stroke', color)
        .attr('stroke-dasharray', dashed ? '5 4' : null)
        .attr('d', `M${points.map(place).join('L')}`);
    if (kind !== 'line' || points.length === 1)
      svg.append('path').attr('class', points.length > 1500 ? 'dots small' : 'dots')
        .style('stroke', color).attr('d', points.map(p => `M${place(p)}h0`).join(''));
  }
  const mark = svg.append('circle').attr('class', 'mark').attr('r', 4).attr('visibility', 'hidden');
  box.replaceChildren(svg.node());
  listen(box, svg.node(), {all, sx, sy, tip, marks, pick, mark, top, bottom: height - bottom});
}

// The nearest point to the pointer, and by the arrow keys one after the other.
function listen(box, svg, {all, sx, sy, tip, marks, pick, mark, top, bottom}) {
  const aimed = all.filter(a => a.of.name !== undefined);
  const tree = d3.quadtree(aimed, a => sx(a.point.x), a => sy(a.point.y));
  const order = aimed.slice().sort((a, b) => a.point.x - b.point.x);
  let at = -1;
  const show = ({point, of}, clientX, clientY) => {
    const px = sx(point.x), py = sy(point.y), edge = svg.getBoundingClientRect();
    mark.attr('cx', px).attr('cy', py).attr('visibility', 'visible');
    showTooltip(clientX ?? edge.left + px, clientY ?? edge.top + py, tip(point, of));
  };
  const hide = () => { hideTooltip(); mark.attr('visibility', 'hidden'); };
  const nearest = event => {
    const edge = svg.getBoundingClientRect();
    return tree.find(event.clientX - edge.left, event.clientY - edge.top, 60);
  };
  svg.onpointerleave = hide;
  svg.onpointermove = event => {
    const px = event.clientX - svg.getBoundingClientRect().left;
    const change = marks.find(m => Math.abs(sx(m.x) - px) < 4);
    if (change) return showTooltip(event.clientX, event.clientY, change.tip());
    const found = nearest(event);
    if (!found) return hide();
    at = order.indexOf(found);
    show(found, event.clientX, event.clientY);
  };
  svg.onclick = event => {
    const found = nearest(event);
    if (found && pick) pick(found.point);
  };
  svg.classList.toggle('picks', Boolean(pick));
  box.onkeydown = event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step && order.length) {
      event.preventDefault();
      at = Math.max(0, Math.min(order.length - 1, at + step));
      show(order[at]);
    } else if (event.key === 'Enter' && pick && at >= 0) {
      event.preventDefault();
      event.stopPropagation();
      pick(order[at].point);
    }
  };
  box.onblur = hide;
}
