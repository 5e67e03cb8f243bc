// The lane view: draws the bars in #lane-data on a canvas; zooms, moves, and tells what a bar is.
(() => {
  const view = document.getElementById('lane-view');
  if (!view) return;
  const data = JSON.parse(document.getElementById('lane-data').textContent);
  view.classList.add('alive');
  const canvas = view.querySelector('canvas');
  const scroll = view.querySelector('.lane-scroll');
  const tip = view.querySelector('.lane-tip');
  const status = document.getElementById('lane-status');
  const pen = canvas.getContext('2d');
  const AXIS = 26, GAP = 10, MIN_SPAN = 0.002; // pixels, pixels, milliseconds

  // Bars by lane and row, in order of time, so that what is in view is found by bisection.
  const lanes = data.lanes.map((lane) => {
    const rows = Array.from({ length: lane.rows }, () => []);
    let began = 0;
    for (let i = 0; i < lane.bars.length; i += 5) {
      const [label, part, row, since, length] = lane.bars.slice(i, i + 5);
      began += since;
      rows[row].push({ rank: lane.rank, label: data.labels[label], part, from: began / data.ticks, to: (began + length) / data.ticks });
    }
    return { rank: lane.rank, rows, ends: lane.ends_ms };
  });
  const every = lanes.flatMap((lane) => lane.rows.flat()).sort((a, b) => a.from - b.from);
  const least = every.reduce((a, bar) => Math.min(a, bar.from), 0);
  const most = every.reduce((a, bar) => Math.max(a, bar.to), Math.max(least + MIN_SPAN, ...lanes.flatMap((lane) => lane.ends)));
  let from = least, to = most, selected = null, width = 0, layout = [];

  const rowCount = lanes.reduce((n, lane) => n + lane.rows.length, 0);
  const rowHeight = Math.max(7, Math.min(20, Math.floor(520 / rowCount)));
  const gutter = () => (width < 500 ? 46 : 64);
  const x = (ms) => gutter() + ((ms - from) / (to - from)) * (width - gutter());
  const time = (px) => from + ((px - gutter()) / (width - gutter())) * (to - from);

  const say = (ms) => {
    const size = Math.abs(ms);
    const round = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));
    if (size === 0) return '0 ms';
    return size < 0.1 ? `${round(ms * 1000)} µs` : `${round(ms)} ms`;
  };
  const describe = (bar) =>
    `${bar.label}\n${data.parts[bar.part][0]}, rank ${bar.rank}\n${say(bar.to - bar.from)}, from ${bar.from.toFixed(3)} to ${bar.to.toFixed(3)} ms`;

  let paint = {};
  function palette() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    paint = { paper: read('--paper'), panel: read('--panel'), ink: read('--ink'), soft: read('--soft'), line: read('--line') };
    paint.parts = data.parts.map(([, variable, hatch]) => {
      const colour = read(variable);
      if (!hatch) return colour;
      const tile = document.createElement('canvas');
      tile.width = tile.height = 8;
      const brush = tile.getContext('2d');
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 8, 8);
      brush.strokeStyle = read('--hatch');
      brush.lineWidth = 1.1;
      brush.stroke(new Path2D(hatch));
      return pen.createPattern(tile, 'repeat');
    });
  }

  function firstInView(row) {
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row[middle].to < from) low = middle + 1; else high = middle;
    }
    return low;
  }

  function ticks() {
    const wanted = (to - from) / Math.max(2, (width - gutter()) / 90);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted);
    const found = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) found.push(i * step);
    return [found, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    width = scroll.clientWidth;
    if (!width) return;
    const height = AXIS + rowCount * rowHeight + lanes.length * GAP;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = paint.paper;
    pen.fillRect(0, 0, width, height);
    pen.font = '12px system-ui, sans-serif';
    pen.textBaseline = 'middle';

    const [marks, places] = ticks();
    pen.lineWidth = 1;
    pen.textAlign = 'center';
    for (const ms of marks) {
      const at = Math.round(x(ms)) + 0.5;
      pen.strokeStyle = paint.line;
      pen.beginPath(); pen.moveTo(at, AXIS - 4); pen.lineTo(at, height); pen.stroke();
      const text = ms.toFixed(places);
      const half = pen.measureText(text).width / 2;
      pen.fillStyle = paint.soft;
      if (at - half > gutter() && at + half < width) pen.fillText(text, at, AXIS / 2 - 1);
    }
    pen.textAlign = 'left';
    pen.fillText('ms', 6, AXIS / 2 - 1);

    layout = [];
    let y = AXIS;
    lanes.forEach((lane, index) => {
      const laneHeight = lane.rows.length * rowHeight + GAP;
      if (index % 2 === 0) {
        pen.globalAlpha = 0.55;
        pen.fillStyle = paint.panel;
        pen.fillRect(0, y, width, laneHeight);
        pen.globalAlpha = 1;
      }
      pen.save();
      pen.beginPath(); pen.rect(gutter(), y, width - gutter(), laneHeight); pen.clip();
      lane.rows.forEach((row, r) => {
        const top = y + GAP / 2 + r * rowHeight;
        layout.push({ top, row });
        drawRow(row, top);
      });
      pen.strokeStyle = paint.ink;
      pen.setLineDash([4, 3]);
      for (const end of lane.ends) {
        const at = Math.round(x(end)) + 0.5;
        pen.beginPath(); pen.moveTo(at, y); pen.lineTo(at, y + laneHeight); pen.stroke();
      }
      pen.setLineDash([]);
      pen.restore();
      pen.fillStyle = paint.ink;
      pen.textAlign = 'left';
      pen.fillText(width < 500 ? `r${lane.rank}` : `rank ${lane.rank}`, 6, y + laneHeight / 2);
      y += laneHeight;
    });
    canvas.dataset.drawn = String(every.length);
  }

  function drawRow(row, top) {
    const tall = rowHeight - (rowHeight > 10 ? 3 : 1);
    let covered = -Infinity; // bars within one pixel need not be drawn one over another
    for (let i = firstInView(row); i < row.length && row[i].from <= to; i++) {
      const bar = row[i];
      const left = Math.max(x(bar.from), gutter() - 2);
      const right = Math.min(x(bar.to), width + 2);
      if (right <= covered && bar !== selected) continue;
      const wide = Math.max(right - left, 1);
      covered = left + wide;
      pen.fillStyle = paint.parts[bar.part];
      pen.fillRect(left, top, wide > 3 ? wide - 0.5 : wide, tall);
      if (bar === selected) {
        pen.strokeStyle = paint.ink;
        pen.lineWidth = 2;
        pen.strokeRect(left, top, wide, tall);
        pen.lineWidth = 1;
      }
      if (wide > 44 && tall > 11) write(bar.label, left + 4, top + tall / 2 + 0.5, wide - 8);
    }
  }

  function write(text, at, y, room) {
    // Of a path, the last name is what tells bars apart, and of that the end; of plain words, the beginning.
    const path = /[/.]/.test(text);
    const more = / and (\d+) more/.exec(text);
    const name = path ? text.split(' ')[0] + (more ? ` +${more[1]}` : '') : text;
    const cut = path ? (n) => '…' + name.slice(n) : (n) => name.slice(0, name.length - n) + '…';
    let shown = more ? name : text;
    if (pen.measureText(shown).width > room) {
      let low = 0, high = name.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (pen.measureText(cut(middle)).width > room) low = middle + 1; else high = middle;
      }
      if (name.length - low < 3) return;
      shown = cut(low);
    }
    pen.textAlign = 'left';
    pen.lineWidth = 3;
    pen.lineJoin = 'round';
    pen.strokeStyle = paint.paper;
    pen.strokeText(shown, at, y);
    pen.lineWidth = 1;
    pen.fillStyle = paint.ink;
    pen.fillText(shown, at, y);
  }

  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  function show(a, b) {
    const span = Math.min(Math.max(b - a, MIN_SPAN), most - least);
    from = Math.min(Math.max(a + (b - a - span) / 2, least), most - span);
    to = from + span;
    hideTip();
    redraw();
  }
  const zoom = (factor, around = (from + to) / 2) => show(around - (around - from) * factor, around + (to - around) * factor);
  const move = (share) => show(from + (to - from) * share, to + (to - from) * share);
  function oneStep() {
    const ends = lanes[0].ends.filter((end) => end > least);
    const next = ends.find((end) => end > from + 1e-6) ?? most;
    const before = ends.filter((end) => end < next).pop() ?? least;
    // Asked again while it shows that step, it shows the next one.
    const shown = Math.abs(before - from) < 1e-6 && Math.abs(next - to) < 1e-6;
    const after = ends.find((end) => end > next);
    if (shown) show(after === undefined ? least : next, after ?? ends[0] ?? most); else show(before, next);
  }
  const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => show(least, most), step: oneStep };
  view.querySelector('.lane-buttons').addEventListener('click', (event) => actions[event.target.dataset.do]?.());

  function select(step) {
    const at = every.indexOf(selected);
    const start = at < 0 ? every.findIndex((bar) => bar.to >= from) - (step > 0 ? 1 : 0) : at;
    const next = every[Math.min(Math.max(start + step, 0), every.length - 1)];
    selected = next;
    if (next.from < from || next.to > to) {
      const span = Math.max(to - from, (next.to - next.from) * 1.2);
      show((next.from + next.to - span) / 2, (next.from + next.to + span) / 2);
    }
    status.textContent = describe(next).replaceAll('\n', '; ');
    redraw();
  }
  const keys = {
    '+': actions.in, '=': actions.in, '-': actions.out, '−': actions.out, ArrowLeft: actions.left, ArrowRight: actions.right,
    Home: actions.all, 0: actions.all, s: oneStep, n: () => select(1), p: () => select(-1),
    Escape: () => { selected = null; hideTip(); redraw(); },
  };
  canvas.addEventListener('keydown', (event) => {
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });

  function hideTip() { tip.hidden = true; }
  function barAt(px, py) {
    const line = layout.find(({ top }) => py >= top && py < top + rowHeight);
    if (!line || px < gutter()) return null;
    const slack = ((to - from) / (width - gutter())) * 2;
    const at = time(px);
    let best = null;
    for (let i = firstInView(line.row); i < line.row.length && line.row[i].from <= at + slack; i++) {
      const bar = line.row[i];
      if (bar.to + slack >= at && (!best || Math.abs((bar.from + bar.to) / 2 - at) < Math.abs((best.from + best.to) / 2 - at))) best = bar;
    }
    return best;
  }
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  function tell(event) {
    const [px, py] = place(event);
    const bar = barAt(px, py);
    if (!bar) { hideTip(); return null; }
    tip.textContent = describe(bar);
    tip.hidden = false;
    const left = Math.min(Math.max(px + 12, 4), width - tip.offsetWidth - 4);
    const below = py + 16 + tip.offsetHeight < canvas.offsetHeight;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${below ? py + 16 : Math.max(py - tip.offsetHeight - 10, 2)}px`;
    return bar;
  }

  canvas.addEventListener('wheel', (event) => {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      move((event.deltaX || event.deltaY) / width);
    } else if (event.ctrlKey || event.metaKey || document.activeElement === canvas) {
      zoom(Math.exp(event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0016)), time(place(event)[0]));
    } else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });

  const down = new Map();
  let moved = 0;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    down.set(event.pointerId, place(event)[0]);
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!down.has(event.pointerId)) { tell(event); return; }
    const old = [...down.values()];
    const [px] = place(event);
    moved += Math.abs(px - down.get(event.pointerId));
    down.set(event.pointerId, px);
    const now = [...down.values()];
    if (now.length === 1) {
      const shift = ((old[0] - now[0]) / (width - gutter())) * (to - from);
      show(from + shift, to + shift);
    } else if (now.length === 2) {
      const [a, b] = old.map(time);
      const wide = now[1] - now[0];
      if (Math.abs(wide) < 8 || (a - b) * (now[0] - now[1]) <= 0) return;
      const perPixel = (b - a) / wide;
      const start = a - (now[0] - gutter()) * perPixel;
      show(start, start + (width - gutter()) * perPixel);
    }
  });
  const release = (event) => {
    if (!down.delete(event.pointerId) || event.type === 'pointercancel' || moved > 6) return;
    const bar = tell(event);
    selected = bar;
    if (bar) status.textContent = describe(bar).replaceAll('\n', '; ');
    redraw();
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('pointerleave', () => { if (!down.size) hideTip(); });
  canvas.addEventListener('dblclick', (event) => zoom(0.33, time(place(event)[0])));

  const repaint = () => { palette(); draw(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  matchMedia('print').addEventListener('change', repaint);
  addEventListener('beforeprint', repaint);
  addEventListener('afterprint', repaint);
  addEventListener('resize', redraw); // also when the page is zoomed, which needs other pixels
  new ResizeObserver(() => { if (scroll.clientWidth !== width) redraw(); }).observe(scroll);
  repaint();
})();
