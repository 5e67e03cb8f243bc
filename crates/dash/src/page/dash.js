'use strict';
// The live page of a job: receives updates of its history and shows them. Text of the job is only
// ever put into the page as text.
(() => {
  const byId = (id) => document.getElementById(id);
  const { units } = ronde;

  // What the server has sent.
  let shown = nothing();
  let server; // number of the server's start
  let version; // of the page's files
  let control; // token of the controls
  const changed = new Set();

  function nothing() {
    return { job: {}, steps: [], changes: [], verdicts: [], rechecks: [], log: [] };
  }

  // Columns of a row of steps.
  const [STEP, STEPS, MEAN, LOW, HIGH, FUSION, CYCLE, SWITCHES, WINDOW, EXPOSED, NEGOTIATION, MESSAGES, BYTES, FILL] = Array(14).keys();
  const WINDOWS = [
    { name: 'training', colour: '--series-0', shape: 'circle' },
    { name: 'default, measured', colour: '--series-5', shape: 'square' },
    { name: 'search', colour: '--series-4', shape: 'triangle' },
    { name: 'comparison: default', colour: '--series-3', shape: 'square' },
    { name: 'comparison: candidate', colour: '--series-2', shape: 'diamond' },
  ];

  // --- Connection ---

  // The server sends something at least every 2 s.
  const SILENCE_MS = 7000;
  let source;
  let heard = 0;
  let lostAt = null;
  let denied = false;
  let full = false; // as many pages as are allowed are open

  function connect() {
    heard = Date.now();
    source = new EventSource('events');
    source.onmessage = ({ data }) => {
      heard = Date.now();
      lostAt = null;
      denied = full = false;
      receive(JSON.parse(data));
    };
    source.onerror = () => disconnected();
  }

  function disconnected() {
    source.close();
    source = undefined;
    lostAt ??= Date.now();
    changed.add('status');
    draw();
    setTimeout(probe, 1000);
  }

  // Waits until there is a server again: that of this job, or of another one on the same port.
  async function probe() {
    let status = 0;
    try {
      status = (await fetch('events', { method: 'HEAD', cache: 'no-store' })).status;
    } catch { /* nothing listens */ }
    if (status === 200) return connect();
    denied = status === 401;
    full = status === 503;
    changed.add('status');
    draw();
    setTimeout(probe, shown.end || denied || full ? 5000 : 1000);
  }

  setInterval(() => {
    if (source && Date.now() - heard > SILENCE_MS) disconnected();
  }, 1000);

  function receive(update) {
    if (update.page !== undefined) {
      if (version !== undefined && version !== update.page) return location.reload();
      if (server !== undefined && server !== update.server) shown.jobs = -1;
      ({ page: version, server, control } = update);
      changed.add('control');
    } else {
      if (update.all) {
        if (shown.jobs !== undefined && shown.jobs !== update.jobs && shown.steps.length) {
          notice(`Another job has begun, at ${clock(Date.now())}. The page shows it from its beginning.`);
        }
        shown = nothing();
        changed.add('all');
      }
      for (const [name, value] of Object.entries(update)) {
        if (value?.rows && 'from' in value) {
          shown[name].length = value.from;
          for (const row of value.rows) shown[name].push(row);
        } else {
          shown[name] = value;
        }
        changed.add(name);
      }
    }
    draw();
  }

  // --- Text ---

  const clock = (ms) => {
    const [date, now] = [new Date(ms), new Date()];
    const time = date.toLocaleTimeString('en-GB');
    return date.toDateString() === now.toDateString() ? time : `${date.toLocaleDateString('en-CA')} ${time}`;
  };
  const number = (value) => units.plain(value);
  const count = (value, noun) => `${units.count(value)} ${noun}${value === 1 ? '' : 's'}`;
  const percent = (share) => `${number(100 * share)} %`;
  const signed = (value) => (value < 0 ? '−' : '+') + number(Math.abs(value));
  const MIB = 1048576;
  const mib = (bytes) => `${number(bytes / MIB)} MiB`;
  const isScore = () => shown.job.measure === 'score';
  const noun = () => (isScore() ? 'sample' : 'step');
  const value = (v) => (isScore() ? `${number(v)} B/µs` : units.ms(v));
  const place = ({ fusion_mb, cycle_ms }) => `${fusion_mb === 0 ? 'no fusion' : `${number(fusion_mb)} MiB`}, ${number(cycle_ms)} ms`;
  const switches = (bits) => [
    bits & 1 ? '' : 'no response cache', bits & 2 ? 'hierarchical allreduce' : '', bits & 4 ? 'hierarchical allgather' : '',
  ].filter(Boolean).join(', ');
  const settings = (s) => place({ fusion_mb: s.fusion_threshold_bytes / MIB, cycle_ms: s.cycle_time_ns / 1e6 });
  const rowSettings = (row) => place({ fusion_mb: row[FUSION] / MIB, cycle_ms: row[CYCLE] });
  const near = (a, b) => a && b && a.fusion_mb === b.fusion_mb && a.cycle_ms === b.cycle_ms;

  function element(name, text, properties = {}) {
    const made = Object.assign(document.createElement(name), properties);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function notice(text) {
    const place = byId('notice');
    place.textContent = text;
    place.hidden = false;
  }

  // Replaces the rows of a table: a list of names, a name that begins with `>` being that of a
  // column of numbers, and a list of cells for each row.
  function table(target, names, rows) {
    const isNumber = names.map((name) => name.startsWith('>'));
    const head = element('tr');
    names.forEach((name, index) => head.append(element('th', name.replace('>', ''), { scope: 'col', className: isNumber[index] ? 'n' : '' })));
    const body = element('tbody');
    for (const { cells, mark } of rows) {
      const line = element('tr', undefined, { className: mark ? 'mark' : '' });
      cells.forEach((cell, index) => {
        const made = element('td', undefined, { className: isNumber[index] ? 'n' : '' });
        made.append(cell ?? '');
        line.append(made);
      });
      body.append(line);
    }
    const top = element('thead');
    top.append(head);
    target.replaceChildren(top, body);
  }

  // --- Figures ---

  const last = (list) => list[list.length - 1];
  const first = (row) => row[STEP];
  const end = (row) => row[STEP] + row[STEPS];
  const alike = (a, b) => a[FUSION] === b[FUSION] && a[CYCLE] === b[CYCLE] && a[SWITCHES] === b[SWITCHES];
  const middle = (row) => row[STEP] + (row[STEPS] - 1) / 2;

  function median(values) {
    const sorted = values.toSorted((a, b) => a - b);
    return sorted[sorted.length >> 1];
  }

  // Average of a column over rows, weighted by their steps; undefined if it has no values.
  function mean(rows, column) {
    let [sum, steps] = [0, 0];
    for (const row of rows) {
      if (row[column] === null) continue;
      sum += row[column] * row[STEPS];
      steps += row[STEPS];
    }
    return steps ? sum / steps : undefined;
  }

  // The newest rows at equal settings, of at most 50 steps.
  function recent() {
    const newest = last(shown.steps);
    const found = [];
    let steps = 0;
    for (let index = shown.steps.length - 1; index >= 0 && steps < 50; index--) {
      const row = shown.steps[index];
      if (!alike(row, newest)) break;
      found.push(row);
      steps += row[STEPS];
    }
    return found;
  }

  function defaultValue() {
    const told = last(shown.verdicts)?.default_value;
    return told ?? mean(shown.steps.filter((row) => row[WINDOW] === 1), MEAN);
  }

  function tiles() {
    const all = [];
    const tile = (name, text, detail = '', look = '') => all.push({ name, text, detail, look });
    const verdict = last(shown.verdicts);
    const newest = last(shown.steps);
    if (newest) {
      const rows = recent();
      const now = median(rows.map((row) => row[MEAN]));
      const base = defaultValue();
      const ratio = base && now / base - 1;
      tile(isScore() ? 'Score' : 'Step time', value(now), base ? `${signed(100 * ratio)} % against the default, ${value(base)}` : rows.length === 1 ? `latest ${noun()}` : `median of ${count(rows.reduce((sum, row) => sum + row[STEPS], 0), noun())}`);
      tile('Settings', rowSettings(newest), switches(newest[SWITCHES]) || `since ${noun()} ${units.count(first(last(rows)))}`);
    }
    if (shown.tuner) {
      const left = shown.tuner.steps_left;
      tile('Tuner', shown.tuner.phase, [shown.tuner.detail, left ? `about ${count(left, 'step')} left` : ''].filter(Boolean).join('; '));
    }
    if (verdict) {
      const told = verdict.gain_pct;
      if (verdict.kept_default) tile('Gain', verdict.reverted ? 'reverted' : 'none', 'the default stays', verdict.reverted ? 'bad' : '');
      else if (told) tile('Gain', `${number(told[0])} to ${number(told[1])} %`, 'of the default’s step time, 95 % interval', 'good');
    }
    const lost = verdict?.steps_lost ?? shown.tuner?.steps_lost;
    if (lost !== undefined && lost !== null) {
      const payback = verdict?.payback_step;
      const step = newest ? end(newest) : 0;
      const detail = payback ? `paid back ${step >= payback ? 'since' : 'at'} step ${units.count(payback)}` : verdict?.budget_steps ? `of a budget of ${count(verdict.budget_steps, 'step')}` : 'at the default settings';
      tile('Cost of the search', `${number(lost)} steps`, detail);
    }
    if (newest) {
      const rows = recent();
      const part = (name, column) => {
        const ms = mean(rows, column);
        if (ms !== undefined) tile(name, units.ms(ms), isScore() ? '' : `${percent(ms / mean(rows, MEAN))} of the step`);
      };
      part('Exposed communication', EXPOSED);
      part('Negotiation', NEGOTIATION);
      const [messages, fill, bytes] = [MESSAGES, FILL, BYTES].map((column) => mean(rows, column));
      if (messages !== undefined) tile('Messages per step', number(messages), [fill === undefined ? '' : `${percent(fill)} full`, bytes === undefined ? '' : mib(bytes)].filter(Boolean).join(', '));
    }
    byId('tiles').replaceChildren(...all.map(({ name, text, detail, look }) => {
      const box = element('div');
      box.append(element('dt', name), element('dd', text, { className: look }), element('dd', detail, { className: 'detail' }));
      return box;
    }));
  }

  function status() {
    const place = byId('status');
    const newest = last(shown.steps);
    const at = newest ? `, ${noun()} ${units.count(end(newest) - 1)}` : '';
    let [state, text] = ['live', `${shown.job.is_log ? 'following the log' : 'running'}${at}`];
    if (shown.end) {
      state = shown.end.failed ? 'failed' : 'ended';
      text = `ended${at}: ${shown.end.text.replace(/[^.!?]$/, '$&.')}`;
      if (lostAt) text += ' The page keeps what it showed.';
    } else if (lostAt) {
      state = 'lost';
      text = `connection lost at ${clock(lostAt)}${at}; trying again. The page shows the state at that time.`;
    } else if (shown.jobs === undefined) {
      [state, text] = ['waiting', 'connecting …'];
    } else if (!shown.job.name && !newest) {
      [state, text] = ['waiting', 'waiting for the job'];
    }
    if (denied) {
      [state, text] = ['denied', 'another job runs here, with another token: open the URL that it has printed. The page keeps what it showed.'];
    }
    if (full) {
      text = 'as many pages as are allowed are open: close one.';
    }
    place.dataset.state = state;
    byId('status-text').textContent = text;
    byId('tiles').classList.toggle('stale', ['lost', 'denied'].includes(state));
    document.title = `${shown.job.name || 'ronde dash'} – ${state === 'live' ? `${noun()} ${newest ? units.count(end(newest) - 1) : 0}` : state}`;
    for (const button of document.querySelectorAll('#control button')) button.disabled = state !== 'live';
  }

  function about() {
    const { name, ranks, hosts, backend, version: program, model, started_unix_ms: started } = shown.job;
    byId('name').textContent = name || 'Live page of a job';
    byId('about').textContent = [
      ranks ? count(ranks, 'rank') + (hosts ? ` on ${count(hosts, 'host')}` : '') : '',
      backend, model && `${model} per step`, program && `Ronde ${program}`, started ? `started ${clock(started)}` : '',
    ].filter(Boolean).join(' · ');
  }

  // --- Charts ---

  const charts = new Map();
  function chart(id, spec) {
    // The legend is made once for all series.
    const names = spec.series.map((series) => series.name).join();
    const open = charts.get(id);
    if (open?.names === names) return open.chart.show(spec);
    open?.chart.remove();
    charts.set(id, { names, chart: ronde.chart(byId(id), spec) });
  }

  const axis = (label, unit, from, to) => ({ label, unit, log: false, from, to: to > from ? to : from + Math.max(Math.abs(from), 1) });

  // Range of the values without outliers.
  function range(values) {
    const sorted = values.toSorted((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    const [low, typical, high] = [at(0), at(0.9), last(sorted)];
    const top = high > 2 * typical ? 1.4 * typical : high;
    const margin = Math.max((top - low) * 0.1, top * 0.005);
    return [Math.max(0, low - margin), top + margin];
  }

  function described(row) {
    const steps = row[STEPS] === 1 ? `${noun()} ${units.count(first(row))}` : `${noun()}s ${units.count(first(row))} to ${units.count(end(row) - 1)}`;
    const spread = row[LOW] < row[HIGH] ? `, ${value(row[LOW])} to ${value(row[HIGH])}` : '';
    return [
      `${steps}: ${value(row[MEAN])}${spread}`,
      rowSettings(row), switches(row[SWITCHES]), row[WINDOW] ? WINDOWS[row[WINDOW]].name : '',
      row[EXPOSED] === null ? '' : `exposed communication ${units.ms(row[EXPOSED])}`,
    ].filter(Boolean).join('\n');
  }

  function stepsChart() {
    const rows = shown.steps;
    if (!rows.length) return;
    const [low, high] = range(rows.map((row) => row[MEAN]));
    const [from, to] = [first(rows[0]), end(last(rows))];
    const points = WINDOWS.map(() => []);
    const visits = [];
    let beyond = 0;
    for (const row of rows) {
      if (row[MEAN] > high) beyond += row[STEPS];
      const y = Math.min(row[MEAN], high);
      points[row[WINDOW]].push({ x: middle(row), y, low: y, high: y, text: described(row) });
      const open = last(visits);
      if (row[WINDOW] < 3) continue;
      if (open && open.window === row[WINDOW] && open.x[1] === first(row) - 0.5) open.x[1] = end(row) - 0.5;
      else visits.push({ window: row[WINDOW], x: [first(row) - 0.5, end(row) - 0.5], y: [0, 10 * high], text: WINDOWS[row[WINDOW]].name });
    }
    // Running median of at most 15 rows at equal settings.
    const trend = rows.map((row, index) => {
      const around = rows.slice(Math.max(0, index - 7), index + 8).filter((one) => alike(one, row));
      const y = Math.min(median(around.map((one) => one[MEAN])), high);
      return [middle(row), y, y, y];
    });
    const verdict = last(shown.verdicts);
    const rules = shown.changes.filter(({ step }) => step >= from).map(({ step }) => ({ upright: true, at: step - 0.5, name: '', faint: true }));
    for (const { step } of shown.verdicts) if (step >= from) rules.push({ upright: true, at: step - 0.5, name: 'verdict' });
    if (verdict?.default_value > low && verdict.default_value < high) rules.push({ upright: false, at: verdict.default_value, name: `default ${value(verdict.default_value)}` });
    const area = (window) => ({ name: '', colour: WINDOWS[window].colour, kind: 'boxes', opacity: 0.13, boxes: visits.filter((visit) => visit.window === window) });
    chart('steps-chart', {
      x: axis(noun(), 'count', from - 0.5, to - 0.5),
      y: axis('', isScore() ? 'plain' : 'ms', low, high),
      zoom: true,
      series: [
        area(3), area(4),
        ...WINDOWS.map((window, index) => ({ ...window, kind: 'points', points: points[index] })).filter((series) => series.points.length),
        // A log has few samples of each setting.
        ...(shown.job.is_log ? [] : [{ name: 'running median', colour: '--ink', kind: 'line', points: trend, dashed: false }]),
      ],
      rules,
    });
    byId('steps-title').textContent = isScore() ? 'Score of each sample, higher is better' : 'Step time';
    const notes = ['Vertical lines are changes of settings.'];
    const combined = Math.max(...rows.map((row) => row[STEPS]));
    if (combined > 1 && !shown.job.is_log) notes.push(`Older steps are combined, up to ${units.count(combined)} per point.`);
    if (beyond) notes.push(`${count(beyond, 'step')} above the upper edge ${beyond === 1 ? 'is' : 'are'} drawn at it.`);
    byId('steps-note').textContent = notes.join(' ');
    changesTable();
  }

  function changesTable() {
    const { changes } = shown;
    byId('changes-box').hidden = !changes.length;
    byId('changes-summary').textContent = count(changes.length, 'change') + ' of settings';
    if (!byId('changes-box').open) return;
    table(byId('changes'), ['>step', 'settings', 'reason'], changes.toReversed().map(({ step, settings: s, why }) => ({
      cells: [units.count(step), [settings(s), s.cache ? '' : 'no response cache', s.hierarchical_allreduce ? 'hierarchical allreduce' : '', s.hierarchical_allgather ? 'hierarchical allgather' : ''].filter(Boolean).join(', '), why],
    })));
  }

  function surfaceChart() {
    const { surface } = shown;
    if (!surface?.fusion_mb.length || !surface.cells.length) return;
    const { fusion_mb: xs, cycle_ms: ys } = surface;
    const places = (label, values) => ({ ...axis(label, 'plain', -0.5, values.length - 0.5), ticks: values.map((v, index) => [index, number(v)]) });
    // Position of a value among levels: between two levels on the scale of their logarithms.
    const position = (levels, wanted) => {
      const above = levels.findIndex((level) => level >= wanted);
      if (above <= 0 || levels[above] === wanted) return above < 0 ? levels.length - 1 : above;
      const [low, high] = [levels[above - 1], levels[above]];
      const share = low > 0 ? Math.log(wanted / low) / Math.log(high / low) : (wanted - low) / (high - low);
      return above - 1 + share;
    };
    const point = (at, text) => {
      const [x, y] = [position(xs, at.fusion_mb), position(ys, at.cycle_ms)];
      return { x, y, low: y, high: y, text: `${place(at)}\n${text}` };
    };
    const boxes = surface.cells.flatMap((cell, index) => {
      if (!cell) return [];
      const [x, y] = [index % xs.length, Math.floor(index / xs.length)];
      return [{
        x: [x - 0.5, x + 0.5], y: [y - 0.5, y + 0.5], colour: cell[1],
        text: `${place({ fusion_mb: xs[x], cycle_ms: ys[y] })}\n${value(cell[0])}${surface.is_model ? ' expected' : ''}`,
      }];
    });
    const tried = surface.tried.map((one) => point(one, `${value(one.value)}, measured ${one.measurements === 1 ? 'once' : `${one.measurements} times`}`));
    const mark = (at, text) => (at ? [point(at, text)] : []);
    chart('surface-chart', {
      x: places('fusion threshold, MiB', xs), y: places('cycle time, ms', ys), zoom: false, rules: [],
      series: [
        { name: '', colour: '--panel', kind: 'boxes', boxes },
        { name: 'measured', colour: '--ink', kind: 'points', shape: 'circle', points: tried },
        { name: 'default', colour: '--series-3', kind: 'points', shape: 'square', points: mark(surface.default, 'default') },
        { name: 'best so far', colour: '--series-1', kind: 'points', shape: 'star', points: mark(surface.incumbent, 'best so far') },
        { name: 'next', colour: '--series-1', kind: 'points', shape: 'hollow', points: mark(surface.next, 'measured next') },
      ].filter((series) => series.boxes || series.points.length),
    });
    byId('surface-title').textContent = `${surface.is_model ? 'Expected' : 'Measured'} ${isScore() ? 'score' : 'step time'}; vertical: cycle time, ms`;
    byId('surface-key').replaceChildren(...surface.key.flatMap(([colour, label]) => {
      const swatch = element('i', undefined, { className: 'key-swatch' });
      swatch.style.background = colour;
      const entry = element('span');
      entry.append(swatch, ` ${label}`);
      return [entry, ' '];
    }));
  }

  function tuning() {
    const { surface } = shown;
    const verdict = last(shown.verdicts);
    byId('tuning').hidden = !surface && !verdict && !shown.tuner;
    byId('verdict').hidden = !verdict;
    byId('verdict').textContent = verdict ? `Verdict at ${noun()} ${units.count(verdict.step)}: ${verdict.text}` : '';
    const tried = (surface?.tried ?? []).toSorted((a, b) => (isScore() ? b.value - a.value : a.value - b.value));
    const base = surface?.default && tried.find((one) => near(one, surface.default));
    table(byId('tried'), ['setting', isScore() ? '>score' : '>step time', '>times', '>vs. default', ''], tried.map((one) => {
      const what = [near(one, surface.default) && 'default', near(one, surface.incumbent) && 'best', near(one, surface.next) && 'now'].filter(Boolean);
      const ci = one.ci95 ? ` ± ${number(one.ci95)}` : '';
      const ratio = base && base !== one ? `${signed(100 * (one.value / base.value - 1))} %` : '';
      return { cells: [place(one), value(one.value) + ci, String(one.measurements), ratio, what.join(', ')], mark: what.length > 0 };
    }));
    byId('rechecks-heading').hidden = !shown.rechecks.length;
    byId('rechecks').replaceChildren(...shown.rechecks.slice(-12).toReversed().map((one) => element('li', `Step ${units.count(one.step)}: ${one.text}`)));
  }

  const SMALL = [
    { column: EXPOSED, name: 'Exposed communication', unit: 'ms', text: units.ms, colour: '--series-1' },
    { column: NEGOTIATION, name: 'Negotiation', unit: 'ms', text: units.ms, colour: '--series-3' },
    { column: MESSAGES, name: 'Messages per step', unit: 'plain', text: number, colour: '--series-0' },
    { column: FILL, name: 'Filled part of the fusion threshold', unit: 'plain', text: (share) => percent(share), colour: '--series-2', scale: 100, most: 100 },
  ];
  function smallCharts() {
    let any = false;
    for (const { column, name, unit, text, colour, scale = 1, most } of SMALL) {
      const rows = shown.steps.filter((row) => row[column] !== null);
      const id = `small-chart-${column}`;
      if (!rows.length) {
        if (byId(id)) byId(id).hidden = true;
        continue;
      }
      any = true;
      if (!byId(id)) {
        const box = element('div', undefined, { className: 'chart', id });
        box.setAttribute('role', 'group');
        const plot = element('div', undefined, { className: 'plot' });
        plot.style.height = '150px';
        plot.setAttribute('role', 'img');
        plot.setAttribute('aria-label', `${name} over the steps`);
        box.append(element('p', undefined, { className: 'chart-title' }), plot);
        byId('small-charts').append(box);
        byId('parts').hidden = false; // a chart needs its size
      }
      byId(id).hidden = false;
      const title = byId(id).querySelector('.chart-title');
      title.replaceChildren(`${name}: `, element('b', text(mean(recent(), column) ?? last(rows)[column])));
      const [, high] = range(rows.map((row) => scale * row[column]));
      chart(id, {
        x: axis('', 'count', first(shown.steps[0]) - 0.5, end(last(shown.steps)) - 0.5), y: axis('', unit, 0, most ?? high), zoom: false, plain: true, rules: [],
        series: [{ name: '', colour, kind: 'line', dashed: false, points: rows.map((row) => { const y = Math.min(scale * row[column], most ?? high); return [middle(row), y, y, y]; }) }],
      });
    }
    byId('parts').hidden = !any;
  }

  function ranks() {
    const rows = shown.ranks?.rows ?? [];
    byId('ranks').hidden = !rows.length;
    if (!rows.length) return;
    // Ranks of other hosts do not report their own times, but the delay of each rank is known.
    const heights = rows.map((row) => Math.max(row.late_ms ?? 0, (row.wait_ms ?? 0) + (row.transfer_ms ?? 0)));
    const columns = (column) => rows.map((row, index) => ({ x: [index - 0.35, index + 0.35], height: row[column] ?? 0, text: `rank ${row.rank}` }));
    const delays = rows.map((row, index) => ({ x: index, y: row.late_ms, text: `rank ${row.rank}\ndelay: ${units.ms(row.late_ms ?? 0)}` }));
    chart('ranks-chart', {
      x: { ...axis('rank, the latest first', 'plain', -0.5, Math.max(rows.length, 4) - 0.5), ticks: rows.map((row, index) => [index, String(row.rank)]) },
      y: axis('', 'ms', 0, 1.08 * Math.max(...heights) || 1), zoom: false, rules: [],
      series: [
        { name: 'transfer', colour: '--series-0', kind: 'columns', columns: columns('transfer_ms') },
        { name: 'waiting', colour: '--series-1', kind: 'columns', columns: columns('wait_ms') },
        { name: 'delay', colour: '--series-3', kind: 'points', shape: 'diamond', points: delays },
      ],
    });
    const ms = (v) => (v === null ? '' : units.ms(v));
    table(byId('ranks-table'), ['>rank', '>delay', '>waiting', '>transfer'], rows.map((row) => ({
      cells: [String(row.rank), ms(row.late_ms), ms(row.wait_ms), ms(row.transfer_ms)],
    })));
  }

  const KINDS = { drift: 'drift', stall: 'stall', lost_rank: 'lost rank', timeline: 'timeline', control: 'control', tuner: 'tuner', info: 'info', warning: 'warning' };
  function log() {
    const rows = shown.log.toReversed().map(({ at_unix_ms: at, step, kind, text }) => ({
      cells: [at === null ? '' : clock(at), step === null ? '' : units.count(step), element('span', KINDS[kind], { className: `kind kind-${kind}` }), text],
    }));
    table(byId('log'), ['time', '>step', 'event', ''], rows.length ? rows : [{ cells: ['', '', '', 'none yet'] }]);
  }

  // --- Controls ---

  async function give(command, question) {
    const dialog = byId('confirm');
    byId('confirm-text').textContent = question;
    dialog.returnValue = 'no';
    dialog.showModal();
    // The event of an earlier question may still come.
    do await new Promise((done) => dialog.addEventListener('close', done, { once: true })); while (dialog.open);
    if (dialog.returnValue !== 'yes') return;
    const result = byId('control-result');
    result.textContent = '…';
    try {
      const answer = await fetch('control', { method: 'POST', headers: { 'X-Ronde-Control': control }, body: JSON.stringify(command) });
      result.textContent = (answer.ok ? '' : 'Not done: ') + (await answer.text()).trim();
    } catch {
      result.textContent = 'Not sent: the connection is lost.';
    }
  }

  function controls() {
    byId('control-tuning').addEventListener('submit', (event) => {
      event.preventDefault();
      give({ command: 'stop_tuning' }, 'Stop tuning and keep the settings in force?');
    });
    byId('control-set').addEventListener('submit', (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      const command = { command: 'set' };
      const said = [];
      for (const [name, label] of [['fusion_mb', 'fusion threshold'], ['cycle_ms', 'cycle time']]) {
        if (form.get(name) === '') continue;
        command[name] = Number(form.get(name));
        said.push(`${label} ${form.get(name)} ${name === 'fusion_mb' ? 'MiB' : 'ms'}`);
      }
      if (form.get('cache')) {
        command.cache = form.get('cache') === 'true';
        said.push(`response cache ${command.cache ? 'on' : 'off'}`);
      }
      if (!said.length) byId('control-result').textContent = 'No setting is entered.';
      else give(command, `Set ${said.join(', ')} on all ranks?`);
    });
    byId('control-timeline').addEventListener('submit', (event) => {
      event.preventDefault();
      const path = new FormData(event.target).get('path');
      if (event.submitter?.value === 'stop') give({ command: 'stop_timeline' }, 'Stop the timeline?');
      else give({ command: 'start_timeline', path }, `Start a timeline in ${path}?`);
    });
  }

  // --- Drawing ---

  // At most twice a second, and not while the page is hidden.
  const INTERVAL_MS = 500;
  let drawnAt = 0;
  let timer;
  function draw() {
    if (timer || document.hidden) return;
    timer = setTimeout(() => {
      timer = undefined;
      drawnAt = performance.now();
      const is = (...names) => changed.has('all') || names.some((name) => changed.has(name));
      if (is('job')) about();
      if (is('steps', 'verdicts', 'tuner', 'job')) tiles();
      if (is('steps', 'verdicts', 'changes')) stepsChart();
      if (is('surface', 'verdicts', 'rechecks', 'tuner')) tuning();
      if (is('surface')) surfaceChart();
      if (is('steps')) smallCharts();
      if (is('ranks')) ranks();
      if (is('log')) log();
      if (is('control')) byId('control').hidden = !control;
      status();
      changed.clear();
    }, Math.max(0, INTERVAL_MS - (performance.now() - drawnAt)));
  }
  document.addEventListener('visibilitychange', draw);

  byId('changes-box').addEventListener('toggle', changesTable);
  controls();
  connect();
})();
