// The operators of the recorded steps, grouped in several ways, as a table to sort and search.

// Seconds that a node cannot go below, per call; null where that is not known.
function floorsOfNodes() {
  if (!profile.bottlenecks) return null;
  return new Map(profile.bottlenecks.nodes.map(n =>
    [n.node, n.floor_seconds * profile.bottlenecks.steps]));
}

function workRow(name) {
  return {name, calls: 0, seconds: 0, flops: 0, bytes: 0, floor: 0, floorKnown: true};
}
function finishRow(row) {
  const total = profile.operators.step_time_ns * 1e-9;
  row.text = shown(row.name);
  row.share = total > 0 ? row.seconds / total : 0;
  row.average = row.calls ? row.seconds / row.calls : 0;
  row.flopRate = row.seconds > 0 ? row.flops / row.seconds : 0;
  row.byteRate = row.seconds > 0 ? row.bytes / row.seconds : 0;
  row.intensity = row.bytes > 0 ? row.flops / row.bytes : 0;
  row.ratio = row.floorKnown && row.floor > 0 ? row.seconds / row.floor : 0;
  return row;
}

const groupings = {
  operator: node => node.operator,
  shape: node => node.shape,
  module: node => node.module || '(model)',
  phase: node => node.phase,
  node: node => `#${node.node} ${node.name}`,
};

// Rows by grouping, the largest first. An older profile has no nodes.json, only operators.
function operatorRows(grouping) {
  if (!profile.nodes)
    return profile.operators.rows.map(({name, total}) => finishRow({...workRow(name),
      calls: total.calls, seconds: total.time_ns * 1e-9, flops: total.flops,
      bytes: total.bytes_read + total.bytes_written, floorKnown: false}))
      .sort((a, b) => b.seconds - a.seconds);
  const floors = floorsOfNodes(), rows = new Map();
  for (const node of profile.nodes.nodes) {
    const key = groupings[grouping](node);
    if (!rows.has(key)) rows.set(key, workRow(key));
    const row = rows.get(key);
    row.calls += node.calls;
    row.seconds += node.time_ns * 1e-9;
    row.flops += node.flops;
    row.bytes += node.bytes_read + node.bytes_written;
    if (floors && floors.has(node.node)) row.floor += floors.get(node.node);
    else row.floorKnown = false;
  }
  return [...rows.values()].map(finishRow).sort((a, b) => b.seconds - a.seconds);
}

function operatorColumns() {
  const none = text => value => value ? text(value) : '–';
  const columns = [
    ['text', 'Name', null, ''],
    ['seconds', 'Time', asTime, 'of all calls in the recorded steps'],
    ['share', 'Share', asPercent, 'of the recorded steps’ time'],
    ['calls', 'Calls', asCount, 'in the recorded steps'],
    ['average', 'Average', asTime, 'time of a call'],
    ['flops', 'FLOPs', none(asFlops), 'floating-point operations of all calls'],
    ['flopRate', 'FLOP/s', none(asFlopRate), 'FLOPs over time'],
    ['bytes', 'Bytes', none(asBytes), 'read and written, each operand once'],
    ['byteRate', 'Bandwidth', none(asByteRate), 'bytes over time'],
    ['intensity', 'FLOP/B', none(v => v.toFixed(2)), 'FLOPs for each byte moved'],
  ];
  if (profile.bottlenecks && profile.nodes)
    columns.push(['ratio', '× floor', none(v => v < 100 ? `${v.toFixed(1)}×` : `${asCount(v)}×`),
      'time over the least that the machine’s ceilings allow']);
  return columns;
}

function drawOperators() {
  const columns = operatorColumns(), page = 100, moreRows = 500;
  const state = {grouping: 'operator', column: 'seconds', down: true, words: '', limit: page};
  let rows = operatorRows(state.grouping);
  const body = element('tbody'), count = element('span', {class: 'count', role: 'status'});
  const more = element('button', {type: 'button', class: 'more',
    onclick: () => { state.limit += moreRows; draw(); }});

  const heads = columns.map(([key, label, , title]) => element('th', {scope: 'col', title},
    element('button', {type: 'button', 'data-column': key, onclick: () => {
      state.down = state.column === key ? !state.down : key !== 'text';
      state.column = key;
      draw();
    }}, label)));

  function cells(row) {
    return columns.map(([key, , format]) => {
      if (key === 'text') return element('td', {title: shown(row.name, 1000)}, row.text);
      if (key !== 'share') return element('td', {}, format(row[key]));
      return element('td', {}, format(row.share), element('span', {class: 'rail'},
        element('span', {class: 'bar', style: {width: `${Math.min(44, 44 * row.share)}px`}})));
    });
  }

  // Made once, however often the order changes.
  const drawn = row => row.drawn || (row.drawn = element('tr', {}, cells(row)));

  function draw() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter(row => words.every(word => row.text.toLowerCase().includes(word)));
    const order = state.column === 'text' ? (a, b) => d3.ascending(a.text, b.text)
      : (a, b) => a[state.column] - b[state.column];
    found.sort((a, b) => state.down ? order(b, a) : order(a, b));
    const visible = found.slice(0, state.limit);
    body.replaceChildren(...visible.map(drawn));
    heads.forEach((head, i) => {
      if (columns[i][0] === state.column)
        head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    const share = d3.sum(found, row => row.share);
    count.textContent = `${asCount(found.length)}${words.length ? ` of ${asCount(rows.length)}` : ''} ` +
      `${found.length === 1 ? 'row' : 'rows'}, ${asPercent(share)} of the time`;
    const hidden = found.length - visible.length;
    more.hidden = hidden === 0;
    more.textContent = `Show ${asCount(Math.min(hidden, moreRows))} of ${asCount(hidden)} more`;
  }

  const search = element('input', {type: 'search', placeholder: 'Search names', 'aria-label':
    'Search names', oninput: event => { state.words = event.target.value; draw(); }});
  const names = {operator: 'Operator', shape: 'Shape', module: 'Module', phase: 'Phase',
    node: 'Node'};
  const grouping = choice('Group by', Object.entries(profile.nodes ? names : {operator: 'Operator'}),
    state.grouping, value => {
      state.grouping = value;
      state.limit = page;
      rows = operatorRows(value);
      draw();
    });
  draw();
  const table = profile.operators;
  return section('operators', 'Operators',
    `Time and exact work of every kernel in ${table.steps} recorded ` +
    `${table.steps === 1 ? 'step' : 'steps'}. A module’s row is its own work, without its ` +
    'submodules’. Any column sorts.' +
    (profile.nodes ? '' : ' Profile again for other groupings: there is no nodes.json.'),
    element('div', {class: 'controls'}, grouping, search, count),
    element('div', {class: 'scroll'}, element('table', {},
      element('thead', {}, element('tr', {}, heads)), body)), more);
}
