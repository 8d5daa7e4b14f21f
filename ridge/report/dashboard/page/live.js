// Runs in progress, as they go.

// What a file of a run in progress says, whoever wrote it.
function liveOf(json) {
  const about = objectOf(json.about), last = objectOf(json.last);
  const lists = {step: listOf(json.step), loss: listOf(json.loss), seconds: listOf(json.seconds), slowest: listOf(json.slowest)};
  return {uuid: String(json.uuid), alive: json.alive === true, about, last, lists, stride: numberOf(json.stride, 1),
    started: numberOf(json.started), written: numberOf(json.written_ms) / 1000};
}

function liveText({about, last, lists, started, written}) {
  const step = numberOf(last.step), all = numberOf(about.last_step);
  const recent = d3.mean(lists.seconds.slice(-20)) || numberOf(last.seconds);
  const left = (all - step) * recent;
  return [
    ['Step', all ? `${asCount(step)} of ${asCount(all)}` : asCount(step)],
    ['Loss', Number.isFinite(last.loss) ? asLoss(last.loss) : '–'],
    ['Step time', last.seconds ? asTime(last.seconds) : '–'],
    ['Memory', last.bytes ? asBytes(last.bytes) : '–'],
    ...(Number.isFinite(last.power_w) ? [['Power', `${last.power_w.toFixed(0)}\u00a0W`]] : []),
    ['Running for', asDuration(written - started)],
    ...(all && left > 0 ? [['Left, about', asDuration(left)]] : []),
  ];
}
function asDuration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s`
    : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

// The card of one run, which is told of each event.
function livePanel(uuid) {
  const loss = makeChart('Loss of the run in progress', 220), time = makeChart('Step times of the run in progress', 220);
  const title = element('h2', {}), state = element('p', {class: 'state', role: 'status'});
  const key = element('div', {});
  const figures = element('div', {class: 'cards'}), bar = element('progress', {'aria-label': 'Progress', max: '1'});
  const panel = element('section', {class: 'live', 'aria-label': 'Run in progress', 'data-uuid': uuid},
    title, state, bar, figures, element('h3', {}, 'Loss'), loss.element, element('h3', {class: 'apart'}, 'Step time'), time.element, key);
  const at = (name, lists) => lists.step.map((x, i) => ({x, y: lists[name][i]}));
  const tip = format => (p, s) => [element('h3', {}, `Step ${asCount(p.x)}`), tooltipRows([[s.name, format(p.y), s.color]])];

  function tell(run) {
    const {about, lists, last} = run;
    title.textContent = ['workload', 'mode', 'version', 'dtype'].map(name => shown(about[name] ?? '', 60)).join(' ');
    say(run.alive ? 'running' : 'died', run.alive ? 'Running' : `Died at step ${asCount(numberOf(last.step))}: its process is gone`,
      [about.batch_size ? `batch ${shown(about.batch_size, 20)}` : '', shown(about.hardware ?? '', 60),
        ...(Array.isArray(about.tags) ? about.tags.map(t => shown(t, 40)) : [])].filter(Boolean).join(' · '));
    const share = numberOf(last.step) / (numberOf(about.last_step) || 1);
    bar.value = Math.min(1, share);
    figures.replaceChildren(...liveText(run).map(([label, value]) => element('div', {class: 'card'},
      element('div', {class: 'label'}, label), element('div', {class: 'value small'}, value))));
    loss.tell({series: [{name: 'loss', color: 'var(--blue)', points: at('loss', lists)}],
      x: {label: 'step', format: asCount}, y: {format: asLossTick}, tip: tip(v => v.toFixed(5))});
    const series = [{name: run.stride > 1 ? 'mean' : 'step', color: 'var(--teal)', points: at('seconds', lists)}];
    if (run.stride > 1) series.unshift({name: 'slowest', color: 'var(--coral)', points: at('slowest', lists)});
    time.tell({series, x: {label: 'step', format: asCount}, y: {format: asTime, zero: true, cap: true}, tip: tip(asTime)});
    key.replaceChildren(run.stride > 1 ? legend([['var(--teal)', `mean of ${asCount(run.stride)} steps`],
      ['var(--coral)', 'the slowest of them']]) : '');
  }
  function say(kind, text, more, ...links) {
    panel.dataset.state = kind;
    state.replaceChildren(element('b', {}, text), more ? ` · ${more}` : '', ...links);
  }
  function end({run, outcome}) {
    if (run === null) return say('ended', 'Ended', 'it was not kept');
    say('ended', `Ended: ${shown(outcome || 'kept', 40)}`, 'kept as ', runLink(run));
  }
  return {element: panel, tell, end};
}

function viewLive() {
  const box = element('div', {}), panels = new Map();
  const idle = section('idle', null, null, element('p', {class: 'says'},
    'No run is in progress. Those of ', code('ridge train'), ' and ', code('ridge bench'), ' appear here while they go, if they will be kept in this store: ',
    code('ridge train --record')));
  const fault = element('p', {class: 'fault', role: 'status'});
  const panelOf = uuid => {
    if (!panels.has(uuid)) {
      panels.set(uuid, livePanel(uuid));
      box.prepend(panels.get(uuid).element);
    }
    idle.hidden = true;
    return panels.get(uuid);
  };
  let source = null;
  function update() {
    setTitle('Live', 'Runs in progress that will be kept in this store.');
    if (source) return;
    source = new EventSource('api/events');
    const hear = (name, then) => source.addEventListener(name, event => then(JSON.parse(event.data)));
    source.onopen = () => { fault.textContent = ''; };
    source.onerror = () => { fault.textContent = 'The server does not answer; trying again.'; };
    hear('live', json => { const run = liveOf(json); panelOf(run.uuid).tell(run); });
    hear('ended', json => panelOf(String(json.uuid)).end(json));
    hear('ready', () => { box.dataset.ready = 'true'; });
  }
  box.append(idle, fault);
  return {title: 'Live', element: box, update, leave: () => source && source.close()};
}
