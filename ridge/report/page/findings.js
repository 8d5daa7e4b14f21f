// What the analysis found, best worth first, and the questions of the exercises.

function evidence(finding) {
  const chips = [];
  const add = (figure, words) => chips.push(element('span', {}, element('b', {}, figure), ` ${words}`));
  if (finding.share > 0) add(asPercent(finding.share), 'of the step');
  if (finding.ratio > 0) add(`${finding.ratio.toFixed(1)}×`, 'its floor');
  if (finding.estimated_seconds_saved > 0)
    add(`${asTime(finding.estimated_seconds_saved)} (${asPercent(finding.estimated_share_saved)})`,
      'a step would be saved, by estimate');
  if (finding.bytes_saved > 0) add(asBytes(finding.bytes_saved), 'not moved');
  if (finding.kernels_saved > 0) add(asCount(finding.kernels_saved), 'fewer kernels a step');
  if (finding.activation_bytes_saved > 0) add(asBytes(finding.activation_bytes_saved), 'not held');
  return element('div', {class: 'chips'}, chips);
}

// The first few; the others wait for a click.
function rankedList(found, first = 5) {
  const list = element('ol', {class: 'findings'}, found);
  const others = found.slice(first);
  for (const item of others) item.hidden = true;
  const more = element('button', {type: 'button', class: 'more', 'aria-expanded': 'false',
    onclick: () => {
      const open = more.getAttribute('aria-expanded') === 'false';
      for (const item of others) item.hidden = !open;
      more.setAttribute('aria-expanded', String(open));
      more.textContent = open ? `Show only the first ${first}` : `Show ${others.length} more`;
    }}, `Show ${others.length} more`);
  return others.length ? [list, more] : list;
}

function drawFindings() {
  const title = 'Findings', report = profile.bottlenecks;
  if (!report)
    return missing('findings', title, 'There is no bottlenecks.json: when this profile was taken, the ' +
      'machine’s ceilings were not known. Measure them once with ', code('ridge roofline'),
    ', then profile again.');
  const found = report.findings.map((finding, i) => element('li', {},
    element('span', {class: 'rank'}, String(i + 1)),
    element('div', {}, element('h3', {}, shown(finding.name, 160)),
      element('p', {}, shown(finding.text, 2000)), evidence(finding))));
  const questions = (report.questions || []).flatMap(({question, answer}) =>
    [element('dt', {}, shown(question, 300)), element('dd', {}, shown(answer, 3000))]);
  return section('findings', title,
    'What would make a step faster or smaller, ranked by estimated worth, with the evidence. A floor ' +
    'is the least time that the machine’s ceilings allow.',
    found.length ? rankedList(found)
      : element('p', {class: 'missing'}, 'Nothing that is known would help.'),
    questions.length ? [element('h3', {class: 'apart'}, 'Questions'), element('dl', {class: 'questions'}, questions)]
      : '');
}
