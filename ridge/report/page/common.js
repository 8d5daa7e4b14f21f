// What the sections share: the profile, words for figures, elements, the tooltip, the page.

// Of a report it is the page's; the dashboard sets it to that of the run it shows.
const embedded = document.getElementById('profile');
let profile = embedded && JSON.parse(embedded.textContent);

// Names come from anywhere: what no one could see is written out, and 10 kB of name is cut.
function printable(name) {
  return String(name).replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}
function shown(name, length = 300) {
  const characters = Array.from(printable(name));
  return characters.length <= length ? characters.join('')
    : characters.slice(0, length - 1).join('') + '…';
}

// "16.1" and "GB" of 16.1e9 and "B": three digits and a decimal prefix.
function withPrefix(value, unit) {
  if (!Number.isFinite(value)) return ['–', ''];
  if (value === 0) return ['0', unit];
  const prefixes = ['n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
  const least = unit === 's' ? -3 : 0;
  let power = Math.floor(Math.log10(Math.abs(value)) / 3 + 1e-9);
  power = Math.max(least, Math.min(power, unit === 's' ? 0 : 6));
  let scaled = value / 10 ** (3 * power);
  if (Math.abs(scaled) >= 999.5 && power < (unit === 's' ? 0 : 6)) {
    power += 1;
    scaled /= 1000;
  }
  const size = Math.abs(scaled);
  const whole = unit !== 's' && power === 0 && Number.isInteger(scaled);
  const digits = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return [scaled.toFixed(digits), (prefixes[power + 3] + unit)];
}
const joined = ([figure, unit]) => unit ? `${figure}\u00a0${unit}` : figure;
const asTime = seconds => joined(withPrefix(seconds, 's'));
const asBytes = bytes => joined(withPrefix(bytes, 'B'));
const asFlops = flops => joined(withPrefix(flops, 'FLOP'));
const asFlopRate = rate => joined(withPrefix(rate, 'FLOP/s'));
const asByteRate = rate => joined(withPrefix(rate, 'B/s'));
// For axes: without zeros behind the point.
const asTick = text => value => text(value).replace(/\.0+(?=\u00a0)|(\.\d*?)0+(?=\u00a0)/, '$1');
const asPercent = share => `${(100 * share).toFixed(1)}\u00a0%`;
const thousands = new Intl.NumberFormat('en-US');
const asCount = count => thousands.format(Math.round(count));

// An element with attributes ("on..." are listeners, "style" an object) and children; strings
// become text, never markup.
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(node.style, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return node;
}
const swatch = color => element('span', {class: 'swatch', style: {background: color}});

// A section of the page, with a sentence of what it shows.
function section(id, title, says, ...children) {
  const head = title ? [element('h2', {}, title)] : [];
  if (says) head.push(element('p', {class: 'says'}, says));
  return element('section', {id, 'aria-label': title || id}, head, children);
}
function missing(id, title, ...words) {
  return section(id, title, null, element('p', {class: 'missing says'}, words));
}
const code = text => element('code', {}, text);

function plainTable(entries) {
  return element('table', {class: 'plain'}, element('tbody', {}, entries.map(([name, value]) =>
    element('tr', {}, element('th', {scope: 'row'}, shown(name, 80)),
      element('td', {}, value instanceof Node ? value : shown(value, 400))))));
}

// A row of buttons of which one is chosen.
function choice(label, options, chosen, onChoose) {
  const group = element('div', {class: 'choice', role: 'group', 'aria-label': label});
  for (const [value, text] of options)
    group.append(element('button', {
      type: 'button', 'data-value': value, 'aria-pressed': String(value === chosen),
      onclick: event => {
        for (const button of group.children)
          button.setAttribute('aria-pressed', String(button === event.currentTarget));
        onChoose(value);
      },
    }, text));
  return group;
}

function legend(entries) {
  return element('ul', {class: 'legend'}, entries.map(([color, name, figure]) =>
    element('li', {}, swatch(color), name, figure ? ' ' : '',
      figure ? element('b', {}, figure) : '')));
}

const tooltip = document.getElementById('tooltip');
function showTooltip(x, y, ...children) {
  tooltip.replaceChildren(...children.flat());
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect(), gap = 14;
  const left = x + gap + box.width <= innerWidth - 8 ? x + gap : x - gap - box.width;
  const top = Math.min(y + gap, innerHeight - 8 - box.height);
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
}
function hideTooltip() { tooltip.hidden = true; }
function tooltipRows(rows) {
  return element('div', {class: 'rows'}, rows.flatMap(([name, figure, color]) =>
    [element('span', {}, color ? swatch(color) : '', name), element('span', {}, figure)]));
}

// Draws now, and again whenever the width changes.
function onWidth(container, draw) {
  let width = 0;
  new ResizeObserver(entries => {
    const now = Math.floor(entries[0].contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    draw(width);
  }).observe(container);
}

function axis(svg, generator, x, y) {
  return svg.append('g').attr('class', 'axis').attr('transform', `translate(${x},${y})`)
    .call(generator);
}

// Files of a recording number steps as the run printed them: a benchmark's from 0, after those that
// warm up. The record counts all of them from 1.
function printedStep(step) {
  const run = profile.performance_summary && profile.performance_summary.performance_summary;
  if (!run || !run.recorded_steps.length || !profile.operators) return step;
  return step - (run.first_step + run.recorded_steps[0] - profile.operators.first_step);
}

const phaseColors = {forward: 'var(--blue)', backward: 'var(--coral)', optimizer: 'var(--teal)'};

function drawTheme() {
  const button = document.getElementById('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = null;
  const apply = () => {
    const theme = chosen || (system.matches ? 'dark' : 'light');
    document.documentElement.dataset.theme = theme;
    document.documentElement.style.colorScheme = theme;
    button.textContent = theme === 'dark' ? 'Light' : 'Dark';
  };
  button.addEventListener('click', () => {
    chosen = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    apply();
  });
  system.addEventListener('change', apply);
  apply();
}

function drawPage() {
  drawTheme();
  const name = shown(profile.profile || profile.directory, 120);
  document.title = `${name} – Ridge report`;
  document.getElementById('title').textContent = name;
  document.getElementById('subtitle').textContent = subtitle();
  document.getElementById('made').textContent = madeBy();
  const main = document.querySelector('main');
  const contents = document.getElementById('contents');
  const sections = [drawSummary(), drawFindings(), drawSteps(), drawOperators(), drawIcicle(),
    drawTimeline(), drawSystem(), drawRoofline(), drawUnits(), drawEnvironment()].filter(Boolean);
  for (const part of sections) {
    main.append(part);
    contents.append(element('a', {href: `#${part.id}`}, part.getAttribute('aria-label')));
  }
}
