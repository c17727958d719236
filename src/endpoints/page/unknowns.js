'use strict';

/*
 * Unknown outcomes: their list, from locations for operators, and how one is
 * settled.  page.js follows.
 */

const SHOWN = 25;             /* rows, until all are asked for */
const LISTED = 1000;          /* records of a store, at most */
const REST = 5;               /* turns between two rounds of lists */

const walks = new Map();      /* lists of unknowns, by location */
const sorting = {by: 'age', down: true};
let showAll = false;
let drawn = '';               /* what the table shows, but for ages */
let settling = null;          /* the row that the dialog is about */

const COLUMNS = [
  ['label', 'Label'], ['age', 'Age'], ['location', 'Location'],
  ['reason', 'Reason'], ['store', 'Store'], ['record', 'Record'],
];

/*
 * ---- lists ----
 *
 * A list comes in parts, each of bounded work: one is asked for at a time,
 * and a new round begins some seconds after the last.
 */

function remembered() {
  try { return localStorage.getItem('idempotency-lookup') || ''; }
  catch (e) { return ''; }
}

function question(path, parameters) {
  const url = new URL(path, location.href);
  for (const [name, value] of Object.entries(parameters))
    url.searchParams.set(name, value);
  return url;
}

async function part(path, walk) {
  try {
    const url = question(path, {state: 'unknown'});
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
  if (!walk.cursor || walk.found.length >= LISTED) {
    walk.list = walk.found;
    walk.more = walk.cursor !== null;
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

function since(record, now) {
  return record.since ? Math.max(0, now - record.since) : record.age;
}

/*
 * The unknowns of a store: their number, and the rows that can be shown.  If
 * they are listed the list is what counts, here and everywhere on the page.
 */

function unknownsOf(store, now) {
  for (const [path, walk] of walks) {
    if (walk.failed || !walk.list || (walk.store || store.name) !== store.name)
      continue;
    const rows = walk.list.map(r => ({...r, age: since(r, now), path,
                                      store: store.name}));
    return {rows, listed: true, more: walk.more,
            number: walk.more ? Math.max(rows.length, store.unknown.now)
                              : rows.length,
            oldest: Math.max(walk.more ? store.unknown.oldest : 0,
                             ...rows.map(r => r.age))};
  }
  const rows = store.unknown.records.map(r => ({...r, store: store.name}));
  return {rows, listed: false, more: store.unknown.now > rows.length,
          number: store.unknown.now, oldest: store.unknown.oldest};
}

/* what cannot be listed, and why, in words */

function gaps(store, of) {
  const name = 'store ' + store.name;
  if (of.listed)
    return of.more ? ['of ' + name + ' the first ' + count(of.rows.length)
                      + ' are listed'] : [];
  const all = [];
  if (of.number)
    all.push(count(of.number) + ' in ' + name + ' by number only: this server '
             + 'has no location with idempotency_lookup ' + store.name
             + ' admin that you may use');
  if (!store.unknown.counted)
    all.push(name + ' is still being counted');
  return all;
}

function showUnknowns(data) {
  const all = data.stores.map(s => [s, unknownsOf(s, data.time)]);
  const number = sum(all, ([, of]) => of.number);
  const words = all.flatMap(([s, of]) => gaps(s, of));
  for (const [, walk] of walks)
    if (walk.failed) words.unshift('no list: ' + walk.failed);

  $('unknown-sum').textContent = (number ? count(number) + ' unknown' : 'None')
    + (words.length ? '; ' + words.join('; ') : '') + '.';

  const exports = [...walks].filter(([, w]) => w.list && w.list.length
    && !w.failed && w.list[0].since !== undefined);
  $('exports').replaceChildren(...exports.flatMap(([path, walk]) =>
    ['csv', 'ndjson'].map(format => el('a', {
      href: question(path, {state: 'unknown', format}),
      download: 'unknown-' + walk.store + '.' + format},
      format.toUpperCase() + (exports.length > 1 ? ' of ' + walk.store : '')
      ))));

  const rows = all.flatMap(([, of]) => of.rows);
  const {by, down} = sorting;
  rows.sort((a, b) => {
    const x = a[by] ?? '', y = b[by] ?? '';
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });

  const columns = COLUMNS.filter(([key]) => ['age', 'record'].includes(key)
    || (key === 'store' ? data.stores.length > 1 : rows.some(r => r[key])));
  const shown = showAll ? rows : rows.slice(0, SHOWN);
  const sign = JSON.stringify([by, down, rows.length, columns.length,
    shown.map(r => [r.record, r.fence, r.label, r.reason])]);
  if (sign !== drawn) {
    drawn = sign;
    unknownsTable($('unknowns'), columns, shown, rows.length);
  }
  for (const row of shown) {
    const cell = document.querySelector('#unknowns tr[data-record="'
      + CSS.escape(row.record) + '"] [data-name=Age]');
    if (cell) cell.textContent = age(row.age);
  }

  $('admin').hidden = data.lookups.length > 0;
}

function unknownsTable(box, columns, rows, number) {
  box.replaceChildren();
  if (!rows.length) return;

  const acts = rows.some(r => r.path);
  const heads = columns.map(([key, word]) => {
    const button = el('button', {type: 'button', 'data-sort': key}, word);
    button.addEventListener('click', () => sortBy(key));
    const th = el('th', {class: key === 'age' ? '' : 'text'}, button);
    if (sorting.by === key)
      th.setAttribute('aria-sort', sorting.down ? 'descending' : 'ascending');
    return th;
  });
  box.append(el('table', {},
    el('thead', {}, el('tr', {}, ...heads, acts ? el('th') : '')),
    el('tbody', {}, ...rows.map(r => unknownRow(r, columns, acts)))));

  if (number > rows.length) {
    const button = el('button', {class: 'more', type: 'button'},
                      'Show all ' + count(number));
    button.addEventListener('click', () => { showAll = true; show(); });
    box.append(button);
  }
}

function unknownRow(r, columns, acts) {
  const cells = columns.map(([key, word]) => {
    const value = r[key] === undefined || r[key] === null ? '' : r[key];
    const cell = el('td', {'data-name': word,
      class: (key === 'age' ? '' : 'text') + (value === '' ? ' empty' : '')});
    if (key === 'record') {
      cell.title = value;
      cell.append(el('span', {}, el('code', {}, value.slice(0, 12) + '…'),
                     copies(value)));
    } else if (key === 'label') {
      cell.append(el('span', {}, el('b', {}, value),
                     value === '' ? '' : copies(value)));
    } else if (key === 'location' && r.upstream) {
      cell.append(el('span', {}, el('code', {}, value),
                     el('small', {}, r.upstream)));
    } else if (key !== 'age') {
      cell.append(value);
    }
    return cell;
  });
  if (acts) {
    const cell = el('td', {'data-name': ''});
    if (r.path) {
      const button = el('button', {type: 'button', class: 'settle'}, 'Settle');
      button.addEventListener('click', () => settle(r));
      cell.append(button);
    }
    cells.push(cell);
  }
  return el('tr', {'data-record': r.record}, ...cells);
}

function sortBy(key) {
  sorting.down = sorting.by === key ? !sorting.down : key === 'age';
  sorting.by = key;
  show();
}

/* without TLS a browser may not offer its clipboard to scripts */

function copies(text) {
  const button = el('button', {class: 'copy', type: 'button',
                               title: 'Copy ' + text}, 'copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch (e) {
      const area = el('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = 'copy'; }, 1500);
  });
  return button;
}

/* ---- settling one ---- */

function settle(row) {
  settling = row;
  const form = $('settle-form');
  form.reset();
  const facts = [['label', row.label], ['record', row.record],
    ['location', row.location], ['upstream', row.upstream],
    ['reason', row.reason], ['attempts', row.attempts],
    ['created', row.created && day(row.created)],
    ['store', row.store]];
  $('settle-record').replaceChildren(...facts.filter(f => f[1]).map(f =>
    el('div', {}, el('dt', {}, f[0]), el('dd', {}, f[1]))));
  $('settle-ask').textContent = row.label
    ? 'Type its label to confirm: ' + row.label
    : 'It has no label. Type the first 6 digits of its record to confirm: '
      + row.record.slice(0, 6);
  $('settle-error').textContent = '';
  settleReady();
  $('settle').showModal();
}

function settleReady() {
  const form = $('settle-form');
  const typed = form.confirm.value.trim();
  $('settle-answer').hidden = form.verdict.value !== 'answer';
  $('settle-go').disabled = !form.verdict.value || !settling
    || typed !== (settling.label || settling.record.slice(0, 6));
}

async function settleGo() {
  const form = $('settle-form');
  const row = settling;
  const answers = form.verdict.value === 'answer';
  const parameters = {record: row.record, fence: row.fence,
    resolve: answers ? 'executed' : form.verdict.value};
  if (answers) parameters.status = form.status.value.trim();
  if (row.label) parameters.label = row.label;

  $('settle-go').disabled = true;
  try {
    const answer = await fetch(question(row.path, parameters), {
      method: 'POST', cache: 'no-store',
      headers: answers ? {'Content-Type': form.type.value.trim()} : {},
      body: answers ? form.body.value : undefined,
      signal: AbortSignal.timeout(10 * EACH)});
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw new Error(problem.detail || problem.title
                      || row.path + ' answers ' + answer.status);
    }
    const walk = walks.get(row.path);
    if (walk && walk.list) {
      walk.list = walk.list.filter(r => r.record !== row.record);
      Object.assign(walk, {found: [], cursor: null, rest: 0});
    }
    $('settle').close();
    show();
  } catch (e) {
    $('settle-error').textContent = 'Not settled: ' + e.message;
    settleReady();
  }
}

function unknownsStart() {
  $('lookup').value = remembered();

  $('admin').addEventListener('submit', event => {
    event.preventDefault();
    try {
      localStorage.setItem('idempotency-lookup', $('lookup').value.trim());
    } catch (e) { /* then it is not remembered */ }
    walks.clear();
  });

  $('settle-form').addEventListener('input', settleReady);
  $('settle-form').addEventListener('submit', event => {
    event.preventDefault();
    if (!$('settle-go').disabled) settleGo();
  });
  $('settle-cancel').addEventListener('click', () => $('settle').close());
}

