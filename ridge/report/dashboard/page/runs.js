// The table of runs.

const usualColumns = ['id', 'created', 'workload', 'version', 'dtype', 'batch_size', 'median_seconds',
  'samples_per_second', 'peak_bytes', 'final_loss', 'commit', 'tags'];
const runsPerPage = 50;

// Words as a filter, so that a server searches all runs and not only those of the page.
function searchFilter(search) {
  const quoted = word => `'${word.replaceAll("'", "''")}'`;
  return wordsOf(search).map(word => `(${['workload', 'mode', 'version', 'dtype', 'gpu', 'cpu',
    'commit', 'tag'].map(name => `${name}~${quoted(word)}`).join(' or ')})`).join(' and ');
}
const bothFilters = (filter, search) => {
  const words = searchFilter(search);
  return filter && words ? `(${filter}) and ${words}` : filter || words;
};

// A line with a filter, which an exported page does without, and a search.
function filterControls(params, placeholder, onChange) {
  const field = (name, label, hint) => {
    const input = element('input', {type: 'search', id: name, placeholder: hint, 'aria-label': label,
      class: name, spellcheck: 'false', autocomplete: 'off', onkeydown: event => {
        if (event.key === 'Enter') onChange({[name]: input.value.trim()});
      }, onchange: () => onChange({[name]: input.value.trim()})});
    input.value = params[name] || '';
    return input;
  };
  const filter = exported ? null : field('filter', 'Filter', placeholder);
  return [filter, field('search', 'Search words', 'Search words')].filter(Boolean);
}

function viewRuns(first) {
  let params = first, asked = 0, chosen = new Set((first.select || '').split(',').filter(Boolean));
  const body = element('tbody'), head = element('tr'), fault = element('p', {class: 'fault', role: 'alert'});
  const count = element('span', {class: 'count', role: 'status'});
  const compare = element('button', {type: 'button', class: 'action', onclick: compareChosen}, 'Compare');
  const pages = element('nav', {class: 'pages', 'aria-label': 'Pages'});
  const change = next => goTo('runs', {...params, offset: '', ...next});
  const controls = filterControls(params,
    'Filter: version=v4 and batch_size>=8', next => change(next));
  const table = element('table', {class: 'runs'}, element('thead', {}, head), body);
  const chooser = element('details', {class: 'chooser'});
  const columnsShown = () => params.cols ? params.cols.split(',') : usualColumns;

  function compareChosen() {
    if (chosen.size >= 2) goTo('compare', {runs: [...chosen].join(',')});
  }
  function choose(id, row, box) {
    if (!chosen.has(id) && chosen.size < 4) chosen.add(id);
    else chosen.delete(id);
    box.checked = chosen.has(id);
    row.classList.toggle('chosen', box.checked);
    tellChosen();
    params = {...params, select: [...chosen].join(',')};
    history.replaceState(null, '', hashOf('runs', params));  // rows and the focus stay as they are
  }
  function tellChosen() {
    compare.disabled = chosen.size < 2;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : 'Compare';
    compare.title = 'Choose two to four runs by their boxes';
  }

  function heads(names, kinds) {
    const column = params.sort || 'created', down = params.direction !== 'ascending';
    return [element('th', {scope: 'col', class: 'box'}, element('span', {class: 'unseen'}, 'Chosen')),
      ...names.map(name => {
        const sorted = name === column ? {'aria-sort': down ? 'descending' : 'ascending'} : {};
        const words = {class: isWords(kinds.get(name)) ? 'words' : null};
        if (name === 'tags') return element('th', {scope: 'col', ...words}, element('span', {class: 'plain-head'}, 'Tags'));
        const turn = name === column && down ? 'ascending' : 'descending';
        return element('th', {scope: 'col', ...words, ...sorted}, element('button', {type: 'button',
          'data-column': name, onclick: () => change({sort: name, direction: turn})},
        columnName(name)));
      })];
  }
  function rowOf(run, names, kinds) {
    const id = String(run.id);
    const box = element('input', {type: 'checkbox', 'aria-label': `Choose run ${id}`,
      onchange: () => choose(id, row, box)});
    box.checked = chosen.has(id);
    const row = element('tr', {tabindex: '-1', 'data-run': id, class: box.checked ? 'chosen' : null},
      element('td', {class: 'box'}, box), names.map(name => element('td',
        {class: isWords(kinds.get(name)) ? 'words' : null, title: isWords(kinds.get(name)) &&
          run[name] && String(run[name]).length > 20 ? shown(run[name], 400) : null},
        name === 'id' ? runLink(run.id, id) : name === 'tags' ? tagList(run.tags)
          : name === 'final_loss' && run.outcome && run.outcome !== 'completed'
            ? shown(run.outcome, 20) : columnText(name, run[name]))));
    row.addEventListener('toggle-choice', () => choose(id, row, box));
    return row;
  }

  function drawPages(total, offset) {
    const turn = (label, to, enabled) => element('button', {type: 'button', disabled: enabled ? null : '',
      onclick: () => goTo('runs', {...params, offset: String(to || '')})}, label);
    const last = Math.min(total, offset + runsPerPage);
    pages.replaceChildren(turn('Newer page', Math.max(0, offset - runsPerPage), offset > 0),
      element('span', {}, total ? `${asCount(offset + 1)} to ${asCount(last)} of ${asCount(total)}` : ''),
      turn('Next page', offset + runsPerPage, last < total));
    pages.firstChild.textContent = 'Previous page';
    pages.hidden = total <= runsPerPage;
  }
  function drawChooser(kinds) {
    const shownNow = new Set(columnsShown());
    const set = (name, on) => {
      const names = [...kinds.keys()].filter(n => n === name ? on : shownNow.has(n));
      goTo('runs', {...params, cols: names.join(',')});
    };
    chooser.replaceChildren(element('summary', {}, 'Columns'), element('div', {class: 'choices'},
      [...kinds.keys()].map(name => {
        const box = element('input', {type: 'checkbox', 'data-column': name,
          onchange: event => set(name, event.target.checked)});
        box.checked = shownNow.has(name);
        return element('label', {}, box, ` ${columnName(name)}`);
      })));
  }

  async function update(next) {
    params = next;
    const question = ++asked;
    chosen = new Set((next.select || '').split(',').filter(Boolean));
    for (const input of controls)
      if (document.activeElement !== input) input.value = next[input.id] || '';
    tellChosen();
    const kinds = new Map((await ask('columns')).columns.map(c => [c.name, c.kind]));
    kinds.set('tags', 'tags');
    const names = columnsShown().filter(name => kinds.has(name));
    drawChooser(kinds);
    let reply;
    try {
      reply = await ask('runs', {filter: exported ? '' : bothFilters(next.filter || '', next.search || ''),
        search: exported ? next.search || '' : '', sort: next.sort || 'created',
        direction: next.direction || 'descending', limit: runsPerPage, offset: +next.offset || 0});
      fault.textContent = '';
    } catch (error) {
      fault.textContent = shown(error.message, 400);
      return;
    }
    if (question !== asked) return;  // the user has asked something else meanwhile
    const focus = head.contains(document.activeElement) ? document.activeElement.dataset.column : null;
    head.replaceChildren(...heads(names, kinds));
    if (focus) head.querySelector(`[data-column=${focus}]`).focus();
    body.replaceChildren(...reply.runs.map(run => rowOf(run, names, kinds)));
    count.textContent = `${asCount(reply.total)} ${reply.total === 1 ? 'run' : 'runs'}`;
    drawPages(reply.total, reply.offset);
  }

  const hint = exported ? 'Runs that were exported.' : ['A filter compares columns, options and paths: ',
    code('version=v4 and gpu~H100'), ', ', code('created>2026-11 or tag=baseline'), ', ',
    code('hidden_dim=512'), '.'];
  const view = section('runs', null, null, element('p', {class: 'says'}, hint),
    element('div', {class: 'controls'}, controls, count, compare, chooser), fault,
    element('div', {class: 'scroll'}, table), pages);
  return {title: 'Runs', element: view, update};
}

const tagList = tags => element('span', {class: 'tags'},
  tags.map(tag => element('span', {class: 'tag'}, shown(tag, 40))));
