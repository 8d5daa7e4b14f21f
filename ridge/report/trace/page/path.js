// The critical path: a lane of the timeline, lines around what it goes through, a section of figures.

const pathColors = {compute: '--blue', communication: '--coral', copy: '--teal', host: '--yellow',
  call: '--purple', latency: '--gray', unknown: '--brown'};
// By trace::HeldBy.
const heldBy = [null, 'the host, which came from', 'its launch,', 'the work before it on its stream,',
  'work on another stream,', 'the card, which ran'];

// The path as a lane of the timeline.
function pathLane(data) {
  if (!data.path) return null;
  return {...data.path, track: 'Critical path', depth: 0, onPath: true,
    colors: data.path.kinds.map(kind => pathColors[kind])};
}

// What a slice of the path is, and what that waited for: rows of a tooltip.
function pathRows(path, names, i) {
  if (path.count[i] > 1) return [['kind of the longest', path.words[path.kind[i]]]];
  const waited = path.waited_for[i];
  return [['kind', path.words[path.kind[i]]],
    ...(waited < 0 ? [] : [['waited for', `${heldBy[path.held_by[i]]} ${shown(names[waited], 120)}`]])];
}

// Draws the path over the lanes that it goes through: an edge around each slice, and a line from where
// one ends to where the next begins in another lane. Slices too narrow for an edge are underlined. `tops`:
// where each lane stands.
function drawPathOver(context, path, view, scale, width, tops, ink) {
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = 1.5;
  let before = null;
  const drawnTo = new Float64Array(tops.length).fill(-1);
  for (let i = firstAfter(path, view.begin); i < path.begin_ns.length; ++i) {
    if (path.begin_ns[i] >= view.end) break;
    const lane = path.lane[i], top = tops[lane];
    if (lane < 0) continue;
    const left = Math.max(-4, (path.begin_ns[i] - view.begin) * scale);
    const right = Math.min(width + 4, (path.begin_ns[i] + path.duration_ns[i] - view.begin) * scale);
    if (right - left > 5) {
      if (before && before.top !== top && left - before.right < 40) {
        context.beginPath();
        context.moveTo(before.right, before.top + laneHeight / 2);
        context.lineTo(left, top + laneHeight / 2);
        context.stroke();
      }
      context.strokeRect(left + 0.75, top + 0.75, right - left - 1.5, laneHeight - 1.5);
      before = {right, top};
    } else if (right > drawnTo[lane]) {
      context.fillRect(left, top + laneHeight - 3, Math.max(1, right - left), 3);
      drawnTo[lane] = Math.max(left + 1, right);
    }
  }
  context.lineWidth = 1;
}

function drawPath() {
  const path = profile.critical_path, data = profile.timeline.path;
  if (chosen !== 0)
    return profile.critical_path ? missing('path', 'Critical path',
      `The page has the critical path of ${rankName(profile.ranks[0])}.`) : null;
  if (!path) return null;
  const split = data.kinds.map((kind, i) => ({kind, words: data.words[i], us: path.us_by_kind[kind],
    color: `var(${pathColors[kind]})`})).filter(one => one.us > 0);
  const words = Object.fromEntries(data.kinds.map((kind, i) => [kind, data.words[i]]));
  const changes = path.what_if.map(one => ({...one, name: one.change,
    share: shareOf(one.saved_us, path.span_us)}));
  const saves = one => one.share >= 5e-4;
  const saving = changes.filter(saves), idle = changes.filter(one => !saves(one));
  const shares = path.shares.map(one => ({...one, share: shareOf(one.us, path.span_us),
    words: words[one.kind]}));
  return section('path', 'Critical path', 'What the time depended on: of all that ran, the chain that ends ' +
    'with the last work of a card. What is not on it can be as slow as it is. The timeline shows it.',
    element('div', {class: 'stack'}, split.map(one => element('span', {
      style: {width: `${100 * shareOf(one.us, path.span_us)}%`, background: one.color},
      title: `${one.words}: ${asTime(one.us * us)}, ${asPercent(shareOf(one.us, path.span_us))}`}))),
    legend(split.map(one => [one.color, one.words, asTime(one.us * us)])),
    element('h3', {class: 'apart'}, `If something were faster: the ${asTime(path.span_us * us)} would be`),
    saving.length ? sortable([['name', 'With'], ['span_us', 'It would take', asMicro],
      ['saved_us', 'Saved', asMicro], ['share', 'Of it', asPercent]], saving, 'saved_us') : '',
    idle.length ? element('p', {class: 'quiet'},
      `These would save nothing: ${idle.map(one => shown(one.name, 120)).join('; ')}.`) : '',
    element('h3', {class: 'apart'}, 'On the path'),
    sortable([['name', 'What'], ['us', 'Time', asMicro], ['share', 'Of it', asPercent],
      ['count', 'Times', asCount], ['words', 'Kind', shown]], shares, 'us', 15),
    longestOfPath(data));
}

// The longest stretches that have a slice of their own, each with a button that shows it.
function longestOfPath(data) {
  const names = profile.timeline.names, most = 200;
  const alone = d3.range(data.begin_ns.length).filter(i => data.count[i] === 1);
  const rows = alone.sort((a, b) => data.duration_ns[b] - data.duration_ns[a]).slice(0, most)
    .map(i => ({name: names[data.name[i]], duration: data.duration_ns[i] * 1e-9, i,
      begin: data.begin_ns[i], words: data.words[data.kind[i]],
      waited: data.waited_for[i] < 0 ? null : pathRows(data, names, i)[1][1]}));
  if (!rows.length) return '';
  const rowOf = new Map(rows.map(row => [row.begin, row]));
  const show = begin => element('button', {type: 'button', class: 'more', style: {margin: '0'},
    'aria-label': `Show ${shown(rowOf.get(begin).name, 80)} in the timeline`, onclick: () => {
      const span = data.duration_ns[rowOf.get(begin).i];
      document.getElementById('timeline').scrollIntoView();
      showStretch(begin - 2 * span, 5 * span);
    }}, asTime(begin * 1e-9));
  return [element('h3', {class: 'apart'}, 'Its longest stretches'),
    sortable([['name', 'What'], ['duration', 'Time', asTime], ['begin', 'Begins at', show],
      ['words', 'Kind', shown], ['waited', 'Waited for', text => shown(text, 90)]], rows, 'duration', 10)];
}
