/*
 * The numbers and plots of the page.  Everything that comes from elsewhere
 * goes into the page as text.
 */

const EACH = 1000;            /* ms between two questions */
const SPANS = [60, 120, 300]; /* points of a plot: as few as will do */
const KEEP = SPANS[SPANS.length - 1];
const WINDOW = 10;            /* points that a latency is made of */

/* what most requests become, which is plotted as a rate ... */

const RESULTS = ['new', 'replayed', 'waited', 'in_progress', 'rejected',
  'missing', 'invalid', 'out_of_order', 'not_issued', 'expired', 'bypassed',
  'off'];

/* ... and what should not happen: each single one is shown */

const EVENTS = [
  ['unknown', 'became unknown', d => sum(d.stores, s => s.unknown.total)],
  ['store_error', 'store errors', d => sum(d.stores, s =>
    Object.values(s.errors).reduce((a, b) => a + b, 0))],
  ['mismatch', 'key reused, other body', d => totals(d).mismatch],
  ['suspect', 'other key, same body', d => sum(d.stores, s =>
    s.suspects.passed + s.suspects.rejected)],
];

const ALL = RESULTS.concat('mismatch', 'unknown', 'store_error');

const points = [];            /* {t, wall, rates, events, stores} */
const samples = [];           /* the last answers, {t, data} */
let hover = null;             /* {svg, x, y}: where the pointer is */

const $ = id => document.getElementById(id);

function sum(list, of) {
  return list.reduce((a, b) => a + of(b), 0);
}

function el(name, attributes, ...children) {
  const svg = ['svg', 'path', 'line', 'text', 'rect'].includes(name);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', name)
                : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    e.setAttribute(key, value);
  for (const child of children)
    e.append(child instanceof Node ? child : String(child));
  return e;
}

function colour(e, property, name) {
  e.style[property] = 'var(--' + name + ')';
  return e;
}

/* ---- words for numbers ---- */

function count(n) {
  return n.toLocaleString('en');
}

function rate(n) {
  return n === 0 ? '0' : n < 10 ? n.toFixed(1) : count(Math.round(n));
}

function bytes(n) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n < 10 && n % 1 ? n.toFixed(1) : Math.round(n)) + ' ' + units[i];
}

function duration(usec) {
  return usec === null ? '–'
       : usec < 1000 ? Math.round(usec) + ' µs'
       : usec < 1e6 ? (usec / 1000).toFixed(usec < 1e4 ? 1 : 0) + ' ms'
       : (usec / 1e6).toFixed(1) + ' s';
}

/* a wall clock, with seconds if they matter */

function clock(t, seconds) {
  return new Date(t * 1000).toLocaleTimeString([], {hour: '2-digit',
    minute: '2-digit', second: seconds ? '2-digit' : undefined,
    hourCycle: 'h23'});
}

function day(t) {
  return new Date(t * 1000).toLocaleString();
}

function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  return s < 60 ? s + ' s'
       : s < 3600 ? Math.floor(s / 60) + ' min ' + s % 60 + ' s'
       : s < 86400 ? Math.floor(s / 3600) + ' h '
                     + Math.floor(s % 3600 / 60) + ' min'
       : Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}

/* ---- from counts to points ---- */

function totals(data) {
  const all = {};
  for (const name of ALL) all[name] = 0;
  for (const l of data.locations.filter(l => !l.dry_run))
    for (const [name, n] of Object.entries(l.results))
      all[name] = (all[name] || 0) + n;
  return all;
}

/* within its bucket a value may be anywhere: in the middle, on average */

function quantile(now, before, q) {
  const n = now.buckets.map((c, i) =>
    c - (before ? before.buckets[i] : 0));
  const all = n.reduce((a, b) => a + b, 0);
  if (all <= 0) return null;
  let left = q * all;
  for (let i = 0; i < n.length; i++) {
    if (left <= n[i]) {
      const low = i ? now.bounds[i - 1] : 0;
      const high = i < now.bounds.length ? now.bounds[i] : 2 * low;
      return low + (high - low) * (n[i] ? left / n[i] : 0);
    }
    left -= n[i];
  }
  return null;
}

function take(data) {
  const t = performance.now() / 1000;
  const last = samples[samples.length - 1];
  samples.push({t, data});
  if (samples.length > WINDOW + 1) samples.shift();
  if (!last) return;

  const point = {t, wall: data.time, rates: {}, events: {}, stores: {}};
  const now = totals(data), before = totals(last.data);
  for (const name of Object.keys(now))
    point.rates[name] = Math.max(0, now[name] - before[name])
                        / Math.max(0.001, t - last.t);
  for (const [name, , of] of EVENTS)
    point.events[name] = Math.max(0, of(data) - of(last.data));

  const first = samples[0].data;
  for (const store of data.stores) {
    const old = first.stores.find(s => s.name === store.name);
    const of = (op, q) => quantile(store[op], old && old[op].count
                                   <= store[op].count ? old[op] : null, q);
    point.stores[store.name] = {
      claim: [of('claim', 0.5), of('claim', 0.99)],
      complete: [of('complete', 0.5), of('complete', 0.99)],
    };
  }

  points.push(point);
  if (points.length > KEEP) points.shift();
}

/*
 * ---- plots: as wide as they are shown, the newest on the right ----
 *
 * A frame knows where a point is, and which one is below the pointer.
 */

function nice(max) {
  const p = Math.pow(10, Math.floor(Math.log10(max)));
  for (const m of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (m * p >= max) return m * p;
  return 10 * p;
}

/* "part" tells how high a value is, from 0 to 1; "marks" have a line */

function frame(svg, part, marks, words, margins) {
  const width = svg.clientWidth || 300, height = svg.clientHeight || 100;
  const {left, right} = margins;
  svg.replaceChildren();
  svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
  const base = height - 18;
  const span = SPANS.find(n => n >= points.length) || KEEP;
  const x = i => left + (width - left - right) * (i + span - points.length)
                 / (span - 1);
  const y = v => base - (base - 6) * part(v);
  for (const mark of marks) {
    const at = y(mark);
    svg.append(el('line', {class: 'grid', x1: left, x2: width - right,
                           y1: at, y2: at}));
    svg.append(el('text', {x: left - 8, y: at + 4, 'text-anchor': 'end'},
                  words(mark)));
  }
  ticks(svg, x, base, height, left, width - right, span);

  let i = null;
  if (hover && hover.svg === svg && points.length) {
    i = Math.round((hover.x - left) / (width - left - right) * (span - 1)
                   - span + points.length);
    i = Math.min(points.length - 1, Math.max(0, i));
  }
  return {svg, x, y, base, width, left, right, at: i,
          step: (width - left - right) / (span - 1)};
}

/* whole minutes, or parts of one if there is only one */

function ticks(svg, x, base, height, left, right, span) {
  const last = points[points.length - 1];
  if (!last) return;
  let each = span > 120 ? 60 : span > 60 ? 30 : 15;
  if ((right - left) * each / span < 64) each *= 2;
  const all = points.length - 1;
  for (let t = Math.floor(last.wall / each) * each;
       t > last.wall - span; t -= each) {
    const at = x(all - (last.wall - t) * 1000 / EACH);
    if (at < left || at > right) continue;
    svg.append(el('line', {class: 'tick', x1: at, x2: at, y1: base,
                           y2: base + 4}));
    if (at > left + 20 && at < right - 20)
      svg.append(el('text', {x: at, y: height - 1, 'text-anchor': 'middle'},
                    clock(t, each < 60)));
  }
}

/* what is below the pointer; lines of [colour, name, value] */

function tip(f, lines) {
  f.svg.append(el('line', {class: 'cross', x1: f.x(f.at), x2: f.x(f.at),
                           y1: 4, y2: f.base}));
  const box = $('tip');
  box.replaceChildren(el('b', {}, clock(points[f.at].wall, true)),
    ...lines.map(([name, word, value]) => el('div', {},
      el('span', {}, name ? colour(el('i'), 'background', name) : '', word),
      el('span', {}, value))));
  box.hidden = false;
  const w = box.offsetWidth, h = box.offsetHeight;
  box.style.left = Math.max(4, Math.min(hover.px + 14,
                                        innerWidth - w - 4)) + 'px';
  box.style.top = Math.max(4, Math.min(hover.py + 14,
                                       innerHeight - h - 4)) + 'px';
}

function follows(svg) {
  svg.addEventListener('pointermove', event => {
    hover = {svg, x: event.clientX - svg.getBoundingClientRect().left,
             px: event.clientX, py: event.clientY};
    plots();
  });
  svg.addEventListener('pointerleave', () => {
    hover = null;
    $('tip').hidden = true;
    plots();
  });
  return svg;
}

const WIDE = {left: 52, right: 8};

function drawRates() {
  const names = RESULTS.filter(name => points.some(p => p.rates[name] > 0));
  const sums = points.map(p => names.reduce((a, n) => a + p.rates[n], 0));
  const top = nice(Math.max(1, ...sums));
  const f = frame($('rates'), v => v / top, [0, top / 2, top],
                  n => n ? rate(n) + '/s' : '0', WIDE);
  const base = points.map(() => 0);

  for (const name of names) {
    let up = '', down = '';
    points.forEach((p, i) => {
      const low = base[i];
      base[i] += p.rates[name];
      up += (i ? 'L' : 'M') + f.x(i).toFixed(1) + ' '
            + f.y(base[i]).toFixed(1);
      down = 'L' + f.x(i).toFixed(1) + ' ' + f.y(low).toFixed(1) + down;
    });
    const path = el('path', {d: up + down + 'Z', 'fill-opacity': 0.8});
    $('rates').append(colour(path, 'fill', name));
  }

  const last = points[points.length - 1];
  $('results').replaceChildren(...names.map(name =>
    el('li', {'data-result': name},
       colour(el('i'), 'background', name), name,
       el('span', {}, rate(last.rates[name]) + '/s'))));
  if (f.at !== null)
    tip(f, names.map(n => [n, n, rate(points[f.at].rates[n]) + '/s'])
           .concat([['', 'all', rate(sums[f.at]) + '/s']]));
}

/* one row for each kind of event, and a bar for each second that has one */

function drawEvents(data) {
  const svg = $('events');
  const narrow = svg.clientWidth < 560;
  const row = narrow ? 40 : 28, low = narrow ? 16 : 0;
  svg.setAttribute('height', EVENTS.length * row + 22);
  const f = frame(svg, () => 0, [], String,
                  narrow ? {left: 8, right: 8} : {left: 250, right: 8});

  EVENTS.forEach(([name, word, of], i) => {
    const bottom = (i + 1) * row;
    const seen = points.reduce((a, p) => a + p.events[name], 0);
    const most = Math.max(1, ...points.map(p => p.events[name]));
    const ever = of(data);
    svg.append(el('line', {class: 'grid', x1: f.left, x2: f.width - f.right,
                           y1: bottom, y2: bottom}));
    const y = narrow ? bottom - row + 13 : bottom - 8;
    svg.append(
      el('text', {class: 'name', x: narrow ? 8 : 0, y}, word),
      el('text', {class: 'name', x: narrow ? f.width - 8 : f.left - 14, y,
                  'text-anchor': 'end', 'data-event': name},
         count(seen) + (ever > seen ? ', ' + count(ever) + ' so far' : '')));
    points.forEach((p, at) => {
      const n = p.events[name];
      if (!n) return;
      const h = (row - low - 8) * (0.35 + 0.65 * n / most);
      svg.append(colour(el('rect', {x: f.x(at) - Math.max(3, f.step) / 2,
        width: Math.max(3, f.step), y: bottom - h, height: h, rx: 1,
        'data-event': name}), 'fill', name));
    });
  });
  if (f.at !== null)
    tip(f, EVENTS.map(([name, word]) =>
      [name, word, count(points[f.at].events[name])]));
}

/* p50 is dashed, p99 is not; each line has its name where it ends */

const LINES = [['claim', 0], ['claim', 1], ['complete', 0], ['complete', 1]];
const QUANTILES = ['p50', 'p99'];

function drawLatency(svg, legend, name) {
  const value = (p, [op, q]) => p.stores[name] ? p.stores[name][op][q] : null;
  const all = points.flatMap(p => LINES.map(l => value(p, l) || 0));
  const decades = Math.max(2, Math.ceil(Math.log10(Math.max(1, ...all))));
  const marks = [];
  for (let i = 0; i <= decades; i += decades > 3 ? 2 : 1)
    marks.push(Math.pow(10, i));
  const f = frame(svg, v => Math.log10(Math.max(1, v)) / decades, marks,
                  duration, {left: 52, right: 84});
  const last = points[points.length - 1];
  const names = [];

  for (const line of LINES) {
    let d = '', pen = false, end = null;
    points.forEach((p, i) => {
      const v = value(p, line);
      if (v !== null) {
        d += (pen ? 'L' : 'M') + f.x(i).toFixed(1) + ' '
             + f.y(v).toFixed(1);
        end = f.y(v);
      }
      pen = v !== null;
    });
    const path = el('path', {d, fill: 'none', 'stroke-linejoin': 'round',
                             'stroke-width': 1.5,
                             'stroke-dasharray': line[1] ? 'none' : '3 3'});
    svg.append(colour(path, 'stroke', line[0]));
    if (end !== null)
      names.push({y: end, line});
  }

  /* from below, so that none is upon another */

  let below = f.base + 4;
  for (const {y, line} of names.sort((a, b) => b.y - a.y)) {
    below = Math.min(y + 4, below - 11);
    svg.append(colour(el('text', {x: f.width - f.right + 6, y: below},
      line[0] + ' ' + QUANTILES[line[1]]), 'fill', line[0]));
  }
  svg.append(el('text', {x: f.width, y: f.base + 17, 'text-anchor': 'end'},
                'log scale'));

  legend.replaceChildren(...['claim', 'complete'].map(op => {
    const [p50, p99] = [0, 1].map(q => value(last, [op, q]));
    return el('li', {}, colour(el('i'), 'background', op), op,
              el('span', {}, p99 === null ? 'none now'
                 : 'p50 ' + duration(p50) + ', p99 ' + duration(p99)));
  }));
  if (f.at !== null)
    tip(f, LINES.map(l => [l[0], l[0] + ' ' + QUANTILES[l[1]],
                           duration(value(points[f.at], l))]));
}

function plots() {
  if (!points.length) return;
  const data = samples[samples.length - 1].data;
  drawRates();
  drawEvents(data);
  for (const c of $('stores').children)
    drawLatency(c.querySelector('svg'), c.querySelector('.legend'),
                c.dataset.store);
}

/* ---- numbers ---- */

function tile(name, value, word, alarm) {
  return el('div', {class: 'card tile' + (alarm ? ' alarm' : ''),
                    'data-tile': name},
            el('b', {}, value), el('span', {}, word));
}

function showAbout(data) {
  $('about').textContent = data.host + ', module ' + data.version
                           + ', nginx ' + data.nginx;
  $('since').textContent = ' since ' + day(data.since);
}

function showTiles(data) {
  const last = points[points.length - 1];
  const all = last ? Object.values(last.rates).reduce((a, b) => a + b, 0)
                   : null;
  const unknown = sum(data.stores, s => unknownsOf(s, data.time).number);
  const oldest = Math.max(0, ...data.stores.map(s => unknownsOf(s, data.time).oldest));
  const errors = EVENTS[1][2](data);

  $('tiles').replaceChildren(
    tile('rate', all === null ? '–' : rate(all), 'requests per second'),
    tile('in_flight', count(sum(data.stores, s => s.in_flight)), 'in flight'),
    tile('waiting', count(sum(data.stores, s => s.waiting)),
         'duplicates waiting'),
    tile('unknown', count(unknown), unknown
         ? 'unknown, oldest ' + age(oldest).split(' ').slice(0, 2).join(' ')
         : 'unknown', unknown > 0),
    tile('errors', count(errors), 'store errors so far'));
}

function showLocations(data) {
  const used = ALL.filter(name =>
    data.locations.some(l => l.results[name] > 0));
  const head = el('tr', {}, el('th', {}, 'Location'),
                  ...used.map(name => el('th', {}, name)));
  const rows = data.locations.map(l => el('tr', {'data-location': l.location},
    el('td', {class: 'name'}, el('code', {}, l.location),
       el('small', {}, (l.server ? l.server + ', ' : '') + 'store '
                       + l.store + (l.dry_run ? ', dry run' : ''))),
    ...used.map(name => el('td', {'data-result': name, 'data-name': name,
                                  class: l.results[name] ? '' : 'zero'},
                           count(l.results[name])))));
  if (!used.length) head.append(el('th', {}, 'nothing yet'));
  $('locations').replaceChildren(el('thead', {}, head),
                                 el('tbody', {}, ...rows));
}

function facts(store) {
  const list = [['in flight', store.in_flight], ['leases', store.leases],
                ['waiting', store.waiting],
                ['became unknown', store.unknown.total]];
  if (store.zone) {
    const share = 100 * store.zone.unknown_bytes / store.zone.size;
    list.push(['records', store.zone.records]);
    if (share > 1)
      list.push(['in unknowns', Math.ceil(share) + ' %', share > 10]);
  } else {
    const c = store.connections;
    const all = Object.values(c).reduce((a, b) => a + b, 0);
    list.push(['connections', c.ready + ' of ' + all, c.ready < all]);
    list.push(['reconnects', store.reconnects]);
    list.push(['not stored yet', store.background.waiting,
               store.background.waiting > 0]);
    if (store.background.dropped)
      list.push(['outcomes dropped', store.background.dropped, true]);
    if (store.losses) list.push(['losses', store.losses, true]);
    if (store.unwatched) list.push(['INFO', 'not allowed', true]);
    if (store.unacknowledged)
      list.push(['without replicas', store.unacknowledged, true]);
  }
  const suspects = store.suspects.passed + store.suspects.rejected;
  if (suspects) list.push(['suspects', suspects]);
  if (store.abandoned)
    list.push(['leases abandoned', store.abandoned, true]);
  for (const [name, n] of Object.entries(store.errors))
    if (n) list.push(['errors: ' + name, n, true]);
  return list;
}

/* the card of a store stays, so that its plot does */

function card(store) {
  for (const c of $('stores').children)
    if (c.dataset.store === store.name) return c;
  const c = el('article', {class: 'card', 'data-store': store.name},
    el('div', {class: 'head'}, el('h3', {}, store.name),
       el('span', {class: 'kind'},
          {shm: 'embedded', sqlite: 'SQLite', redis: 'Redis',
           postgres: 'PostgreSQL'}[store.kind] || store.kind),
       el('span', {class: 'pill'})),
    el('p', {class: 'why'}), el('dl'),
    el('div', {class: 'bar'}, el('div')),
    follows(el('svg', {height: 120, role: 'img',
                       'aria-label': 'How long the store took'})),
    el('ul', {class: 'legend'}));
  $('stores').append(c);
  return c;
}

function showStores(data) {
  for (const c of [...$('stores').children])
    if (!data.stores.some(s => s.name === c.dataset.store)) c.remove();

  for (const store of data.stores) {
    const c = card(store);
    const pill = c.querySelector('.pill');
    pill.className = 'pill ' + store.health;
    pill.textContent = store.health;
    c.querySelector('.why').textContent = store.refusing === 'none'
      ? store.why : store.why + ' (' + store.refusing + ')';
    c.querySelector('.why').hidden = !store.why;
    c.querySelector('dl').replaceChildren(
      ...facts(store).map(([name, value, alarm]) => el('div', {},
        el('dt', {}, name),
        el('dd', alarm ? {class: 'alarm'} : {},
           typeof value === 'number' ? count(value) : value))));

    const bar = c.querySelector('.bar');
    bar.hidden = !store.zone;
    if (store.zone) {
      const used = store.zone.size - store.zone.free;
      const part = 100 * used / store.zone.size;
      bar.title = bytes(used) + ' of ' + bytes(store.zone.size) + ' used';
      bar.firstChild.style.width = Math.max(1, part) + '%';
      c.querySelector('dl').append(el('div', {}, el('dt', {}, 'used'),
        el('dd', {}, Math.ceil(part) + ' % of '
                     + bytes(store.zone.size))));
    }
  }
}

/* ---- clients that retry wrongly ---- */

const TROUBLE = [['key_reused', 'key reused'], ['fresh_key', 'fresh key'],
  ['no_backoff', 'no back-off'], ['never_retried', 'never retried']];

function showDoctor(data) {
  const d = data.retry_doctor;
  const box = $('doctor');
  if (!d.sources.length) {
    box.replaceChildren(el('p', {class: 'none'},
      'No client has retried wrongly.'));
    return;
  }
  const rows = d.sources.slice(0, 20).map(s => el('tr', {
      'data-source': s.source},
    el('td', {class: 'name'}, el('code', {}, s.source),
       el('small', {}, [s.label, s.location].filter(Boolean).join(', '))),
    ...TROUBLE.map(([kind, word]) => el('td', {'data-name': word,
      'data-kind': kind, class: s[kind] ? '' : 'zero'}, count(s[kind]))),
    el('td', {'data-name': 'last'}, age(data.time - s.last) + ' ago')));
  box.replaceChildren(
    el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'Source'),
       ...TROUBLE.map(([, word]) => el('th', {}, word)),
       el('th', {}, 'last'))), el('tbody', {}, ...rows)),
    el('p', {class: 'note'}, 'A source is shown as the first 16 digits of its '
       + 'SHA-256. '
       + (d.sources.length > rows.length ? (d.sources.length - rows.length)
          + ' more are in the JSON. ' : '')
       + 'Key reused: with another body. Fresh key: for the same body. '
       + (d.sources.some(s => s.error) ? 'There are more sources than '
          + 'counters: each number is a lower bound. ' : '')
       + 'No back-off: a retry within a second of an answer that asked to '
       + 'wait. Never retried: within ten minutes of a 502, 503 or 504.'));
}

/* ---- again and again ---- */

let silent = null;            /* since when it does not answer */

function show() {
  if (!samples.length) return;
  const data = samples[samples.length - 1].data;
  showAbout(data);
  showTiles(data);
  showLocations(data);
  showStores(data);
  showUnknowns(data);
  showDoctor(data);
  plots();
}

async function ask() {
  const state = $('state');
  try {
    const answer = await fetch('?format=json', {cache: 'no-store',
      signal: AbortSignal.timeout(10 * EACH)});
    if (!answer.ok) throw new Error('status ' + answer.status);
    const data = await answer.json();
    await list(data);
    take(data);
    silent = null;
    state.className = 'live';
    state.textContent = 'live, ' + clock(data.time, true);
    show();
  } catch (e) {
    silent = silent || Date.now();
    state.className = 'lost';
    state.textContent = 'no answer for ' + age((Date.now() - silent) / 1000);
  }
  setTimeout(ask, EACH);
}

unknownsStart();
for (const id of ['rates', 'events']) follows($(id));
addEventListener('resize', show);
ask();
