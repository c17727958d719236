'use strict';

/* Everything that comes from elsewhere goes into the page as text. */

const EACH = 1000;            /* ms between two questions */
const SPANS = [60, 120, 300]; /* points of a plot: as few as will do */
const KEEP = SPANS[SPANS.length - 1];
const SHOWN = 12;             /* unknowns */
const REST = 5;               /* turns between two rounds of lists */
const WINDOW = 10;            /* points that a latency is made of */

const RESULTS = ['new', 'replayed', 'waited', 'in_progress', 'rejected',
  'mismatch', 'missing', 'invalid', 'out_of_order', 'not_issued', 'expired',
  'unknown', 'store_error', 'bypassed', 'off'];

const points = [];            /* {t, rates, stores: {name: {claim, ...}}} */
const samples = [];           /* the last answers, {t, data} */
const walks = new Map();      /* lists of unknowns, by location */

const $ = id => document.getElementById(id);

function el(name, attributes, ...children) {
  const svg = ['svg', 'path', 'line', 'text'].includes(name);
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
  const sum = {};
  for (const name of RESULTS) sum[name] = 0;
  for (const l of data.locations.filter(l => !l.dry_run))
    for (const [name, n] of Object.entries(l.results))
      sum[name] = (sum[name] || 0) + n;
  return sum;
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

  const point = {t, rates: {}, stores: {}};
  const now = totals(data), before = totals(last.data);
  for (const name of Object.keys(now))
    point.rates[name] = Math.max(0, now[name] - before[name])
                        / Math.max(0.001, t - last.t);

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

/* ---- plots: as wide as they are shown, the newest on the right ---- */

function nice(max) {
  const p = Math.pow(10, Math.floor(Math.log10(max)));
  for (const m of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (m * p >= max) return m * p;
  return 10 * p;
}

/* "part" tells how high a value is, from 0 to 1; "marks" have a line */

function frame(svg, part, marks, words) {
  const width = svg.clientWidth || 300, height = svg.clientHeight || 100;
  svg.replaceChildren();
  svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
  const base = height - 18, left = 48;
  const span = SPANS.find(n => n >= points.length) || KEEP;
  const x = i => left + (width - left) * (i + span - points.length)
                 / (span - 1);
  const y = v => base - (base - 6) * part(v);
  for (const mark of marks) {
    const at = y(mark);
    svg.append(el('line', {class: 'grid', x1: left, x2: width,
                           y1: at, y2: at}));
    svg.append(el('text', {x: left - 8, y: at + 4, 'text-anchor': 'end'},
                  words(mark)));
  }
  svg.append(el('text', {x: left, y: height - 1},
                span * EACH / 60000 + ' min ago'));
  svg.append(el('text', {x: width, y: height - 1, 'text-anchor': 'end'},
                'now'));
  return {x, y};
}

function drawRates() {
  const names = RESULTS.filter(name => points.some(p => p.rates[name] > 0));
  const sums = points.map(p => names.reduce((a, n) => a + p.rates[n], 0));
  const top = nice(Math.max(1, ...sums));
  const f = frame($('rates'), v => v / top, [0, top / 2, top], rate);
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
}

function drawLatency(svg, legend, name) {
  const lines = [['claim', 0], ['claim', 1], ['complete', 0],
                 ['complete', 1]];
  const value = (p, [op, q]) => p.stores[name] ? p.stores[name][op][q] : null;
  const all = points.flatMap(p => lines.map(l => value(p, l) || 0));
  const decades = Math.max(2, Math.ceil(Math.log10(Math.max(1, ...all))));
  const marks = [];
  for (let i = 0; i <= decades; i += decades > 3 ? 2 : 1)
    marks.push(Math.pow(10, i));
  const f = frame(svg, v => Math.log10(Math.max(1, v)) / decades, marks,
                  duration);
  const last = points[points.length - 1];

  for (const line of lines) {
    let d = '', pen = false;
    points.forEach((p, i) => {
      const v = value(p, line);
      if (v !== null)
        d += (pen ? 'L' : 'M') + f.x(i).toFixed(1) + ' '
             + f.y(v).toFixed(1);
      pen = v !== null;
    });
    const path = el('path', {d, fill: 'none', 'stroke-linejoin': 'round',
                             'stroke-width': line[1] ? 1.5 : 1,
                             'stroke-opacity': line[1] ? 1 : 0.55});
    svg.append(colour(path, 'stroke', line[0]));
  }

  legend.replaceChildren(...['claim', 'complete'].map(op => {
    const [p50, p99] = [0, 1].map(q => value(last, [op, q]));
    return el('li', {}, colour(el('i'), 'background', op), op,
              el('span', {}, p99 === null ? 'none now'
                 : 'half within ' + duration(p50)
                   + ', 99 % within ' + duration(p99)));
  }));
}

/* ---- numbers ---- */

function tile(name, value, word, alarm) {
  return el('div', {class: 'card tile' + (alarm ? ' alarm' : ''),
                    'data-tile': name},
            el('b', {}, value), el('span', {}, word));
}

function showTiles(data) {
  const sum = f => data.stores.reduce((a, s) => a + f(s), 0);
  const last = points[points.length - 1];
  const all = last ? Object.values(last.rates).reduce((a, b) => a + b, 0)
                   : null;
  const unknown = sum(s => s.unknown.now);
  const oldest = Math.max(0, ...data.stores.map(s => s.unknown.oldest));
  const errors = sum(s =>
    Object.values(s.errors).reduce((a, b) => a + b, 0));

  $('tiles').replaceChildren(
    tile('rate', all === null ? '–' : rate(all), 'requests per second'),
    tile('in_flight', count(sum(s => s.in_flight)), 'in flight'),
    tile('waiting', count(sum(s => s.waiting)), 'duplicates waiting'),
    tile('unknown', count(unknown), unknown
         ? 'unknown, oldest ' + age(oldest).split(' ').slice(0, 2).join(' ')
         : 'unknown', unknown > 0),
    tile('errors', count(errors), 'store errors so far'));
}

function showLocations(data) {
  const used = RESULTS.filter(name =>
    data.locations.some(l => l.results[name] > 0));
  const head = el('tr', {}, el('th', {}, 'Location'),
                  ...used.map(name => el('th', {}, name)));
  const rows = data.locations.map(l => el('tr', {'data-location': l.location},
    el('td', {class: 'name'}, el('code', {}, l.location),
       el('small', {}, (l.server ? l.server + ', ' : '') + 'store '
                       + l.store + (l.dry_run ? ', dry run' : ''))),
    ...used.map(name => el('td', {'data-result': name,
                                  class: l.results[name] ? '' : 'zero'},
                           count(l.results[name])))));
  if (!used.length) head.append(el('th', {}, 'nothing yet'));
  $('locations').replaceChildren(el('thead', {}, head),
                                 el('tbody', {}, ...rows));
}

function facts(store) {
  const list = [['in flight', store.in_flight], ['leases', store.leases],
                ['waiting', store.waiting],
                ['unknown, ever', store.unknown.total]];
  if (store.zone) {
    const share = 100 * store.zone.unknown_bytes / store.zone.size;
    list.push(['records', store.zone.records]);
    list.push(['unknown', store.zone.unknown, share > 10]);
    if (share > 1)
      list.push(['in unknowns', Math.ceil(share) + ' %', share > 10]);
  } else {
    const c = store.connections;
    const all = Object.values(c).reduce((a, b) => a + b, 0);
    list.push(['connections', c.ready + ' of ' + all, c.ready < all]);
    list.push(['reconnects', store.reconnects]);
    list.push(['not told yet', store.background.waiting,
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
    list.push(['leases of the dead', store.abandoned, true]);
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
          {shm: 'embedded', sqlite: 'SQLite', redis: 'Redis'}[store.kind]),
       el('span', {class: 'pill'})),
    el('p', {class: 'why'}), el('dl'),
    el('div', {class: 'bar'}, el('div')),
    el('svg', {height: 96, role: 'img',
               'aria-label': 'How long the store took'}),
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
    if (points.length)
      drawLatency(c.querySelector('svg'), c.querySelector('.legend'),
                  store.name);
  }
}

function table(head, rows) {
  const t = el('table', {},
    el('thead', {}, el('tr', {}, ...head.map(h => el('th', {}, h)))),
    el('tbody', {}, ...rows.slice(0, SHOWN).map(r => el('tr', {},
      el('td', {class: 'name'}, el('code', {}, r[0])),
      ...r.slice(1).map(c => el('td', {}, c))))));
  if (rows.length > SHOWN)
    t.append(el('tfoot', {}, el('tr', {}, el('td', {colspan: head.length},
      'and ' + (rows.length - SHOWN) + ' more'))));
  return t;
}

function showUnknowns(data) {
  const box = $('unknowns');
  const known = [...walks.values()];
  const failed = known.filter(w => w.failed);
  const lists = known.filter(w => !w.failed && w.list);

  const rows = lists.length
    ? lists.flatMap(w => w.list.map(r => [r.record, r.age, w.store, r.fence,
                                          r.attempts]))
    : data.stores.flatMap(s => s.unknown.records.map(r =>
        [r.record + '…', r.age, s.name]));
  rows.sort((a, b) => b[1] - a[1]);
  for (const r of rows) r[1] = age(r[1]);

  box.replaceChildren(...failed.map(w =>
    el('p', {class: 'none'}, 'No list: ' + w.failed + '.')));
  if (rows.length)
    box.append(table(lists.length
      ? ['Record', 'Age', 'Store', 'Fence', 'Attempts']
      : ['Record', 'Age', 'Store'], rows));
  else
    box.append(el('p', {class: 'none'}, lists.length ? 'None in the store.'
                  : 'None that this nginx knows of.'));

  $('admin').hidden = data.lookups.length > 0;
}

/*
 * ---- all unknowns, from locations for operators ----
 *
 * A list comes in parts, each of bounded work: one is asked for at a time,
 * and a new round begins some seconds after the last.
 */

function remembered() {
  try { return localStorage.getItem('idempotency-lookup') || ''; }
  catch (e) { return ''; }
}

async function part(path, walk) {
  try {
    const url = new URL(path, location.href);
    url.searchParams.set('state', 'unknown');
    if (walk.cursor) url.searchParams.set('cursor', walk.cursor);
    const answer = await fetch(url, {cache: 'no-store',
      signal: AbortSignal.timeout(10 * EACH)});
    if (!answer.ok) throw new Error(path + ' answers ' + answer.status);
    const data = await answer.json().catch(() => ({}));
    if (!Array.isArray(data.records))
      throw new Error(path + ' is no such location');
    walk.store = data.store;
    walk.found.push(...data.records);
    walk.cursor = data.cursor || null;
    walk.failed = null;
  } catch (e) {
    walk.cursor = null;
    walk.failed = e.message;
  }
  if (!walk.cursor || walk.found.length > 1000) {
    walk.list = walk.found;
    walk.found = [];
    walk.cursor = null;
    walk.rest = REST;
  }
}

async function list(data) {
  const paths = data.lookups.map(l => l.location);
  if (!paths.length && remembered()) paths.push(remembered());
  for (const path of walks.keys())
    if (!paths.includes(path)) walks.delete(path);
  for (const path of paths) {
    if (!walks.has(path))
      walks.set(path, {found: [], list: null, cursor: null, rest: 0});
    const walk = walks.get(path);
    if (walk.rest-- <= 0) await part(path, walk);
  }
}

$('lookup').value = remembered();

$('admin').addEventListener('submit', async event => {
  event.preventDefault();
  try {
    localStorage.setItem('idempotency-lookup', $('lookup').value.trim());
  } catch (e) { /* then it is not remembered */ }
  walks.clear();
});

/* ---- again and again ---- */

let since = null;             /* when it did not answer any more */

function show() {
  if (!samples.length) return;
  const data = samples[samples.length - 1].data;
  showTiles(data);
  if (points.length) drawRates();
  showLocations(data);
  showStores(data);
  showUnknowns(data);
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
    since = null;
    state.className = 'live';
    state.textContent = 'live, '
      + new Date(data.time * 1000).toLocaleTimeString();
    show();
  } catch (e) {
    since = since || Date.now();
    state.className = 'lost';
    state.textContent = 'no answer for ' + age((Date.now() - since) / 1000);
  }
  setTimeout(ask, EACH);
}

addEventListener('resize', show);
ask();
