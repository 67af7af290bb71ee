"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const HEIGHT = 250;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (n) => String(n).padStart(2, "0");

  function clock(s) {
    if (s < 10) return `${+s.toPrecision(3)} s`;
    const all = Math.round(s), h = Math.floor(all / 3600), m = Math.floor(all / 60) % 60;
    return h ? `${h}:${two(m)}:${two(all % 60)}` : `${m}:${two(all % 60)}`;
  }
  const share = (n) => `p${(100 * (1 - 10 ** -n)).toFixed(Math.max(0, Math.ceil(n) - 2))}`;
  const plain = (v) => (Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(4)));
  const texts = { seconds: clock, nines: share, number: plain, log: plain };
  const shown = (axis) => (u, v) => (v == null ? "–" : texts[axis](v));

  // Limits are drawn over the plot, so that they do not stretch an axis on which all is far below them.
  function drawLimits(u, limits) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--bad");
    ctx.lineWidth = 1.2 * ratio;
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    for (const limit of limits) {
      const at = u.valToPos(limit.value, limit.axis, true);
      const across = limit.axis === "y";
      if (across ? at < bbox.top || at > bbox.top + bbox.height : at < bbox.left || at > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(across ? bbox.left : at, across ? at : bbox.top);
      ctx.lineTo(across ? bbox.left + bbox.width : at, across ? at : bbox.top + bbox.height);
      ctx.stroke();
      const width = ctx.measureText(limit.label).width;
      if (across) ctx.fillText(limit.label, bbox.left + bbox.width - width - 4 * ratio, at - 4 * ratio);
      else ctx.fillText(limit.label, Math.min(at + 4 * ratio, bbox.left + bbox.width - width), bbox.top + 12 * ratio);
    }
    ctx.restore();
  }

  function seriesOf(one, yAxis) {
    const stroke = color(`--c${one.color}`);
    const base = { label: one.label, stroke, width: 1.5, value: shown(yAxis), spanGaps: true };
    if (one.style === "points") return { ...base, paths: () => null, points: { show: true, size: 4, fill: stroke, stroke } };
    if (one.style === "bars") return { ...base, fill: stroke + "66", paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false } };
    return { ...base, points: { show: false } };
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

  // p50, p90, p99, ... ; 1, 2 and 5 times the powers of ten, or these alone where they are many.
  const nines = (u, axis, low, high) => [0, Math.log10(2), 1, 2, 3, 4, 5, 6].filter((v) => v >= low && v <= high);
  function decades(u, axis, low, high) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const factors = last - first > 3 ? [1] : [1, 2, 5];
    const all = [];
    for (let power = first; power <= last; power++) for (const factor of factors) all.push(factor * 10 ** power);
    return all.filter((v) => v >= low && v <= high);
  }

  function options(chart, width) {
    const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 } };
    const label = (text) => (text ? { label: text, labelSize: 18, labelFont: "12px system-ui, sans-serif" } : {});
    const ticks = (name) => (u, values) => values.map((v) => (v == null ? "" : texts[name](v)));
    return {
      width, height: HEIGHT,
      cursor: { sync: chart.together ? { key: chart.together } : undefined, drag: { x: true, y: false } },
      scales: {
        x: { time: false },
        y: { distr: chart.yAxis === "log" ? 3 : 1, range: yRange(chart) },
      },
      axes: [
        { ...axis, ...label(chart.xLabel), values: ticks(chart.xAxis), space: 70, ...(chart.xAxis === "nines" ? { splits: nines } : {}) },
        { ...axis, values: ticks(chart.yAxis), size: 62, ...(chart.yAxis === "log" ? { splits: decades, filter: (u, v) => v } : {}) },
      ],
      series: [{ label: chart.xLabel || "time", value: shown(chart.xAxis) }, ...chart.series.map((s) => seriesOf(s, chart.yAxis))],
      hooks: { draw: [(u) => drawLimits(u, chart.limits)] },
    };
  }

  const plots = new Map();
  function draw(element) {
    const chart = charts[element.dataset.chart];
    plots.get(element)?.destroy();
    const data = [chart.x, ...chart.series.map((s) => (chart.yAxis === "log" ? s.y.map((v) => (v > 0 ? v : null)) : s.y))];
    plots.set(element, new uPlot(options(chart, element.clientWidth || 600), data, element));
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
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => elements.forEach(draw));
  document.documentElement.dataset.charts = String(plots.size);
})();
