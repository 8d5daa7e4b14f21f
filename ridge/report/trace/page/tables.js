// Tables of a trace: any column sorts, names are searched.

// columns: [key, label, format, title]; the first is the name. rows: objects.
function sortable(columns, rows, sortBy, page = 50, down = true) {
  const state = {column: sortBy, down, words: '', limit: page};
  const body = element('tbody'), count = element('span', {class: 'count', role: 'status'});
  const more = element('button', {type: 'button', class: 'more',
    onclick: () => { state.limit += 250; draw(); }});
  const [nameKey] = columns[0];
  for (const row of rows) {
    row.text = shown(row[nameKey]);
    row.lower = row.text.toLowerCase();
  }
  const heads = columns.map(([key, label, , title]) => element('th', {scope: 'col', title: title || ''},
    element('button', {type: 'button', 'data-column': key, onclick: () => {
      state.down = state.column === key ? !state.down : key !== nameKey;
      state.column = key;
      draw();
    }}, label)));
  const drawn = row => row.drawn || (row.drawn = element('tr', {}, columns.map(([key, , format], i) =>
    i === 0 ? element('td', {title: shown(row.full || row[key], 1000)}, row.text)
      : element('td', {}, row[key] === null || row[key] === undefined ? '–' : format(row[key])))));
  function draw() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter(row => words.every(word => row.lower.includes(word)));
    const order = state.column === nameKey ? (a, b) => d3.ascending(a.text, b.text)
      : (a, b) => (a[state.column] ?? -Infinity) - (b[state.column] ?? -Infinity);
    found.sort((a, b) => state.down ? order(b, a) : order(a, b));
    body.replaceChildren(...found.slice(0, state.limit).map(drawn));
    heads.forEach((head, i) => {
      if (columns[i][0] === state.column)
        head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    count.textContent = `${asCount(found.length)} ${found.length === 1 ? 'row' : 'rows'}`;
    more.hidden = found.length <= state.limit;
    more.textContent = `Show more of ${asCount(found.length - state.limit)}`;
  }
  const search = rows.length > 12 ? element('input', {type: 'search', placeholder: 'Search names',
    'aria-label': 'Search names', oninput: event => { state.words = event.target.value; draw(); }}) : null;
  draw();
  return [rows.length > 12 ? element('div', {class: 'controls'}, search, count) : '',
    element('div', {class: 'scroll'}, element('table', {},
      element('thead', {}, element('tr', {}, heads)), body)), more];
}

const asMicro = value => asTime(value * us);
const shareOf = (value, total) => total > 0 ? value / total : 0;

function drawRanks() {
  const together = profile.together;
  if (!together) return null;
  const rows = together.ranks.map((came, i) => {
    const use = profile.ranks[i];
    return {name: rankName(use), span: use.span_us, compute: shareOf(use.compute_us, use.span_us),
      communication: shareOf(use.communication_us, use.span_us),
      exposed: shareOf(use.exposed_communication_us, use.span_us),
      idle: shareOf(use.idle_us, use.span_us), waited: came.waited_us,
      last: shareOf(came.came_last, together.collectives_compared), caused: came.others_waited_us,
      ahead: came.clock_ahead_us};
  });
  const collectives = together.collectives.map(sum => ({...sum, name: sum.name,
    bytes: sum.bytes || null, group_size: sum.group_size || null,
    bus: sum.bus_bytes_per_second || null, total: sum.median_us * sum.count}));
  return section('ranks', 'Ranks',
    'The ranks’ clocks are set by the ends of the collectives. Waited: from a rank’s own begin of each ' +
    'collective to that of the rank that comes last.',
    sortable([['name', 'Rank'], ['span', 'Span', asMicro], ['compute', 'Computing', asPercent],
      ['communication', 'Communicating', asPercent], ['exposed', 'Exposed', asPercent],
      ['idle', 'Idle', asPercent], ['waited', 'Waited', asMicro], ['last', 'Came last', asPercent],
      ['caused', 'Others waited', asMicro], ['ahead', 'Clock ahead', asMicro]], rows, 'caused'),
    element('h3', {class: 'apart'}, 'Collectives'),
    sortable([['name', 'Collective'], ['bytes', 'Bytes', asBytes], ['group_size', 'Ranks', asCount],
      ['count', 'Calls', asCount], ['median_us', 'Median', asMicro, 'from the begin of the last rank to the end'],
      ['total', 'Together', asMicro], ['bus', 'Bus bandwidth', asByteRate],
      ['first_waited_us', 'First waited', asMicro]], collectives, 'total'));
}

function drawPhases() {
  const report = rank();
  if (!report.phases.length) return null;
  const rows = report.phases.map(phase => ({...phase, name: phase.phase,
    share: shareOf(phase.busy_us, report.span_us)}));
  return section('phases', 'Forward, backward and the rest', 'By what stands around each launch.',
    sortable([['name', 'Part of the step'], ['busy_us', 'Busy', asMicro],
      ['share', 'Of the span', asPercent], ['kernels', report.of_host ? 'Operators' : 'Kernels', asCount],
      ...(rows.some(row => row.peak_allocated_bytes) ?
        [['peak_allocated_bytes', 'Peak allocated', asBytes]] : [])], rows, 'busy_us'));
}

// A tree in the order of first calls: sorting by time takes it apart, and the path still tells.
function drawModules() {
  const report = rank();
  if (!report.modules.length) return null;
  const path = [];
  const rows = report.modules.map((module, order) => {
    path.length = module.depth;
    path.push(module.name);
    return {...module, order, name: '\u2003'.repeat(module.depth) + module.name, full: path.join(' / '),
      share: shareOf(report.of_host ? module.host_us : module.device_us, report.span_us)};
  });
  return section('modules', 'Modules', 'Going forward, with the modules within each; what is launched ' +
    'going backward stands in no call of a module.',
    sortable([['name', 'Module'], ['order', 'Order', asCount], ['host_us', 'Host', asMicro],
      ...(report.of_host ? [] : [['device_us', 'Card', asMicro]]), ['share', 'Of the span', asPercent],
      ['calls', 'Calls', asCount], ...(report.of_host ? [] : [['kernels', 'Kernels', asCount]])],
    rows, 'order', 40, false));
}

function drawIdle() {
  const report = rank(), idle = report.idle;
  if (report.of_host || report.idle_us <= 0) return null;
  const why = Object.entries(idle.causes).filter(([, cause]) => cause.stretches > 0)
    .map(([key, cause]) => ({name: causes[key] || key, us: cause.us,
      share: shareOf(cause.us, report.span_us), stretches: cause.stretches}));
  const host = idle.host_meanwhile.slice(0, 2000).map(one => ({...one,
    name: one.name || '(Python, outside of operators and annotations)',
    share: shareOf(one.us, report.span_us)}));
  const columns = label => [['name', label], ['us', 'Time', asMicro], ['share', 'Of the span', asPercent],
    ['stretches', 'Stretches', asCount]];
  return section('idle', 'Idle time', 'Why the card had nothing to do, and what the thread that ' +
    'launched the next work did meanwhile.',
    sortable(columns('Cause'), why, 'us'),
    host.length ? [element('h3', {class: 'apart'}, 'The host meanwhile'),
      sortable(columns('Annotation and operator'), host, 'us', 12)] : '');
}

function drawKernels() {
  const report = rank();
  if (report.of_host || !report.kernels_by_name.length) return null;
  const rows = report.kernels_by_name.map(kernel => ({...kernel, full: kernel.name,
    name: kernel.short_name, share: shareOf(kernel.us, report.busy_us),
    mean: kernel.us / kernel.count}));
  return section('kernels', 'Kernels', 'By the name under which the card runs them.',
    sortable([['name', 'Kernel'], ['us', 'Time', asMicro], ['share', 'Of busy', asPercent],
      ['count', 'Calls', asCount], ['mean', 'Mean', asMicro], ['min_us', 'Min', asMicro],
      ['max_us', 'Max', asMicro], ['class', 'Class', shown]], rows, 'us'));
}

function drawTraceOperators() {
  const report = rank(), host = report.of_host;
  if (!report.operators.length) return null;
  const rows = report.operators.map(sum => {
    const time = host ? sum.host_us : sum.device_us;
    return {...sum, name: sum.name + (sum.input_dims ? ' ' + JSON.stringify(sum.input_dims) : ''),
      share: shareOf(host ? sum.self_host_us : sum.device_us, host ? report.span_us : report.busy_us),
      rate: sum.flops && time > 0 ? sum.flops / (time * us) : null,
      moved: sum.bytes && time > 0 ? sum.bytes / (time * us) : null,
      floor: sum.floor_us && sum.device_us > 0 ? sum.floor_us / sum.device_us : null};
  });
  const columns = [['name', 'Operator and input shapes'],
    ...(host ? [] : [['device_us', 'Card', asMicro, 'of the work that it launched itself']]),
    ['self_host_us', 'Host self', asMicro, 'without what it calls'], ['host_us', 'Host', asMicro],
    ['share', host ? 'Of the span' : 'Of busy', asPercent], ['count', 'Calls', asCount],
    ...(host ? [] : [['kernels', 'Kernels', asCount]]), ['rate', 'FLOP/s', asFlopRate],
    ['moved', 'Bytes/s', asByteRate],
    ...(rows.some(row => row.floor !== null) ? [['floor', 'Floor', asPercent,
      'the least time by the data sheet of the card, as a part of the time taken']] : [])];
  return section('operators', 'Operators', 'By name and input shapes.',
    sortable(columns, rows, host ? 'self_host_us' : 'device_us'));
}

function drawCopies() {
  const report = rank(), launches = report.launches;
  if (!report.copies.length && !launches.calls.length && !report.memory.length) return null;
  const copies = report.copies.map(copy => ({...copy, bytes: copy.bytes || null,
    rate: copy.bytes && copy.us > 0 ? copy.bytes / (copy.us * us) : null}));
  const calls = launches.calls.map(call => ({...call, name: call.call, mean: call.host_us / call.count}));
  const memory = report.memory.map(use => ({...use,
    name: use.device === 'host' ? 'host' : `card ${use.device}`}));
  const table = (title, columns, rows, by) => rows.length ? element('div', {},
    element('h3', {}, title), sortable(columns, rows, by)) : '';
  return section('launches', 'Copies, launches, memory', launches.median_delay_us === null ? null :
    `From a call’s return to its first work: median ${asMicro(launches.median_delay_us)}, 90 % within ` +
    `${asMicro(launches.p90_delay_us)}. At a launch, ${launches.mean_queue.toFixed(1)} launches were waiting or ` +
    `running on average, ${asCount(launches.longest_queue)} at most. ${asCount(launches.short_kernels)} kernels took ` +
    `less than 5 µs, ${asMicro(launches.short_kernels_us)} in all.`,
    element('div', {class: 'two'},
      table('Copies and fills', [['name', 'Name'], ['us', 'Time', asMicro], ['count', 'Calls', asCount],
        ['bytes', 'Bytes', asBytes], ['rate', 'Bandwidth', asByteRate]], copies, 'us'),
      table('Launches', [['name', 'Call'], ['host_us', 'Host time', asMicro], ['count', 'Calls', asCount],
        ['mean', 'Mean', asMicro]], calls, 'host_us'),
      table('Memory', [['name', 'Where'], ['peak_allocated_bytes', 'Peak allocated', asBytes],
        ['peak_reserved_bytes', 'Peak reserved', asBytes], ['final_allocated_bytes', 'At the end', asBytes],
        ['allocations', 'Allocations', asCount]], memory, 'peak_allocated_bytes')));
}

// The unit of a counter stands in its name: "received (B/s)".
function asCounter(name) {
  if (name.endsWith('(B)')) return asBytes;
  if (name.endsWith('(B/s)')) return asByteRate;
  return value => Math.abs(value) >= 1000 ? asCount(value) : String(Number(value.toPrecision(4)));
}

function drawCounters() {
  const counters = rank().counters || [];
  if (!counters.length) return null;
  const several = new Set(counters.map(counter => counter.process)).size > 1;
  const rows = counters.filter(counter => counter.max !== 0 || counter.min !== 0)
    .map(counter => ({...counter, shownBy: asCounter(counter.name),
      name: several ? `${counter.process}: ${counter.name}` : counter.name}));
  const zeros = counters.filter(counter => counter.max === 0 && counter.min === 0);
  return section('system', 'The system', 'Counters of the trace, each over its own time.',
    plainCounters(rows), zeros.length ? element('p', {class: 'quiet'},
      `0 all the time: ${zeros.map(counter => shown(counter.name, 60)).join('; ')}`) : '');
}

function plainCounters(rows) {
  const heads = ['Counter', 'Mean', 'Min', 'Max', 'Max at'];
  return element('div', {class: 'scroll'}, element('table', {},
    element('thead', {}, element('tr', {}, heads.map(head => element('th', {scope: 'col'}, head)))),
    element('tbody', {}, rows.map(row => element('tr', {}, element('td', {}, shown(row.name, 120)),
      [row.mean, row.min, row.max].map(value => element('td', {}, row.shownBy(value))),
      element('td', {}, asMicro(row.max_at_us)))))));
}
