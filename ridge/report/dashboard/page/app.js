// The page as a whole: which view is shown, as the address says, and the keyboard.

const views = {
  runs: ['Runs', viewRuns], trends: ['Trends', viewTrends], studies: ['Studies', viewStudies],
  live: ['Live', viewLive], run: [null, viewRun], compare: [null, viewCompare],
};
let current = null;  // {name, element, update, leave}

const hashOf = (name, params = {}) => {
  const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== undefined && v !== ''));
  return `#${name}${query.size === 0 || String(query) === '' ? '' : `?${query}`}`;
};
function placeOf(hash) {
  const [name, query = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  const known = Object.hasOwn(views, name) && !(exported && name === 'live');
  return {name: known ? name : 'runs', params: known ? Object.fromEntries(new URLSearchParams(query)) : {}};
}
// Shows a view; what was shown stays behind the button to go back.
function goTo(name, params) { location.hash = hashOf(name, params); }

function setTitle(title, subtitle) {
  document.getElementById('title').textContent = title;
  document.getElementById('subtitle').textContent = subtitle;
  document.title = `${title} – Ridge`;
}

async function show() {
  const {name, params} = placeOf(location.hash);
  const holder = document.getElementById('view');
  hideTooltip();
  if (!current || current.name !== name) {
    if (current && current.leave) current.leave();
    current = {name, ...views[name][1](params)};
    holder.replaceChildren(current.element);
    setTitle(current.title, '');
    scrollTo(0, 0);
  }
  for (const link of document.querySelectorAll('#contents a'))
    link.toggleAttribute('aria-current', link.hash === `#${name}`);
  holder.setAttribute('aria-busy', 'true');
  const shownNow = current;
  try {
    await current.update(params);
  } catch (error) {
    if (current === shownNow)
      holder.prepend(element('p', {class: 'fault', role: 'alert'}, shown(error.message, 400)));
  }
  if (current === shownNow) holder.setAttribute('aria-busy', 'false');
}

const shortcuts = [
  ['/', 'go to the filter or the search'], ['j, k', 'next and previous row'],
  ['Enter', 'open the row, or the point of a chart'], ['x', 'choose the row, to compare'],
  ['c', 'compare the chosen runs'], ['← →', 'points of a chart that has the focus'],
  ['1 to 4', 'runs, trends, studies, live'], ['Esc', 'leave a field, go back'], ['?', 'this list'],
];

function rowsOfView() { return [...document.querySelectorAll('#view tbody tr[tabindex]')]; }
function moveRow(by) {
  const rows = rowsOfView();
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement.closest('tr'));
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))].focus();
}
const focused = selector => document.activeElement.closest(selector);

const keys = {
  '/': () => {
    const field = document.querySelector('#view input[type=search]');
    if (field) { field.focus(); field.select(); }
  },
  j: () => moveRow(1), k: () => moveRow(-1),
  Enter: () => {
    const link = document.activeElement.matches('tr') && document.activeElement.querySelector('a');
    if (!link) return false;
    location.hash = link.hash;
  },
  x: () => { const row = focused('tr[data-run]'); if (row) row.dispatchEvent(new Event('toggle-choice')); },
  c: () => { const button = document.querySelector('#view .action'); if (button) button.click(); },
  '?': () => document.getElementById('help').showModal(),
  Escape: () => {
    if (!document.getElementById('tooltip').hidden) hideTooltip();
    else if (document.activeElement !== document.body && document.activeElement !== document.documentElement)
      document.activeElement.blur();
    else if (history.length > 1 && location.hash) history.back();
  },
};
for (const [i, name] of ['runs', 'trends', 'studies', 'live'].entries())
  keys[String(i + 1)] = () => { location.hash = name; };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById('help').open) return;
  const types = event.target.matches('input:not([type=checkbox]), select, textarea');
  if (types && event.key !== 'Escape') return;
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (act && act() !== false) event.preventDefault();
}

async function tellStore() {
  const made = document.getElementById('made');
  const store = await ask('store');
  const parts = [`${shown(store.file, 200)}: ${asCount(store.runs)} runs in ${asBytes(store.bytes)}, shown by ridge ${shown(store.ridge_version, 30)}.`];
  if (exported)
    parts.push(`Exported ${asMinute(exported.exported.when)} UTC: ` +
      (exported.exported.runs < exported.exported.total
        ? `the newest ${asCount(exported.exported.runs)} of ${asCount(exported.exported.total)} runs` : `${asCount(exported.exported.runs)} runs`) +
      (exported.exported.filter ? ` of the filter ${shown(exported.exported.filter, 200)}.` : '.'));
  made.textContent = parts.join(' ');
}

function startDashboard() {
  drawTheme();
  const contents = document.getElementById('contents'), help = document.getElementById('help');
  for (const [name, [title]] of Object.entries(views))
    if (title && !(exported && name === 'live')) contents.append(element('a', {href: `#${name}`}, title));
  document.getElementById('help-rows').append(plainTable(shortcuts));
  document.getElementById('help-button').addEventListener('click', () => help.showModal());
  addEventListener('keydown', onKey);
  addEventListener('hashchange', show);
  show();
  tellStore().catch(error => { document.getElementById('made').textContent = shown(error.message, 200); });
}
