// The tree of modules as an icicle: a module's height is its share of its parent.

const icicleMeasures = {
  time: {name: 'Time', own: m => m.self.all.time_ns * 1e-9, text: asTime,
    says: 'time in kernels, per step'},
  flops: {name: 'FLOPs', own: m => m.self.all.flops, text: asFlops, says: 'FLOPs of a step'},
  memory: {name: 'Memory', text: asBytes,
    says: 'bytes alive at the memory peak'},
};

// What a module itself holds at the peak; of an older profile, its parameters' bytes in fp32.
function memoryOfModules() {
  const held = profile.memory && profile.memory.peak.bytes_by_module;
  return held ? m => held[m.path] || 0 : m => 4 * m.self.parameters;
}

// Modules of one kind have one color, whichever layer they are in.
function kindOfModule(path) {
  return path.split('.').find(part => part !== 'layers' && !/^\d*$/.test(part)) || '';
}

function drawIcicle() {
  const title = 'Modules';
  if (!profile.modules || !profile.modules.modules.length)
    return missing('modules', title, 'This directory has no modules.json. Profile again to get it.');
  icicleMeasures.memory.own = memoryOfModules();
  const list = profile.modules.modules;
  const kinds = d3.scaleOrdinal().range(['--blue', '--coral', '--teal', '--yellow', '--purple',
    '--pink', '--green', '--brown', '--sky']);
  const chart = element('div', {class: 'icicle', role: 'group', 'aria-label': 'Modules'});
  const crumbs = element('nav', {class: 'crumbs', 'aria-label': 'Path of the module in view'});
  const says = element('span');
  const cells = new Map();
  let measure = 'time', focus = 0, root;

  function measured() {
    const own = icicleMeasures[measure].own;
    root = d3.stratify().id((m, i) => i).parentId(m => m.parent)(list);
    root.sum(own);
    d3.partition().size([1, root.height + 1])(root);
  }

  function background(node) {
    const kind = kindOfModule(node.data.path);
    if (!kind) return 'var(--stripe)';
    const deep = node.data.path.split('.').length;
    return `color-mix(in srgb, var(${kinds(kind)}) ${Math.max(30, 74 - 9 * deep)}%, var(--card))`;
  }

  function draw() {
    const all = root.descendants(), at = all.find(node => Number(node.id) === focus) || root;
    const columns = at.height + 1, tall = chart.clientHeight || 520;
    const span = at.x1 - at.x0 || 1, {text} = icicleMeasures[measure];
    const drawn = new Set();
    for (const node of at.descendants()) {
      const height = (node.x1 - node.x0) / span * tall;
      if (height < 0.8 || (node.value === 0 && node !== at)) continue;
      drawn.add(node.id);
      if (!cells.has(node.id)) {
        const made = element('button', {type: 'button'});
        cells.set(node.id, made);
        chart.append(made);
      }
      const cell = cells.get(node.id);
      Object.assign(cell.style, {
        left: `${100 * (node.depth - at.depth) / columns}%`, width: `${100 / columns}%`,
        top: `${(node.x0 - at.x0) / span * tall}px`, height: `${height}px`,
        background: background(node), borderWidth: height < 4 ? '0' : '1px',
      });
      const name = shown(node.data.name || '(model)', 80);
      cell.replaceChildren(...(height < 17 ? [] : [name, element('small', {}, text(node.value))]));
      cell.setAttribute('aria-label', `${shown(node.data.path || '(model)', 120)}, ${text(node.value)}`);
      cell.tabIndex = height < 12 ? -1 : 0;
      cell.dataset.value = node.value;
      cell.dataset.path = shown(node.data.path, 120);
      cell.onclick = () => zoom(node === at && node.parent ? node.parent : node);
      cell.onpointermove = event => tip(event, node, at);
      cell.onpointerleave = hideTooltip;
    }
    for (const [id, cell] of cells)
      if (!drawn.has(id)) {
        cell.remove();
        cells.delete(id);
      }
    crumbs.replaceChildren(...at.ancestors().reverse().flatMap((node, i) => [
      i ? element('span', {}, '›') : null,
      element('button', {type: 'button', 'aria-current': node === at ? 'true' : null,
        onclick: () => zoom(node)}, shown(node.data.name || '(model)', 60))].filter(Boolean)));
    says.textContent = icicleMeasures[measure].says;
  }

  function tip(event, node, at) {
    const m = node.data, {text, own} = icicleMeasures[measure];
    const rows = [[icicleMeasures[measure].name, text(node.value)],
      ['of it by itself', text(own(m))],
      ['share of the model', asPercent(root.value ? node.value / root.value : 0)]];
    if (at !== root)
      rows.push([`share of ${shown(at.data.name, 30)}`, asPercent(at.value ? node.value / at.value : 0)]);
    rows.push(['parameters', asCount(m.total.parameters)]);
    for (const phase of Object.keys(phaseColors))
      rows.push([`time in ${phase}`, asTime(m.total[phase].time_ns * 1e-9), phaseColors[phase]]);
    showTooltip(event.clientX, event.clientY, element('h3', {}, shown(m.path || '(model)', 160)),
      tooltipRows(rows));
  }

  function zoom(node) {
    hideTooltip();
    focus = Number(node.id);
    draw();
  }

  measured();
  onWidth(chart, draw);
  const names = Object.entries(icicleMeasures).map(([key, {name}]) => [key, name]);
  return section('modules', title,
    element('span', {}, 'Each block is a module beside its submodules, as high as its share of them: ',
      says, '. What a module does by itself is the empty stretch beside it. Click to zoom in.'),
    element('div', {class: 'controls'}, choice('Measure', names, measure, value => {
      measure = value;
      measured();
      draw();
    }), crumbs), chart);
}
