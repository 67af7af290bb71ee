"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const HEIGHT = 250;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (n) => String(n).padStart(2, "0");

  // One notation for an axis: seconds up to a minute, then minutes, then hours.
  const clock = (longest) => (s) => {
    if (longest < 60) return `${+s.toPrecision(3)} s`;
    const all = Math.round(s), h = Math.floor(all / 3600), m = Math.floor(all / 60) % 60;
    return longest < 3600 ? `${m}:${two(all % 60)}` : `${h}:${two(m)}:${two(all % 60)}`;
  };
  const TIMES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30]
    .concat([60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400]);
  const share = (n) => `p${(100 * (1 - 10 ** -n)).toFixed(Math.max(0, Math.ceil(n) - 2))}`;
  const plain = (v) => (Math.abs(v) >= 1e4 ? Math.round(v) : +v.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 10 });
  const texts = { nines: share, number: plain, log: plain };
  const text = (chart, axis) => (axis === "seconds" ? clock(chart.x.at(-1) ?? 0) : texts[axis]);
  const shown = (form) => (u, v) => (v == null ? "–" : form(v));

  // A label is drawn on a patch of the background and moves until it covers no other one.
  function labeller(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, taken = [];
    const high = 14 * ratio;
    const free = (x, y, width) => taken.every((o) => x + width < o.x || o.x + o.width < x || y + high <= o.y || o.y + high <= y);
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    const label = (words, places, always = true) => {
      const width = ctx.measureText(words).width + 4 * ratio;
      const fit = ([x, y]) => [Math.min(Math.max(x, bbox.left), bbox.left + bbox.width - width), y];
      const found = places(width, high).map(fit).find(([x, y]) => free(x, y, width));
      if (!found && !always) return;
      const [x, y] = found ?? fit(places(width, high)[0]);
      taken.push({ x, y, width });
      const before = ctx.fillStyle;
      ctx.fillStyle = color("--panel");
      ctx.globalAlpha = 0.8;
      ctx.fillRect(x, y, width, high);
      ctx.globalAlpha = 1;
      ctx.fillStyle = before;
      ctx.fillText(words, x + 2 * ratio, y + 11 * ratio);
    };
    label.spare = (x, y) => taken.push({ x: x - 5 * ratio, y: y - high / 2, width: 10 * ratio });
    return label;
  }

  // Limits are drawn over the plot, so that they do not stretch an axis on which all is far below them.
  function drawLimits(u, limits, label) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    ctx.lineWidth = 1.2 * ratio;
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    const ends = (width, ys) => ys.flatMap((y) => [bbox.left + bbox.width - width, bbox.left].map((x) => [x, y]));
    for (const limit of limits) {
      ctx.strokeStyle = ctx.fillStyle = color(limit.event ? "--warn" : "--bad");
      const at = u.valToPos(limit.value, limit.axis, true);
      const across = limit.axis === "y", bottom = bbox.top + bbox.height;
      // A limit far from the values has no line, but its label says where it is.
      if (across && at < bbox.top) label(`${limit.label}, above`, (width) => ends(width, [bbox.top]));
      if (across && at > bottom) label(`${limit.label}, below`, (width, high) => ends(width, [bottom - high]));
      if (across ? at < bbox.top || at > bottom : at < bbox.left || at > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(across ? bbox.left : at, across ? at : bbox.top);
      ctx.lineTo(across ? bbox.left + bbox.width : at, across ? at : bbox.top + bbox.height);
      ctx.stroke();
      const rows = (high) => [0, 1, 2, 3, 4].map((row) => bbox.top + row * high);
      if (across) label(limit.label, (width, high) => ends(width, [at - high, at + ratio]));
      else label(limit.label, (width, high) => [at + 3 * ratio, at - width - 3 * ratio].flatMap((x) => rows(high).map((y) => [x, y])), !limit.event);
    }
  }

  // Around its value, where no value and no other name is; where there is no room the legend has to do.
  function drawNames(u, series, label) {
    const gap = 8 * devicePixelRatio;
    const named = series.flatMap((one, index) => one.names.map((name, row) => [name, u.data[0][row], u.series[index + 1].show ? u.data[index + 1][row] : null]));
    const places = named.filter(([name, , value]) => name && value != null).map(([name, x, value]) => [name, u.valToPos(x, "x", true), u.valToPos(value, "y", true)]);
    places.forEach(([, x, y]) => label.spare(x, y));
    u.ctx.fillStyle = color("--text");
    for (const [name, x, y] of places) {
      const around = (width, high) => [y - high - gap, y + gap, y - high / 2].flatMap((top) => [x - width / 2, x + gap, x - width - gap].map((left) => [left, top]));
      label(name, (width, high) => around(width, high).filter(([left, top]) => left + width / 2 !== x || top + high / 2 !== y), false);
    }
  }

  function drawLabels(u, chart) {
    u.ctx.save();
    const label = labeller(u);
    drawNames(u, chart.series, label);
    drawLimits(u, chart.limits, label);
    u.ctx.restore();
  }

  // A part of the x axis, under the grid.
  function drawShade(u, shade) {
    if (!shade) return;
    const { ctx, bbox } = u;
    const [left, right] = [shade.low, shade.high].map((v) => Math.min(Math.max(u.valToPos(v, "x", true), bbox.left), bbox.left + bbox.width));
    ctx.save();
    ctx.fillStyle = color("--good");
    ctx.globalAlpha = 0.15;
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.restore();
  }

  function drawCrosses(u, series) {
    const { ctx } = u, arm = 4 * devicePixelRatio;
    series.forEach((one, index) => {
      if (one.style !== "crosses" || !u.series[index + 1].show) return;
      ctx.save();
      ctx.strokeStyle = color(`--c${one.color}`);
      ctx.lineWidth = 2 * devicePixelRatio;
      u.data[0].forEach((value, row) => {
        if (u.data[index + 1][row] == null) return;
        const x = u.valToPos(value, "x", true), y = u.valToPos(u.data[index + 1][row], "y", true);
        ctx.beginPath();
        for (const side of [1, -1]) {
          ctx.moveTo(x - arm, y - side * arm);
          ctx.lineTo(x + arm, y + side * arm);
        }
        ctx.stroke();
      });
      ctx.restore();
    });
  }

  const SHAPES = { "open points": " ○", crosses: " ×" };  // a legend shows colours alone
  function seriesOf(one, chart) {
    const stroke = color(`--c${one.color}`);
    const base = { label: one.label + (SHAPES[one.style] ?? ""), stroke, width: 1.5, value: shown(text(chart, chart.yAxis)), spanGaps: true };
    const size = chart.x.length > 200 ? 4 : 8;
    if (one.style === "points") return { ...base, paths: () => null, points: { show: true, size, fill: stroke, stroke } };
    if (one.style === "open points") return { ...base, paths: () => null, points: { show: true, size: 9, width: 2, fill: color("--panel"), stroke } };
    if (one.style === "crosses") return { ...base, paths: () => null, points: { show: false } };
    if (one.style === "steps") return { ...base, paths: uPlot.paths.stepped({ align: -1 }), points: { show: false } };
    if (one.style === "bars") return { ...base, fill: stroke + "66", paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false } };
    const alone = one.y.filter((v) => v != null).length === 1;  // makes no line
    return { ...base, points: { show: alone, size, fill: stroke, stroke } };
  }

  // Room for points at the ends of the axis.
  const padded = (u, low, high) => {
    const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
    return [low - room, high + room];
  };
  function xScale(chart) {
    if (chart.xAxis === "log") return { distr: 3, range: (u, low, high) => [low / 1.3, high * 1.3] };
    if (chart.series.some((s) => s.style === "bars")) {
      const half = ((chart.x[1] ?? chart.x[0] + 1) - chart.x[0]) / 2;
      return { range: (u, low, high) => [low - half, high + half] };
    }
    return chart.xAxis === "number" && chart.series.some((s) => s.style.includes("points")) ? { range: padded } : {};
  }

  // Room above the values, and a limit in sight where it is not far above them.
  function yRange(chart) {
    const limits = chart.limits.filter((l) => l.axis === "y").map((l) => l.value);
    return (u, low, high) => {
      if (low == null) return [0, 1];
      const near = Math.max(high, ...limits.filter((v) => v < 4 * high || high === 0));
      if (chart.yAxis === "log") return [low / 1.3, near * 1.3];
      return [Math.min(low, 0), near * 1.08 || 1];
    };
  }

  // p50, p90, p99, ... ; the powers of ten alone where they are many, else 1, 2 and 5 times each, 1 to 9 times on a short axis.
  const nines = (u, axis, low, high) => [0, Math.log10(2), 1, 2, 3, 4, 5, 6].filter((v) => v >= low && v <= high);
  function decades(u, axis, low, high) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const factors = last - first > 3 ? [1] : high > 4 * low ? [1, 2, 5] : [1, 2, 3, 4, 5, 6, 7, 8, 9];
    const all = [];
    for (let power = first; power <= last; power++) for (const factor of factors) all.push(factor * 10 ** power);
    return all.filter((v) => v >= low && v <= high);
  }

  const WHOLE = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** power));
  const logTicks = { splits: decades, filter: (u, v) => v };

  function options(chart, width) {
    const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 } };
    const label = (text) => (text ? { label: text, labelSize: 18, labelFont: "12px system-ui, sans-serif" } : {});
    const ticks = (name) => (u, values) => values.map((v) => (v == null ? "" : text(chart, name)(v)));
    const wide = (u, values) => 16 + 7 * Math.max(4, ...(values ?? []).map((v) => v.length));
    return {
      width, height: HEIGHT,
      cursor: { sync: chart.together ? { key: chart.together } : undefined, drag: { x: true, y: false } },
      scales: {
        x: { time: false, ...xScale(chart) },
        y: { distr: chart.yAxis === "log" ? 3 : 1, range: yRange(chart) },
      },
      axes: [
        { ...axis, ...label(chart.xLabel), values: ticks(chart.xAxis), space: 70, ...(chart.xAxis === "log" ? logTicks : {}), ...(chart.xAxis === "nines" ? { splits: nines } : {}), ...(chart.xAxis === "seconds" ? { incrs: TIMES } : {}), ...(chart.xAxis === "number" && chart.x.every(Number.isInteger) ? { incrs: WHOLE } : {}) },
        { ...axis, values: ticks(chart.yAxis), size: wide, ...(chart.series.every((s) => s.y.every((v) => v == null || Number.isInteger(v))) ? { incrs: WHOLE } : {}), ...(chart.yAxis === "log" ? logTicks : {}) },
      ],
      series: [{ label: chart.xLabel || "time", value: shown(text(chart, chart.xAxis)) }, ...chart.series.map((s) => seriesOf(s, chart))],
      hooks: { drawClear: [(u) => drawShade(u, chart.shade)], draw: [(u) => drawCrosses(u, chart.series), (u) => drawLabels(u, chart)] },
    };
  }

  const plots = new Map();
  function draw(element) {
    const chart = charts[element.dataset.chart];
    plots.get(element)?.destroy();
    const data = [chart.x, ...chart.series.map((s) => (chart.yAxis === "log" ? s.y.map((v) => (v > 0 ? v : null)) : s.y))];
    const plot = new uPlot(options(chart, element.clientWidth || 600), data, element);
    const canvas = plot.root.querySelector("canvas");
    canvas.role = "img";
    canvas.ariaLabel = `${element.previousElementSibling.textContent}: ${chart.series.map((s) => s.label).join(", ")}`;
    for (const name of plot.root.querySelectorAll(".u-series:not(:first-child) th")) {
      name.tabIndex = 0;
      name.addEventListener("keydown", (event) => event.key === "Enter" && name.click());
    }
    plots.set(element, plot);
  }

  const elements = [...document.querySelectorAll("[data-chart]")];
  elements.forEach(draw);
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.get(target);
      if (plot && Math.abs(plot.width - target.clientWidth) > 1 && target.clientWidth) plot.setSize({ width: target.clientWidth, height: HEIGHT });
    }
  });
  elements.forEach((element) => resized.observe(element));
  // When page.css changes its colours, also for paper.
  matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", () => elements.forEach(draw));
  document.documentElement.dataset.charts = String(plots.size);
})();
