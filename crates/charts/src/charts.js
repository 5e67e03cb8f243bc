// Draws every .chart of the page from its JSON data with Apache ECharts: axes, series, legend, zoom
// and the colours of the page. Pages whose charts change call ronde.chart(element, data), show() of
// what it returns with new data that has the same named series, and remove() before another one.
(() => {
  const root = document.documentElement;
  const charts = [];

  // Format numbers as number.rs does.
  const fixed = (value, places) => {
    const [whole, part] = Math.abs(value).toFixed(places).split('.');
    const text = whole.replace(/\B(?=(\d{3})+$)/g, ',') + (part ? '.' + part : '');
    return (value < 0 && /[1-9]/.test(text) ? '−' : '') + text;
  };
  const digits = (value) => {
    const size = Math.abs(value);
    const places = size === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
    return fixed(value, places);
  };
  const short = (value) => {
    const text = digits(value);
    return text.includes('.') ? text.replace(/0+$/, '').replace(/\.$/, '') : text;
  };
  const units = {
    plain: short,
    count: (value) => (Number.isInteger(value) ? fixed(value, 0) : ''),
    ms: (value) => {
      const size = Math.abs(value);
      if (size === 0) return '0';
      return size < 0.0995 ? `${short(value * 1e3)} µs` : size < 9999.5 ? `${short(value)} ms` : `${short(value / 1e3)} s`;
    },
    bytes: (value) => {
      const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
      let unit = 0;
      for (; Math.abs(value) >= 1023.5 && unit + 1 < names.length; unit++) value /= 1024;
      return `${short(value)} ${names[unit]}`;
    },
  };

  const font = () => getComputedStyle(document.body).fontFamily;
  const escaped = (text) =>
    text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replaceAll('\n', '<br>');

  function palette() {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(name).trim();
    return { read, paper: read('--paper'), panel: read('--panel'), ink: read('--ink'), soft: read('--soft'), line: read('--line') };
  }

  // Fill of a series: its colour with its pattern.
  function filling(paint, series) {
    const colour = paint.read(series.colour);
    if (!series.hatch) return colour;
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const brush = tile.getContext('2d');
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 8, 8);
    brush.strokeStyle = paint.read('--hatch');
    brush.lineWidth = 1.1;
    brush.stroke(new Path2D(series.hatch));
    return { image: tile, repeat: 'repeat' };
  }

  const round = (step) => {
    const power = 10 ** Math.floor(Math.log10(step));
    return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= step * 0.999);
  };

  // Ticks of a logarithmic axis: 1, 2, 5, 10, … or powers of two, about `most` of them.
  function logTicks(from, to, unit, most) {
    const base = unit === 'bytes' || unit === 'count' ? 2 : 10;
    const log = (v) => Math.log(v) / Math.log(base);
    const [first, last] = [Math.ceil(log(from) - 1e-9), Math.floor(log(to) + 1e-9)];
    if (base === 10) {
      const fine = [];
      for (let p = first - 1; p <= last + 1; p++) for (const m of [1, 2, 5]) fine.push(m * 10 ** p);
      const inside = fine.filter((v) => v >= from * 0.999 && v <= to * 1.001);
      if (inside.length <= most && inside.length > 1) return inside;
      if (inside.length <= 1) return [from, to];
    }
    const every = Math.floor((last - first) / most) + 1;
    const found = [];
    for (let p = first; p <= last; p++) if (p % every === 0) found.push(base ** p);
    return found;
  }

  function axis(paint, spec, upright, width) {
    const names = spec.ticks && new Map(spec.ticks);
    const most = upright ? 6 : Math.max(3, Math.floor(width / 90));
    let ticks = spec.ticks?.map(([value]) => value) ?? (spec.log ? logTicks(spec.from, spec.to, spec.unit, most) : null);
    if (ticks && !upright && ticks.length * 26 > width) {
      const every = Math.ceil((ticks.length * 26) / width);
      ticks = ticks.filter((_, index) => index % every === 0);
    }
    const step = !ticks && upright ? round((spec.to - spec.from) / 5) : undefined;
    const at = ticks ? { customValues: ticks } : {};
    return {
      type: spec.log ? 'log' : 'value',
      min: step ? Math.floor(spec.from / step + 1e-9) * step : spec.from,
      max: step ? Math.ceil(spec.to / step - 1e-9) * step : spec.to,
      interval: step,
      minInterval: spec.unit === 'count' ? 1 : undefined,
      splitNumber: most,
      inverse: spec.inverse,
      name: upright ? undefined : spec.label,
      nameLocation: 'middle',
      nameGap: 26,
      nameTextStyle: { color: paint.soft, fontSize: 12 },
      axisLine: { show: !upright, onZero: false, lineStyle: { color: paint.soft } },
      axisTick: { show: !upright || Boolean(names), lineStyle: { color: paint.soft }, ...at },
      splitLine: { show: (upright || !names) && !spec.inverse && !(upright && names), lineStyle: { color: paint.line } },
      axisLabel: {
        color: paint.soft, fontSize: 12, hideOverlap: true,
        showMaxLabel: ticks || upright ? undefined : Math.abs(spec.to % 1) < 1e-9 ? undefined : false,
        formatter: (value) => names?.get(value) ?? units[spec.unit](Number(value.toPrecision(12))),
        ...at,
      },
    };
  }

  const shapes = {
    circle: 'circle', square: 'rect', triangle: 'triangle', diamond: 'diamond', hollow: 'diamond',
    star: 'path://M0 -10L2.6 -3.6L9.5 -3.1L4.2 1.4L5.9 8.1L0 4.5L-5.9 8.1L-4.2 1.4L-9.5 -3.1L-2.6 -3.6Z',
  };

  const custom = (series) => ({ type: 'custom', clip: true, animation: false, encode: { x: [0, 1], y: [2, 3] }, ...series });

  // Rectangles [x0, x1, y0, y1] with a colour, a label inside and a text on hover.
  function boxes(paint, fill, items, edge, opacity = 1) {
    return custom({
      data: items.map((item) => ({ value: [...item.x, ...item.y], text: item.text })),
      renderItem: (params, api) => {
        const item = items[params.dataIndex];
        const [a, b] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(3)])];
        // Round to whole pixels, so that no seam is visible between neighbours.
        const [left, right] = [Math.round(Math.min(a[0], b[0])), Math.round(Math.max(a[0], b[0]))];
        const [top, bottom] = [Math.round(Math.min(a[1], b[1])), Math.round(Math.max(a[1], b[1]))];
        const raw = { x: left, y: top, width: Math.max(right - left, 1), height: bottom - top };
        const shape = echarts.graphic.clipRectByRect(raw, params.coordSys);
        if (!shape) return undefined;
        const solid = item.colour || (typeof fill === 'string' && fill.startsWith('#') ? fill : null);
        const style = { fill: item.colour || fill, opacity: item.pale ? 0.4 : opacity };
        if (edge && shape.width > 4) Object.assign(style, { stroke: paint.paper, lineWidth: 1 });
        const rect = { type: 'rect', shape, style, emphasis: { style: { stroke: paint.ink, lineWidth: 1.5 } } };
        if (!item.label || shape.width < (item.cut ? 44 : 6.9 * item.label.length + 3) || shape.height < 12) return rect;
        const text = {
          type: 'text', silent: true,
          style: {
            text: item.label, fontSize: 12, fontFamily: font(), ...(item.cut ? { width: shape.width - 6, overflow: 'truncate' } : {}), align: 'center', verticalAlign: 'middle',
            x: shape.x + shape.width / 2, y: shape.y + shape.height / 2, fill: solid ? ink(solid) : paint.ink,
            stroke: solid ? undefined : paint.paper, lineWidth: solid ? 0 : 2.5,
          },
        };
        return { type: 'group', children: [rect, text] };
      },
    });
  }

  // Black or white, whichever is more readable on this colour.
  function ink(colour) {
    const part = (at) => { const v = parseInt(colour.slice(at, at + 2), 16) / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.18 ? '#10151a' : '#fafcfd';
  }

  function drawn(paint, spec, series, stack) {
    const fill = filling(paint, series);
    const name = series.name;
    if (series.kind === 'boxes') return [boxes(paint, fill, series.boxes, false, series.opacity)];
    if (series.kind === 'columns') {
      const items = series.columns.map((column, index) => {
        const base = stack[index] || 0;
        stack[index] = base + (column.height || 0);
        const value = units[spec.y.unit](column.height || 0);
        return { ...column, y: [base, stack[index]], text: `${column.text}\n${name ? name + ': ' : ''}${value}` };
      });
      return [boxes(paint, fill, items, series.columns.length < 60)];
    }
    const colour = paint.read(series.colour);
    if (series.kind === 'line') {
      const points = series.points;
      const band = points.some(([, , low, high]) => low < high);
      const line = {
        type: 'line', data: points.map(([x, y]) => [x, y]), showSymbol: false, silent: true, animation: false, clip: true,
        lineStyle: { color: colour, width: 2, type: series.dashed ? [6, 4] : 'solid' },
      };
      if (!band) return [line];
      return [
        custom({
          data: [[points[0][0], points[points.length - 1][0], spec.y.from, spec.y.to]], silent: true,
          renderItem: (params, api) => ({
            type: 'polygon',
            shape: { points: [...points.map(([x, , low]) => api.coord([x, low])), ...points.map(([x, , , high]) => api.coord([x, high])).reverse()] },
            style: { fill: colour, opacity: 0.2 },
          }),
        }),
        line,
      ];
    }
    const points = series.points.filter((point) => point.x !== null && point.y !== null);
    const size = points.length > 1000 ? 4 : points.length > 250 ? 6 : points.length > 60 ? 8 : 10;
    const hollow = series.shape === 'hollow';
    // Near the right edge, a label on the right would be cut.
    const scaled = spec.x.log ? Math.log : Number;
    const edge = scaled(spec.x.from) + 0.8 * (scaled(spec.x.to) - scaled(spec.x.from));
    const position = (point) => (scaled(point.x) > edge ? 'left' : 'right');
    const scatter = {
      type: 'scatter', symbol: shapes[series.shape], symbolSize: series.shape === 'star' ? size * 1.7 : size, animation: false, clip: false,
      data: points.map((point) => ({ value: [point.x, point.y], text: point.text, label: { show: Boolean(point.label), formatter: point.label ?? '', position: position(point) } })),
      itemStyle: { color: hollow ? paint.paper : colour, borderColor: hollow ? colour : paint.paper, borderWidth: hollow ? 2 : 1 },
      label: { color: paint.ink, textBorderColor: paint.paper, textBorderWidth: 3, fontSize: 11 },
      labelLayout: { hideOverlap: true },
      z: 4,
    };
    const bars = points.length <= 250 ? points.filter((point) => point.low < point.high) : [];
    if (!bars.length) return [scatter];
    return [
      custom({
        silent: true, data: bars.map((point) => [point.x, point.x, point.low, point.high]), z: 3,
        renderItem: (params, api) => {
          const [[x, low], [, high]] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(0), api.value(3)])];
          const line = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.25, opacity: 0.75 } });
          return { type: 'group', children: [line(x, low, x, high), line(x - 4, low, x + 4, low), line(x - 4, high, x + 4, high)] };
        },
      }),
      scatter,
    ];
  }

  function rule(paint, spec, { upright, at, name, faint }) {
    return custom({
      silent: true, z: 5, data: [upright ? [at, at, spec.y.from, spec.y.to] : [spec.x.from, spec.x.to, at, at]],
      renderItem: (params, api) => {
        const box = params.coordSys;
        const [x, y] = api.coord(upright ? [at, spec.y.from] : [spec.x.from, at]);
        const right = upright && x > box.x + box.width / 2;
        const shape = upright ? { x1: x, x2: x, y1: box.y, y2: box.y + box.height } : { x1: box.x, x2: box.x + box.width, y1: y, y2: y };
        return { type: 'group', children: [
          { type: 'line', shape, style: { stroke: faint ? paint.soft : paint.ink, lineWidth: faint ? 0.75 : 1.25, lineDash: faint ? [2, 3] : [5, 4] } },
          { type: 'text', style: {
            text: name, fontSize: 12, fontFamily: font(), fill: paint.ink, stroke: paint.paper, lineWidth: 3,
            x: upright ? x + (right ? -5 : 5) : box.x + box.width - 4, y: upright ? box.y + 3 : y - 3,
            align: upright ? (right ? 'right' : 'left') : 'right', verticalAlign: upright ? 'top' : 'bottom' } },
        ] };
      },
    });
  }

  // Lanes: rows of bars for every rank. Only bars in view are drawn, without those that earlier
  // bars of the row cover completely.
  function lanes(spec) {
    const rows = [];
    const ticks = [];
    let top = 0;
    for (const lane of spec.lanes) {
      const own = Array.from({ length: lane.rows }, (_, row) => ({ y: top + row + (lane.ready.length ? 1 : 0), bars: [] }));
      let began = 0;
      for (let i = 0; i < lane.bars.length; i += 5) {
        const [label, part, row, since, length] = lane.bars.slice(i, i + 5);
        began += since;
        own[row].bars.push({ part, label: spec.labels[label], rank: lane.rank, from: began / spec.ticks, to: (began + length) / spec.ticks });
      }
      rows.push(...own);
      lane.top = top;
      if (lane.ready.length) {
        const row = { y: top, bars: [] };
        let at = 0;
        for (let i = 0; i < lane.ready.length; i += 2) {
          at += lane.ready[i + 1];
          row.bars.push({ part: -1, label: spec.labels[lane.ready[i]], rank: lane.rank, from: at / spec.ticks, to: at / spec.ticks });
        }
        rows.push(row);
      }
      const height = lane.rows + (lane.ready.length ? 1 : 0);
      ticks.push([top + height / 2, `rank ${lane.rank}`]);
      lane.bottom = top + height;
      top += height + 0.6;
    }
    spec.y = { ...spec.y, from: -0.3, to: Math.max(top, 1), ticks, inverse: true };
    spec.rows = rows;
  }

  function inView(spec, from, to, width) {
    const pixel = (to - from) / Math.max(width, 1);
    const found = spec.parts.map(() => []);
    const ready = [];
    for (const row of spec.rows) {
      let [low, high] = [0, row.bars.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (row.bars[middle].to < from) low = middle + 1; else high = middle;
      }
      let covered = -Infinity;
      for (let i = low; i < row.bars.length && row.bars[i].from <= to; i++) {
        const bar = row.bars[i];
        if (bar.to <= covered) continue;
        covered = Math.max(bar.to, bar.from + pixel);
        const times = `from ${bar.from.toFixed(3)} to ${bar.to.toFixed(3)} ms`;
        if (bar.part < 0) {
          ready.push({ x: [bar.from, bar.from + 1.5 * pixel], y: [row.y + 0.1, row.y + 0.9], text: `${bar.label}\nready on rank ${bar.rank} at ${bar.from.toFixed(3)} ms` });
        } else {
          found[bar.part].push({
            x: [bar.from, bar.to], y: [row.y + 0.06, row.y + 0.94], cut: true, label: bar.label.replace(/^\S*[/](?=\S)/, '…'),
            text: `${bar.label}\n${spec.parts[bar.part].name}, rank ${bar.rank}\n${units.ms(bar.to - bar.from)}, ${times}`,
          });
        }
      }
    }
    const lines = (lane) => [...lane.ends_ms.map((at) => [at, lane, false]), ...lane.cycles_ms.map((at) => [at, lane, true])];
    const upright = spec.lanes.flatMap(lines).filter(([at]) => at >= from && at <= to);
    const crowded = upright.length > width / 3 * spec.lanes.length;
    return { found, ready, upright: upright.filter(([, , cycle]) => !cycle || !crowded) };
  }

  function laneSeries(paint, spec, hidden, from, to, width) {
    const { found, ready, upright } = inView(spec, from, to, width);
    const series = spec.parts.map((part, index) => (hidden.has(part.name) ? [] : [boxes(paint, filling(paint, part), found[index])])).flat();
    if (!hidden.has(READY)) series.push(boxes(paint, paint.ink, ready));
    const lines = upright.filter(([, , cycle]) => !cycle || !hidden.has(CYCLES));
    series.push(custom({
      silent: true, z: 5, data: lines.map(([at, lane]) => [at, at, lane.top, lane.bottom]),
      renderItem: (params, api) => {
        const [[x, y1], [, y2]] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(0), api.value(3)])];
        const cycle = lines[params.dataIndex][2];
        return { type: 'line', shape: { x1: x, x2: x, y1: cycle ? y1 - 2 : y1 - 4, y2: cycle ? y1 + 4 : y2 + 2 },
          style: { stroke: cycle ? paint.soft : paint.ink, lineWidth: 1, lineDash: cycle ? undefined : [4, 3] } };
      },
    }));
    return series;
  }
  const READY = 'Tensor ready';
  const CYCLES = 'Cycle starts';

  function build(each) {
    const { spec, hidden, plot } = each;
    const paint = palette();
    const width = plot.clientWidth;
    const stack = [];
    const series = spec.lanes
      ? laneSeries(paint, spec, hidden, ...each.range, width)
      : [
        ...spec.series.filter((one) => !hidden.has(one.name)).flatMap((one) => drawn(paint, spec, one, stack)),
        ...spec.rules.map((one) => rule(paint, spec, one)),
      ];
    return {
      animation: false,
      textStyle: { fontFamily: font() },
      grid: { left: 4, right: 14, top: 8, bottom: spec.zoom ? 66 : spec.x.label ? 34 : 20, outerBoundsMode: 'same', outerBoundsContain: 'axisLabel' },
      xAxis: axis(paint, spec.x, false, width),
      yAxis: axis(paint, spec.y, true, width),
      tooltip: {
        confine: true, backgroundColor: paint.paper, borderColor: paint.soft, textStyle: { color: paint.ink, fontSize: 13 },
        extraCssText: 'max-width:min(24rem,90%);white-space:normal;overflow-wrap:anywhere',
        formatter: (item) => escaped(item.data?.text ?? ''),
      },
      dataZoom: spec.zoom
        ? [
          { type: 'inside', filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseMove: true, preventDefaultMouseMove: false, minSpan: 1e-3 },
          { type: 'slider', filterMode: 'none', height: 18, bottom: 6, brushSelect: false, minSpan: 1e-3, borderColor: paint.line,
            fillerColor: paint.read('--accent') + '33', backgroundColor: paint.panel, textStyle: { color: paint.soft, fontSize: 11 },
            labelFormatter: (value) => units[spec.x.unit === 'count' ? 'plain' : spec.x.unit](spec.x.unit === 'count' ? Math.round(value) : value),
            showDataShadow: false, handleStyle: { color: paint.paper, borderColor: paint.soft } },
        ]
        : [],
      series,
    };
  }

  function draw(each) {
    const zoom = each.chart.getOption()?.dataZoom?.map(({ start, end }) => ({ start, end }));
    const option = build(each);
    option.dataZoom.forEach((one, index) => Object.assign(one, zoom?.[index]));
    each.chart.setOption(option, true);
    each.plot.dataset.drawn = String(option.series.reduce((sum, one) => sum + one.data.length, 0));
  }

  const button = (text, title, action) => {
    const made = document.createElement('button');
    made.type = 'button';
    made.textContent = text;
    made.title = title;
    made.addEventListener('click', action);
    return made;
  };

  // Legend: a click on a name hides the series, another click shows it again.
  function legend(each) {
    const { spec, hidden } = each;
    const named = spec.lanes ? [...spec.parts, { name: READY, tick: true }, ...(spec.lanes.some((lane) => lane.cycles_ms.length) ? [{ name: CYCLES, tick: true }] : [])] : spec.series;
    const seen = new Set();
    const list = document.createElement('div');
    list.className = 'chart-legend';
    for (const series of named) {
      if (!series.name || seen.has(series.name)) continue;
      seen.add(series.name);
      const entry = button('', 'show or hide', () => {
        if (!hidden.delete(series.name)) hidden.add(series.name);
        entry.setAttribute('aria-pressed', String(!hidden.has(series.name)));
        draw(each);
      });
      entry.setAttribute('aria-pressed', 'true');
      const swatch = document.createElement('canvas');
      swatch.width = swatch.height = 24;
      entry.append(swatch, series.name);
      each.swatches.push([swatch, series]);
      list.append(entry);
    }
    return seen.size > 1 || spec.lanes ? list : null;
  }

  function paintSwatches(each) {
    const paint = palette();
    for (const [swatch, series] of each.swatches) {
      const brush = swatch.getContext('2d');
      brush.setTransform(2, 0, 0, 2, 0, 0);
      brush.clearRect(0, 0, 12, 12);
      const colour = paint.read(series.colour ?? '--ink');
      brush.fillStyle = brush.strokeStyle = colour;
      if (series.tick) brush.fillRect(5, series.name === CYCLES ? 4 : 0, 2, series.name === CYCLES ? 6 : 12);
      else if (series.kind === 'line') { brush.lineWidth = 2; if (series.dashed) brush.setLineDash([4, 2]); brush.beginPath(); brush.moveTo(0, 6); brush.lineTo(12, 6); brush.stroke(); }
      else if (series.kind === 'points') { const path = new Path2D(marks[series.shape]); if (series.shape === 'hollow') { brush.lineWidth = 2; brush.stroke(path); } else brush.fill(path); }
      else {
        const fill = filling(paint, series);
        brush.fillStyle = fill.image ? brush.createPattern(fill.image, 'repeat') : fill;
        brush.fillRect(0, 0, 12, 12);
      }
    }
  }
  const marks = {
    circle: 'M1 6a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z', square: 'M1 1h10v10h-10Z', triangle: 'M6 1L11 11H1Z', diamond: 'M6 0L12 6L6 12L0 6Z',
    hollow: 'M6 1.5L10.5 6L6 10.5L1.5 6Z', star: 'M6 0L7.6 4.2L12 4.4L8.5 7.1L9.7 11.4L6 8.9L2.3 11.4L3.5 7.1L0 4.4L4.4 4.2Z',
  };

  function start(element, spec) {
    const plot = element.querySelector('.plot');
    if (spec.lanes) lanes(spec);
    element.classList.add('alive');
    const each = { spec, plot, hidden: new Set(), swatches: [], range: [spec.x.from, spec.x.to], chart: echarts.init(plot, null, { renderer: 'canvas' }) };
    const title = element.querySelector('.chart-title').textContent;
    const tools = document.createElement('div');
    tools.className = 'chart-tools screen-only';
    if (spec.zoom) {
      const zoom = (change) => {
        const [{ start: a, end: b }] = each.chart.getOption().dataZoom;
        let [from, to] = change(a, b);
        const span = Math.min(Math.max(to - from, 1e-3), 100);
        from = Math.min(Math.max(from, 0), 100 - span);
        each.chart.dispatchAction({ type: 'dataZoom', start: from, end: from + span });
      };
      tools.append(
        button('+', 'zoom in', () => zoom((a, b) => [a + (b - a) / 4, b - (b - a) / 4])),
        button('−', 'zoom out', () => zoom((a, b) => [a - (b - a) / 2, b + (b - a) / 2])),
        button('←', 'move left', () => zoom((a, b) => [a - (b - a) / 4, b - (b - a) / 4])),
        button('→', 'move right', () => zoom((a, b) => [a + (b - a) / 4, b + (b - a) / 4])),
        button('all', 'show all', () => zoom(() => [0, 100])),
      );
      if (spec.lanes) {
        let waiting = false;
        each.chart.on('datazoom', () => {
          if (waiting) return;
          waiting = true;
          requestAnimationFrame(() => {
            waiting = false;
            const [{ start: a, end: b }] = each.chart.getOption().dataZoom;
            const length = spec.x.to - spec.x.from;
            each.range = [spec.x.from + (length * a) / 100, spec.x.from + (length * b) / 100];
            each.chart.setOption({ series: build(each).series }, { replaceMerge: ['series'] });
          });
        });
      }
    }
    if (!spec.plain) tools.append(button('save as PNG', `save "${title}" as a picture`, () => {
      const link = document.createElement('a');
      link.download = `${element.id}.png`;
      link.href = each.chart.getDataURL({ type: 'png', pixelRatio: 2, backgroundColor: palette().paper });
      link.click();
    }));
    const names = legend(each);
    if (names) plot.before(names);
    plot.before(tools);
    charts.push(each);
    draw(each);
    paintSwatches(each);
    let width = plot.clientWidth;
    // The size also changes when a folded part of the page is opened.
    const observer = new ResizeObserver(() => {
      if (plot.clientWidth === width || !plot.clientWidth) return;
      width = plot.clientWidth;
      each.chart.resize();
      draw(each);
    });
    observer.observe(plot);
    return {
      show(data) {
        each.spec = data;
        draw(each);
      },
      remove() {
        observer.disconnect();
        each.chart.dispose();
        charts.splice(charts.indexOf(each), 1);
        names?.remove();
        tools.remove();
      },
    };
  }

  const redraw = () => charts.forEach((each) => { draw(each); paintSwatches(each); });
  for (const element of document.querySelectorAll('.chart')) {
    const data = element.querySelector('script');
    if (data) start(element, JSON.parse(data.textContent));
  }
  window.ronde = { chart: start, units };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

  const toggle = document.getElementById('theme');
  const dark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);
  toggle.hidden = false;
  toggle.addEventListener('click', () => { root.dataset.theme = dark() ? 'light' : 'dark'; redraw(); });
  // Print in the light scheme.
  let before;
  addEventListener('beforeprint', () => { before = root.dataset.theme; root.dataset.theme = 'light'; redraw(); });
  addEventListener('afterprint', () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; redraw(); });
})();
