// The timeline: a lane for each stream, and for each depth of calls on a thread. Slices that are too
// short for the page stand together; drawing joins those that are narrower than a pixel.

const laneHeight = 18, laneGap = 2, trackGap = 10, labelHeight = 16, rulerHeight = 22;
const workColors = ['--blue', '--coral', '--teal'];
const hostColors = ['--sky', '--yellow', '--green', '--purple', '--brown', '--pink'];

// One of a few shades for a name, always the same.
function shadeOf(name) {
  let hash = 0;
  for (let i = 0; i < name.length; ++i) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return Math.abs(hash);
}

// How a ruler names its times: in the unit of its end, with as many digits as tell ticks apart. All ns.
function tickLabel(end, step) {
  const [unit, size] = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]].find(([, one]) => end >= one) || ['ns', 1];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return time => `${(time / size).toFixed(digits)}\u00a0${unit}`;
}

// Where each lane stands, by tracks.
function placesOf(lanes) {
  const places = [];
  let y = rulerHeight, last = null;
  for (const lane of lanes) {
    if (lane.track !== last) {
      y += last === null ? 4 : trackGap;
      places.push({label: lane.track, y});
      y += labelHeight;
      last = lane.track;
    }
    places.push({lane, y});
    y += laneHeight + laneGap;
  }
  return {places, height: y + 6};
}

// The first slice that ends after a time; slices of a lane do not overlap.
function firstAfter(lane, time) {
  let low = 0, high = lane.begin_ns.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.begin_ns[middle] + lane.duration_ns[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Moves the timeline to a stretch of time: its begin and its span, ns.
let showStretch = () => {};

function drawLanes() {
  const data = profile.timeline;
  if (chosen !== 0)
    return missing('timeline', 'Timeline', `The page has the timeline of ${rankName(profile.ranks[0])}.`);
  if (!data.lanes.length) return null;
  const canvas = element('canvas', {tabindex: '0', role: 'img',
    'aria-label': 'Timeline of streams and threads. Plus and minus zoom, left and right move.'});
  const box = element('div', {class: 'lanes'}, canvas);
  const view = {begin: 0, end: data.duration_ns};
  const path = pathLane(data);
  const {places, height} = placesOf(path ? [path, ...data.lanes] : data.lanes);
  const shades = data.names.map(shadeOf);
  const context = canvas.getContext('2d');
  let width = 0, frame = 0;
  const colors = {};
  const color = name => colors[name] ||
    (colors[name] = getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const fillOf = (lane, i) => lane.onPath ? color(lane.colors[lane.kind[i]]) : lane.onCard ? color(workColors[lane.work[i]])
    : color(hostColors[shades[lane.name[i]] % hostColors.length]);
  for (const lane of data.lanes) lane.onCard = lane.track.startsWith('card ');
  const scale = () => width / (view.end - view.begin);
  const placeOf = new Map(places.filter(one => one.lane).map(one => [one.lane, one.y]));
  const tops = data.lanes.map(lane => placeOf.get(lane));
  let showsPath = path !== null;
  const redraw = () => { if (!frame) frame = requestAnimationFrame(draw); };

  function drawRuler() {
    const x = d3.scaleLinear([view.begin, view.end], [0, width]);
    context.fillStyle = color('--soft');
    context.strokeStyle = color('--line');
    context.textAlign = 'left';
    const ticks = x.ticks(Math.max(2, width / 120));
    const label = tickLabel(view.end, ticks.length > 1 ? ticks[1] - ticks[0] : view.end);
    for (const tick of ticks) {
      const at = Math.round(x(tick)) + 0.5;
      context.beginPath();
      context.moveTo(at, rulerHeight - 4);
      context.lineTo(at, height);
      context.stroke();
      context.fillText(label(tick), at + 3, 12);
    }
    context.strokeStyle = color('--faint');
    const least = 16;  // pixels from one step's line to the next
    let last = -least;
    for (const step of data.steps) {
      const at = Math.round(x(step.begin_ns)) + 0.5;
      if (at < 0 || at > width || at - last < least) continue;
      last = at;
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(at, rulerHeight - 4);
      context.lineTo(at, height);
      context.stroke();
      context.setLineDash([]);
    }
  }

  function drawLane(lane, y) {
    const perNs = scale();
    let drawnTo = -1;
    for (let i = firstAfter(lane, view.begin); i < lane.begin_ns.length; ++i) {
      if (lane.begin_ns[i] >= view.end) break;
      const left = Math.max(0, (lane.begin_ns[i] - view.begin) * perNs);
      const right = Math.min(width, (lane.begin_ns[i] + lane.duration_ns[i] - view.begin) * perNs);
      if (right <= drawnTo) {  // all within a pixel at once
        i = Math.max(i, firstAfter(lane, view.begin + drawnTo / perNs) - 1);
        continue;
      }
      const span = Math.max(right - left, 0.75);
      context.globalAlpha = lane.onCard ? 0.72 + 0.28 * ((shades[lane.name[i]] % 5) / 4) : 0.85;
      context.fillStyle = fillOf(lane, i);
      context.fillRect(left, y, span > 3 ? span - 0.6 : span, laneHeight);
      drawnTo = span < 1 ? left + 1 : right;
      if (span > 34) {
        context.globalAlpha = 1;
        context.fillStyle = '#10141a';
        const text = (lane.count[i] > 1 ? `${asCount(lane.count[i])} × ` : '') + shown(data.names[lane.name[i]], 120);
        const room = Math.floor((span - 8) / 6.2);
        context.fillText(text.length > room ? text.slice(0, Math.max(1, room - 1)) + '…' : text, left + 4, y + 13);
      }
    }
    context.globalAlpha = 1;
  }

  function draw() {
    frame = 0;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '11px system-ui, sans-serif';
    context.clearRect(0, 0, width, height);
    for (const key of Object.keys(colors)) delete colors[key];
    drawRuler();
    for (const place of places) {
      if (place.lane) drawLane(place.lane, place.y);
      else {
        context.fillStyle = color('--ink');
        context.fillText(shown(place.label, 100), 2, place.y + 11);
      }
    }
    if (showsPath) drawPathOver(context, path, view, scale(), width, tops, color('--ink'));
    box.dataset.begin = view.begin;
    box.dataset.end = view.end;
  }

  function zoom(factor, at) {
    const span = Math.min(data.duration_ns, Math.max(200, (view.end - view.begin) * factor));
    const part = (at - view.begin) / (view.end - view.begin);
    move(at - part * span, span);
  }
  function move(begin, span) {
    view.begin = Math.max(0, Math.min(begin, data.duration_ns - span));
    view.end = view.begin + span;
    redraw();
  }
  showStretch = (begin, span) => move(begin, Math.min(data.duration_ns, Math.max(200, span)));
  const middle = () => (view.begin + view.end) / 2;

  function under(event) {
    const bounds = canvas.getBoundingClientRect();
    const time = view.begin + (event.clientX - bounds.left) / scale(), y = event.clientY - bounds.top;
    const place = places.find(one => one.lane && y >= one.y && y < one.y + laneHeight);
    if (!place) return null;
    const i = firstAfter(place.lane, time - 1 / scale());
    return i < place.lane.begin_ns.length && place.lane.begin_ns[i] <= time + 1 / scale()
      ? {lane: place.lane, i} : null;
  }
  canvas.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) < Math.abs(event.deltaY)) return;
    event.preventDefault();
    const bounds = canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey)
      zoom(Math.exp(event.deltaY * 0.004), view.begin + (event.clientX - bounds.left) / scale());
    else move(view.begin + event.deltaX / scale(), view.end - view.begin);
  }, {passive: false});
  let held = null;
  canvas.addEventListener('pointerdown', event => {
    held = {x: event.clientX, begin: view.begin};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointerup', () => { held = null; });
  canvas.addEventListener('pointermove', event => {
    if (held) {
      hideTooltip();
      move(held.begin - (event.clientX - held.x) / scale(), view.end - view.begin);
      return;
    }
    const found = under(event);
    if (!found) return hideTooltip();
    const {lane, i} = found;
    showTooltip(event.clientX, event.clientY, element('h3', {}, shown(data.names[lane.name[i]], 300)),
      tooltipRows([[lane.count[i] > 1 ? `${asCount(lane.count[i])} slices, this the longest` : 'duration',
        asTime(lane.duration_ns[i] * 1e-9)], ['begins at', asTime(lane.begin_ns[i] * 1e-9)],
      ...(lane.onPath ? pathRows(lane, data.names, i) : [['track', shown(lane.track, 60)]])]));
  });
  canvas.addEventListener('pointerleave', hideTooltip);
  canvas.addEventListener('dblclick', event => {
    const found = under(event);
    if (!found) return move(0, data.duration_ns);
    const {lane, i} = found, span = Math.max(lane.duration_ns[i] * 1.2, 200);
    move(lane.begin_ns[i] - 0.1 * lane.duration_ns[i], span);
  });
  canvas.addEventListener('keydown', event => {
    const span = view.end - view.begin;
    const keys = {'+': () => zoom(0.6, middle()), '=': () => zoom(0.6, middle()),
      '-': () => zoom(1 / 0.6, middle()), ArrowLeft: () => move(view.begin - 0.2 * span, span),
      ArrowRight: () => move(view.begin + 0.2 * span, span), Home: () => move(0, data.duration_ns)};
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  new MutationObserver(redraw).observe(document.documentElement, {attributeFilter: ['data-theme']});
  onWidth(box, now => { width = now; redraw(); });

  const options = [element('option', {value: -1}, 'Whole trace'),
    data.steps.map((s, i) => element('option', {value: i}, `Step ${s.step}`))];
  const range = element('select', {'aria-label': 'Stretch of time', onchange: event => {
    const step = data.steps[Number(event.target.value)];
    if (step) move(step.begin_ns, step.end_ns - step.begin_ns);
    else move(0, data.duration_ns);
  }}, options);
  const button = (text, label, action) => element('button', {type: 'button', class: 'more',
    style: {margin: '0'}, 'aria-label': label, onclick: action}, text);
  const detail = data.detail && element('button', {type: 'button', class: 'more', style: {margin: '0'},
    onclick: () => move(data.detail[0], data.detail[1] - data.detail[0])}, 'The step in full detail');
  const pathBox = path && element('label', {}, element('input', {type: 'checkbox', checked: '',
    onchange: event => { showsPath = event.target.checked; redraw(); }}), ' critical path');
  return section('timeline', 'Timeline',
    data.resolution_ns > 0 ? `Slices shorter than ${asTime(data.resolution_ns * 1e-9)} stand together, ` +
      'under the name of the longest' + (data.detail ? '; one step has all of its own.' : '.') : null,
    element('div', {class: 'controls'}, range, button('+', 'Zoom in', () => zoom(0.6, middle())),
      button('−', 'Zoom out', () => zoom(1 / 0.6, middle())), detail || '', pathBox || ''),
    box,
    legend([['var(--blue)', 'computing'], ['var(--coral)', 'communicating'], ['var(--teal)', 'copying'],
      ...(path ? [['var(--yellow)', 'on the path: the host'], ['var(--purple)', 'calls'],
        ['var(--gray)', 'latency']] : [])]),
    element('p', {class: 'keys'}, 'Drag to move, ', element('kbd', {}, 'Ctrl'), ' and the wheel to zoom, ',
      element('kbd', {}, '+'), ' ', element('kbd', {}, '−'), ' ', element('kbd', {}, '←'), ' ',
      element('kbd', {}, '→'), ' with the keyboard; a double click fills the view with a slice.'));
}
