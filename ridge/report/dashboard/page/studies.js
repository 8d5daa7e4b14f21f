// Studies: runs that were made together, by variant, and one quantity of them against another.

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

function variantTable(reply) {
  const metrics = reply.quantities.y;
  const cell = (variant, name) => {
    const spread = variant.metrics[name];
    if (!spread) return '–';
    const text = columnText(name, spread.median);
    return element('span', {title: `${columnText(name, spread.least)} to ${columnText(name, spread.largest)}`}, text);
  };
  return element('div', {class: 'scroll'}, element('table', {},
    element('thead', {}, element('tr', {}, element('th', {scope: 'col'}, 'Variant'),
      ['Runs', ...metrics.map(columnName)].map(name => element('th', {scope: 'col'}, name)))),
    element('tbody', {}, reply.variants.map(variant => element('tr', {tabindex: '-1'},
      element('td', {title: shown(variant.label, 400)}, element('a', {href: runHref(variant.newest)}, shown(variant.label, 160))),
      element('td', {}, asCount(variant.runs)), metrics.map(name => element('td', {}, cell(variant, name))))))));
}

// Points, and beside them the simplest law that fits and a power.
function fitChart(chart, reply, logs) {
  const series = reply.series.flatMap((s, i) => [
    {name: s.label, color: colorOf(i), kind: 'dots', points: s.points.map(([x, y, run]) => ({x, y, run}))},
    ...s.fits.map(fit => ({color: colorOf(i), kind: 'line', dashed: fit.form === 'power',
      points: fit.curve.map(([x, y]) => ({x, y}))}))]);
  chart.tell({series, x: {label: columnName(reply.x), format: v => columnText(reply.x, v), log: logs},
    y: {format: v => columnText(reply.y, v), log: logs, zero: !logs},
    tip: (p, s) => [element('h3', {}, shown(s.name, 120)), tooltipRows([[columnName(reply.x), columnText(reply.x, p.x)],
      [columnName(reply.y), columnText(reply.y, p.y)], ['run', String(p.run)]])],
    pick: p => p.run && goTo('run', {run: p.run})});
}

function fitTable(reply) {
  return element('div', {class: 'scroll'}, element('table', {class: 'left'},
    element('thead', {}, element('tr', {}, ['Series', 'Law', 'Form', 'Error'].map(name => element('th', {scope: 'col'}, name)))),
    element('tbody', {}, reply.series.flatMap((s, i) => s.fits.map(fit => element('tr', {},
      element('td', {}, swatch(colorOf(i)), shown(s.label, 120)), element('td', {}, code(fit.text)),
      element('td', {}, fit.form), element('td', {}, asPercent(fit.error))))))));
}

function viewStudies(first) {
  const box = element('div', {});
  let drawn = null, chart = null, below = null, selects = null, params = first;
  const change = next => goTo('studies', {...params, ...next});

  async function drawStudy(next) {
    const reply = await ask('study', {study: next.study});
    const pick = (label, key, names) => {
      const select = element('select', {'aria-label': label, onchange: () => change({[key]: select.value})},
        names.map(name => element('option', {value: name}, columnName(name))));
      return select;
    };
    selects = {x: pick('Across', 'x', reply.quantities.x), y: pick('Up', 'y', reply.quantities.y)};
    chart = makeChart('Quantities of the study', 340);
    below = element('div', {});
    const logs = choice('Axes', [['linear', 'Linear'], ['log', 'Logarithmic']], next.axes || 'linear',
      value => change({axes: value}));
    const says = reply.shown < reply.runs ? `The newest ${asCount(reply.shown)} of ${asCount(reply.runs)} runs.` : `${asCount(reply.runs)} runs.`;
    box.replaceChildren(
      section('variants', 'Variants', `${says} Medians; each links to its newest run.`, variantTable(reply)),
      reply.quantities.x.length ? section('laws', 'Laws', 'The simplest of a line and a parabola that fits, drawn ' +
        'through, and a power, dashed; by least squares of the relative differences.',
      element('div', {class: 'controls'}, element('label', {}, 'Across ', selects.x),
        element('label', {}, 'Up ', selects.y), logs), chart.element, below)
        : missing('laws', 'Laws', 'All runs of the study have the same sizes: there is nothing to draw them over.'));
    drawn = {study: next.study, reply};
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
      const {x, y} = drawn.reply.quantities;
      if (!x.length || !y.length) return;
      selects.x.value = x.includes(next.x) ? next.x : x[0];
      selects.y.value = y.includes(next.y) ? next.y : y.includes('median_seconds') ? 'median_seconds' : y[0];
      const reply = await ask('fits', {study: next.study, x: selects.x.value, y: selects.y.value});
      fitChart(chart, reply, next.axes === 'log');
      below.replaceChildren(fitTable(reply));
    } catch (error) {
      box.replaceChildren(element('p', {class: 'fault', role: 'alert'}, shown(error.message, 400)));
    }
  }
  return {title: 'Studies', element: box, update};
}
