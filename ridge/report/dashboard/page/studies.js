// Studies: what was measured of each variant, the laws that it follows, and what that answers.

function studyList(studies) {
  if (!studies.length) return missing('studies', null, 'This store has no studies.');
  return section('studies', null, null, element('div', {class: 'scroll'}, element('table', {class: 'left'},
    element('thead', {}, element('tr', {}, ['Study', 'Runs', 'First (UTC)', 'Last (UTC)'].map(name =>
      element('th', {scope: 'col'}, name)))),
    element('tbody', {}, studies.map(study => element('tr', {tabindex: '-1'},
      element('td', {}, element('a', {href: hashOf('studies', {study: study.name})}, shown(study.name, 120))),
      element('td', {}, asCount(study.runs)), element('td', {}, dateOf(study.first)),
      element('td', {}, dateOf(study.last))))))));
}

// Head, and the text of a variant; a column of which no variant knows anything is left out.
const variantColumns = [
  ['Step', v => v.median_seconds === null ? '' : asTime(v.median_seconds)],
  ['From, to', v => v.spread_seconds ? `${asTime(v.spread_seconds[0])} to ${asTime(v.spread_seconds[1])}` : ''],
  ['Samples/s', v => v.samples_per_second === null ? '' : asRate(v.samples_per_second)],
  ['Tokens/s', v => v.tokens_per_second === null ? '' : asRate(v.tokens_per_second)],
  ['Peak memory', v => v.peak_bytes === null ? '' : asBytes(v.peak_bytes)],
  ['Planned', v => v.planned_peak_bytes ? asBytes(v.planned_peak_bytes) : ''],
  ['FLOP/s', v => v.flops_per_second === null ? '' : asFlopRate(v.flops_per_second)],
  ['Of peak', v => v.utilization === null ? '' : asPercent(v.utilization)],
  ['Parameters', v => v.parameters ? asCount(v.parameters) : ''],
];

function variantTable(variants) {
  const columns = variantColumns.filter(([, text]) => variants.some(v => text(v) !== ''));
  const newest = variant => variant.rounds.length ? variant.rounds[variant.rounds.length - 1].run : null;
  const name = variant => {
    const text = shown(variant.name, 160), run = newest(variant);
    return run === null ? text : element('a', {href: runHref(run)}, text);
  };
  return element('div', {class: 'scroll'}, element('table', {},
    element('thead', {}, element('tr', {}, ['Variant', 'Rounds', ...columns.map(([head]) => head), 'Outcome']
      .map(head => element('th', {scope: 'col'}, head)))),
    element('tbody', {}, variants.map(variant => element('tr', {tabindex: '-1'},
      element('td', {title: shown(variant.name, 400)}, name(variant)),
      element('td', {}, asCount(variant.rounds.length)),
      columns.map(([, text]) => element('td', {}, text(variant) || '–')),
      element('td', {title: shown(variant.outcome, 400)}, shown(variant.outcome, 60)))))));
}

const lawTitle = law => `${law.quantity} by ${shown(law.axis, 60)}`;
const lawValue = (law, y) => `${+y.toPrecision(4)}\u00a0${law.unit}`;

// Medians with their spread over the rounds, and the law through them; a color for each setting of
// the other options.
function lawChart(chart, laws, logs) {
  const series = laws.flatMap((law, i) => [
    {name: law.where || 'measured', color: colorOf(i), kind: 'dots', points: law.points.map(p => ({x: p.x, y: p.y}))},
    ...law.points.filter(p => p.spread).map(p => ({color: colorOf(i), kind: 'line',
      points: p.spread.map(y => ({x: p.x, y}))})),
    {color: colorOf(i), kind: 'line', points: law.curve.map(([x, y]) => ({x, y}))}]);
  const [law] = laws;
  chart.tell({series, x: {label: shown(law.axis, 60), format: asNumber, log: logs},
    y: {format: y => lawValue(law, y), log: logs, zero: !logs},
    tip: (p, s) => [element('h3', {}, shown(s.name, 120)), tooltipRows([[shown(law.axis, 60), asNumber(p.x)],
      [law.quantity, lawValue(law, p.y)]])]});
}

function lawTable(laws) {
  const heads = ['Where', 'Law', 'Growth', 'Power', 'Error'];
  return element('div', {class: 'scroll'}, element('table', {class: 'left'},
    element('thead', {}, element('tr', {}, heads.map(name => element('th', {scope: 'col'}, name)))),
    element('tbody', {}, laws.map((law, i) => element('tr', {},
      element('td', {}, swatch(colorOf(i)), shown(law.where || 'all', 120)),
      element('td', {}, law.text ? code(law.text) : '–'), element('td', {}, law.growth_text || '–'),
      element('td', {}, law.power_text || '–'),
      element('td', {}, law.error === null ? '–' : asPercent(law.error)))))));
}

function answerSection(answers) {
  if (!answers.length) return null;
  const headings = [...new Set(answers.map(a => a.heading))];
  return section('answers', 'Answers', null, headings.flatMap(heading => [element('h3', {class: 'apart'}, heading),
    element('dl', {class: 'answers'}, answers.filter(a => a.heading === heading).flatMap(a =>
      [element('dt', {}, a.question), element('dd', {}, shown(a.answer, 4000))]))]));
}

function viewStudies(first) {
  const box = element('div', {});
  let drawn = null, chart = null, below = null, select = null, params = first;
  const change = next => goTo('studies', {...params, ...next});

  async function drawStudy(next) {
    const reply = await ask('study', {study: next.study});
    const titles = [...new Set(reply.laws.map(lawTitle))];
    select = element('select', {'aria-label': 'Law', onchange: () => change({law: select.value})},
      titles.map(title => element('option', {value: title}, title)));
    chart = makeChart('A law of the study', 340);
    below = element('div', {});
    const logs = choice('Axes', [['linear', 'Linear'], ['log', 'Logarithmic']], next.axes || 'linear',
      value => change({axes: value}));
    const says = reply.gathered
      ? 'These runs carry the name of a study that this store does not have: they are put together by their options.'
      : `${asCount(reply.measured)} of ${asCount(reply.measured + reply.left)} measurements are done, in ${asCount(reply.rounds)} ${reply.rounds === 1 ? 'round' : 'rounds'}.`;
    box.replaceChildren(...[
      section('variants', 'Variants', `${says} Medians over the rounds; each links to its newest run.`,
        variantTable(reply.variants), reply.notes.map(note => element('p', {class: 'note'}, shown(note, 400)))),
      titles.length ? section('laws', 'Laws', 'How a quantity follows from what was varied, with 95 % intervals of ' +
        'the coefficients where there are points enough.', element('div', {class: 'controls'}, select, logs),
      chart.element, below)
        : missing('laws', 'Laws', 'No option with a number was varied, or too little is measured: there is nothing to draw.'),
      answerSection(reply.answers)].filter(Boolean));
    drawn = {study: next.study, reply, titles};
  }

  async function update(next) {
    params = next;
    if (!next.study) {
      drawn = null;
      setTitle('Studies', '');
      box.replaceChildren(studyList((await ask('studies')).studies));
      return;
    }
    setTitle(`Study ${shown(next.study, 80)}`, '');
    try {
      if (!drawn || drawn.study !== next.study) await drawStudy(next);
      const {titles, reply} = drawn;
      if (!titles.length) return;
      select.value = titles.includes(next.law) ? next.law : titles[0];
      const laws = reply.laws.filter(law => lawTitle(law) === select.value);
      lawChart(chart, laws, next.axes === 'log');
      below.replaceChildren(lawTable(laws));
    } catch (error) {
      box.replaceChildren(element('p', {class: 'fault', role: 'alert'}, shown(error.message, 400)));
    }
  }
  return {title: 'Studies', element: box, update};
}
