// Draws a time line as small plots, one below or beside the other, on one scale of time. Its data
// are {zero_ms, width_ms, from, rows, marks, joints, units}, with rows as AppendJSON writes them.
// Foreign text is only set as text, never as HTML.
const rowHead = 6, perJoint = 4, flagPaused = 1, flagIntervention = 2, marksListed = 200;
const lineNames = [["runway", "ms"], ["action age", "ms"], ["round trip", "ms"], ["lateness", "us"]];

function drawTimeline(root, list) {
  const element = (name, parent, look) => { const e = document.createElement(name); e.className = look || ""; parent.append(e); return e; };
  const plots = [];
  let data = null, from = 0, to = 1, cursor = null;  // ms of the time of day

  function plot(name, unit, look) {
    const figure = element("figure", root, "plot " + look), caption = element("figcaption", figure);
    const title = element("span", caption), value = element("span", caption, "dim"), canvas = element("canvas", figure);
    element("b", title).textContent = name;
    if (unit) element("span", title, "dim").textContent = " " + unit;
    title.title = name + " " + unit;
    canvas.setAttribute("role", "img"), canvas.setAttribute("aria-label", name + " over time");
    canvas.addEventListener("pointermove", event => { cursor = from + (to - from) * event.offsetX / canvas.clientWidth; draw(); });
    canvas.addEventListener("pointerdown", event => { cursor = from + (to - from) * event.offsetX / canvas.clientWidth; draw(); });
    canvas.addEventListener("pointerleave", () => { cursor = null; draw(); });
    return {canvas, value};
  }
  function build() {
    root.replaceChildren(), plots.length = 0;
    plots.push({...plot("what happened", "", "lane"), lane: true});
    lineNames.forEach(([name, unit], i) => plots.push({...plot(name, unit, ""), zero: true, series: [{at: i, look: "--mark", dots: i == 2}]}));
    data.joints.forEach((name, j) => {
      const at = rowHead + perJoint * j, unit = data.units[j] || "", fine = unit == "m/s";
      plots.push({...plot(name, unit, "joint"), least: fine ? .2 : 2, digits: fine ? 2 : 1, pair: true, series: [{at: at + 3, look: "--goal", wide: true}, {at, low: at + 1, high: at + 2, look: "--mark"}]});
    });
  }
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const timeOf = i => data.zero_ms + (data.from + i) * data.width_ms;
  const rowAt = when => data.rows[Math.floor((when - data.zero_ms) / data.width_ms) - data.from];
  const say = (v, digits = 1) => v == null ? "–" : Math.abs(v) >= 100 ? v.toFixed(0) : v.toFixed(digits);
  const levelLook = level => level >= 3 ? "--bad" : "--mark";

  function draw() {
    if (!data) return;
    const first = Math.max(0, Math.floor((from - timeOf(0)) / data.width_ms)), last = Math.min(data.rows.length, Math.ceil((to - timeOf(0)) / data.width_ms) + 1);
    const seen = [];  // [index, row] of what is in view
    for (let i = first; i < last; i++) if (data.rows[i]) seen.push([i, data.rows[i]]);
    for (const p of plots) drawPlot(p, seen);
  }
  function drawPlot(p, seen) {
    const scale = devicePixelRatio || 1, w = p.canvas.clientWidth, h = p.canvas.clientHeight;
    if (!w || !h) return;
    p.canvas.width = w * scale, p.canvas.height = h * scale;
    const c = p.canvas.getContext("2d"), x = when => w * (when - from) / (to - from);
    c.scale(scale, scale), c.font = "11px system-ui, sans-serif";
    const band = (i, look, alpha) => { c.fillStyle = color(look), c.globalAlpha = alpha, c.fillRect(x(timeOf(i)), 0, Math.max(1, x(timeOf(i + 1)) - x(timeOf(i))), h), c.globalAlpha = 1; };
    for (const [i, row] of seen) {
      if (row[5] & flagPaused) band(i, "--line", .5);
      if (row[5] & flagIntervention) band(i, "--good", .2);
      if (row[4] > 0) band(i, "--bad", .22);
    }
    for (const m of data.marks.values()) {
      if (m.until_ms < from || m.at_ms > to) continue;
      c.fillStyle = color(levelLook(m.level)), c.globalAlpha = p.lane ? 1 : .25;
      c.fillRect(x(m.at_ms), 0, Math.max(p.lane ? 2 : 1, x(m.until_ms) - x(m.at_ms)), p.lane ? h - 14 : h), c.globalAlpha = 1;
    }
    if (p.lane) drawScale(c, w, h, x); else drawSeries(p, c, w, h, x, seen);
    if (cursor != null) c.fillStyle = color("--mark"), c.fillRect(x(cursor), 0, 1, h);
  }
  function drawScale(c, w, h, x) {
    const steps = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600].map(s => s * 1000), step = steps.find(s => (to - from) / s <= w / 70) || 86400000;
    c.fillStyle = getComputedStyle(document.body).color, c.globalAlpha = .65, c.textAlign = "center";
    for (let when = Math.ceil(from / step) * step; when <= to; when += step) c.fillText(clock(when), Math.min(w - 26, Math.max(26, x(when))), h - 2);
    c.globalAlpha = 1;
  }
  function drawSeries(p, c, w, h, x, seen) {
    let low = p.zero ? 0 : Infinity, high = p.zero ? 1 : -Infinity;
    for (const [, row] of seen) for (const s of p.series) for (const at of [s.at, s.low, s.high]) {
      const v = at === undefined ? null : row[at];
      if (v != null) low = Math.min(low, v), high = Math.max(high, v);
    }
    if (low > high) low = 0, high = 1;
    const more = Math.max(0, p.least - (high - low)) / 2 || 0;  // a flat line stays flat
    low -= more, high += more;
    const y = v => h - 2 - (h - 14) * (v - low) / (high - low), half = data.width_ms / 2;
    for (const s of p.series) {
      c.strokeStyle = c.fillStyle = color(s.look), c.lineWidth = s.wide ? 3 : 1.3, c.globalAlpha = s.wide ? .45 : 1;
      c.beginPath();
      let open = false, before = -2;
      for (const [i, row] of seen) {
        const v = row[s.at];
        if (v == null) { open = open && !!s.dots; continue; }
        if (!s.dots && i != before + 1) open = false;
        const at = x(timeOf(i) + half);
        if (open) c.lineTo(at, y(v)); else c.moveTo(at, y(v));
        if (s.low !== undefined && row[s.high] > row[s.low]) c.moveTo(at, y(row[s.low])), c.lineTo(at, y(row[s.high])), c.moveTo(at, y(v));
        if (s.dots) c.fillRect(at - 1, y(v) - 1, 3, 3);
        open = true, before = i;
      }
      if (s.dots) c.globalAlpha = .4;
      c.stroke(), c.globalAlpha = 1;
    }
    c.fillStyle = getComputedStyle(document.body).color, c.globalAlpha = .65, c.textAlign = "left";
    c.fillText(say(high, p.digits), 2, 10), c.globalAlpha = 1;
    let row = cursor == null ? null : rowAt(cursor);
    if (cursor == null) for (let i = seen.length - 1; i >= 0 && !row; i--) if (seen[i][1][p.series[p.series.length - 1].at] != null) row = seen[i][1];
    p.value.textContent = !row ? "–" : p.pair ? `${say(row[p.series[1].at], p.digits)} → ${say(row[p.series[0].at], p.digits)}` : say(row[p.series[0].at]);
  }
  const clock = when => new Date(when).toLocaleTimeString([], {hour12: false});
  function tell() {
    const marks = [...data.marks.values()].filter(m => m.until_ms >= from && m.at_ms <= to).sort((a, b) => b.at_ms - a.at_ms || b.id - a.id).slice(0, marksListed);
    while (list.children.length > marks.length) list.lastChild.remove();
    marks.forEach((m, i) => {
      const li = list.children[i] || element("li", list), key = `${m.id} ${m.change || m.count}`;
      if (li.dataset.key === key) return;
      li.dataset.key = key, li.replaceChildren();
      element("time", li, "dim").textContent = clock(m.at_ms);
      element("b", li, m.level >= 3 ? "bad" : "").textContent = m.kind + (m.count > 1 ? ` ×${m.count}` : "");
      element("span", li).textContent = m.text;
    });
  }
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return (d, begin, end) => {
    const other = !data || data.joints.join() !== d.joints.join();
    data = d, from = begin, to = Math.max(end, begin + 1);
    if (other) build();
    draw(), tell();
  };
}
