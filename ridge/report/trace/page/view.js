// Headline figures of a trace, where its time went, why the card was idle, what would help.

const us = 1e-6;
const parts = [
  ['compute', 'var(--blue)', 'computing'],
  ['exposed', 'var(--coral)', 'communicating, exposed'],
  ['copy', 'var(--teal)', 'copying alone'],
  ['idle', 'var(--stripe)', 'idle'],
];
let chosen = 0;  // the rank whose figures are shown
const rank = () => profile.ranks[chosen];
const rankName = report => report.rank === null ? shown(report.file, 60) : `rank ${report.rank}`;

// Lines of a span that add up to it: what overlaps counts for the first.
function splitOf(use) {
  const alone = Math.max(0, use.busy_us - use.compute_us - use.exposed_communication_us);
  return {compute: use.compute_us, exposed: use.exposed_communication_us, copy: alone,
    idle: use.idle_us};
}

function traceSubtitle() {
  const report = rank();
  return [report.device ? shown(report.device, 80) : report.of_host ? 'of a host' : 'unknown card',
    profile.ranks.length > 1 ? `${profile.ranks.length} ranks` : null,
    report.steps.length ? `${report.steps.length} ${report.steps.length === 1 ? 'step' : 'steps'}` : null,
    `${asCount(report.events)} events`].filter(Boolean).join(' · ');
}

function traceCard(label, [figure, unit], note) {
  return element('div', {class: 'card'}, element('div', {class: 'label'}, label),
    element('div', {class: 'value'}, figure, element('span', {class: 'unit'}, unit)),
    element('div', {class: 'note'}, note || '\u00a0'));
}

function damageText(damage) {
  const sentences = [];
  if (damage.unpacking) sentences.push(`The gzip file is ${damage.unpacking}.`);
  if (damage.cut_short) sentences.push('The file ends within its list of events, which is read as far as it goes.');
  if (damage.lost_bytes > 0) sentences.push(`No event could be read from ${asBytes(damage.lost_bytes)} of it.`);
  if (damage.repaired_bytes > 0) sentences.push(`${asCount(damage.repaired_bytes)} bytes that no JSON may have were replaced.`);
  return sentences.length ? element('p', {class: 'damage'}, sentences.join(' ')) : '';
}

function drawOverview() {
  const report = rank(), share = value => report.span_us > 0 ? value / report.span_us : 0;
  const steps = report.steps.map(step => step.span_us).sort((a, b) => a - b);
  const cards = [
    steps.length > 1 ? traceCard('Step, median', withPrefix(steps[steps.length >> 1] * us, 's'),
      `${asTime(steps[0] * us)} to ${asTime(steps[steps.length - 1] * us)}`)
      : traceCard('Span', withPrefix(report.span_us * us, 's'), 'from the first work to the last'),
    traceCard('Busy', [(100 * share(report.busy_us)).toFixed(1), '%'], `${asTime(report.busy_us * us)} of ${asTime(report.span_us * us)}`),
    traceCard(report.of_host ? 'Operators' : 'Kernels', [asCount(report.kernels), ''],
      report.kernels ? `${asTime(report.busy_us * us / report.kernels)} each on average` : ''),
    report.communication_us > 0
      ? traceCard('Exposed communication', [(100 * share(report.exposed_communication_us)).toFixed(1), '%'],
        `of ${asTime(report.communication_us * us)} communicating`)
      : traceCard('Idle', [(100 * share(report.idle_us)).toFixed(1), '%'], asTime(report.idle_us * us)),
  ];
  const peak = report.memory.filter(m => m.device !== 'host')[0] || report.memory[0];
  if (peak) cards.push(traceCard('Peak memory', withPrefix(peak.peak_allocated_bytes, 'B'),
    `${peak.device === 'host' ? 'of the host' : `of card ${peak.device}`}, allocated`));
  return element('section', {id: 'overview', class: 'bare', 'aria-label': 'Overview'},
    element('div', {class: 'cards'}, cards), damageText(report.damage));
}

function stackOf(use) {
  const split = splitOf(use), total = Math.max(use.span_us, 1e-9);
  return element('div', {class: 'stack'}, parts.map(([key, color, name]) =>
    element('span', {style: {width: `${100 * split[key] / total}%`, background: color},
      title: `${name}: ${asTime(split[key] * us)}, ${asPercent(split[key] / total)}`})));
}

function drawSplit() {
  const report = rank(), split = splitOf(report), most = 24;
  const row = (name, use, whole) => [
    element('span', {class: whole ? 'name whole' : 'name'}, name), stackOf(use),
    element('span', {class: whole ? 'whole' : ''}, asTime(use.span_us * us))];
  const longest = Math.max(...report.steps.map(step => step.span_us), 1e-9);
  const rows = row('all', report, true).concat(report.steps.slice(0, most).flatMap(step => {
    const cells = row(`step ${step.step}`, step, false);
    cells[1].style.width = `${100 * step.span_us / longest}%`;
    return cells;
  }));
  return section('time', 'Where the time went',
    'The span of a step goes from the begin of its first work to that of the next step’s. ' +
    'What overlaps counts for the first of the parts.',
    element('div', {class: 'steps'}, rows),
    report.steps.length > most ? element('p', {class: 'quiet'},
      `${asCount(report.steps.length - most)} more steps are in the report as JSON.`) : '',
    legend(parts.map(([key, color, name]) => [color, name, asTime(split[key] * us)])));
}

function drawTraceFindings() {
  const found = rank().findings.map((finding, i) => element('li', {},
    element('span', {class: 'rank'}, String(i + 1)),
    element('div', {}, element('h3', {}, shown(finding.what, 300)),
      element('p', {}, shown(finding.remedy, 1000)), element('p', {}, shown(finding.see, 400)),
      element('div', {class: 'chips'},
        element('span', {}, element('b', {}, asPercent(finding.gain_part)), ' of the time at most'),
        element('span', {}, element('b', {}, asTime(finding.gain_us * us)), ' in all'),
        element('span', {}, 'rule ', element('b', {}, shown(finding.rule, 60)))))));
  return section('findings', 'What would help', null,
    found.length ? element('ol', {class: 'findings'}, found)
      : element('p', {class: 'missing'}, 'Nothing that this report knows of is worth a hundredth of the time.'));
}

const causes = {
  host_late: 'the host launches too late',
  synchronization: 'the host had waited for the card',
  step_end: 'the host launches too late between two steps',
  stream_dependency: 'the next work waits for another stream',
  kernel_boundary: 'the next kernel begins late though launched in time',
  unknown: 'the trace does not tell',
};

// Draws all that depends on the rank.
function drawRank() {
  const main = document.querySelector('main');
  for (const old of main.querySelectorAll('section')) old.remove();
  const contents = document.getElementById('contents');
  contents.replaceChildren();
  document.getElementById('subtitle').textContent = traceSubtitle();
  const sections = [drawOverview(), drawTraceFindings(), drawRanks(), drawSplit(), drawLanes(), drawPath(), drawPhases(),
    drawIdle(), drawModules(), drawKernels(), drawTraceOperators(), drawCopies(), drawCounters()].filter(Boolean);
  for (const part of sections) {
    main.append(part);
    contents.append(element('a', {href: `#${part.id}`}, part.getAttribute('aria-label')));
  }
}

function drawTrace() {
  drawTheme();
  const report = rank();
  const name = profile.ranks.length > 1 ? `${profile.ranks.length} ranks` : shown(report.file, 120);
  document.title = `${name} – Ridge trace report`;
  document.getElementById('title').textContent = name;
  document.getElementById('made').textContent =
    'Made by ridge trace report. Prefixes are decimal: 1 MB is 1,000,000 bytes.';
  if (profile.ranks.length > 1) {
    const select = element('select', {'aria-label': 'Rank', onchange: event => {
      chosen = Number(event.target.value);
      drawRank();
    }}, profile.ranks.map((one, i) => element('option', {value: i}, rankName(one))));
    document.querySelector('.title').append(element('div', {class: 'controls'}, select));
  }
  drawRank();
}
