// Charts: figures from the server, drawn by uPlot in the page's own colours.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const HEIGHT = 200;
  // Eight hues that stay apart for most eyes, in light and in dark.
  const HUES = ["#3b7dd8", "#c8553d", "#2e9e6b", "#b8860b", "#8e5bbf", "#0f9aa8", "#c04b83", "#7a8794"];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function axes(values) {
    const shared = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    return [{ ...shared }, { ...shared, ...values }];
  }

  function stack(figures) {
    const sums = figures.at.map(() => 0);
    const tops = figures.series.map((one) => one.values.map((value, i) => (sums[i] += value)));
    const bars = uPlot.paths.bars({ size: [0.8, 40] });
    const series = figures.series.map((one, i) => ({
      label: one.name.replaceAll("_", " "), fill: HUES[i % HUES.length], width: 0, paths: bars, points: { show: false },
      value: (u, v, s, at) => (at == null ? "" : one.values[at]),
    }));
    // The highest is drawn first, so that each stands before those above it.
    return { data: [figures.at, ...tops.reverse()], series: series.reverse(), axes: axes({ incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] }) };
  }

  function steps(figures) {
    const series = figures.series.map((one, i) => ({
      label: one.name, stroke: HUES[i % HUES.length], width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
      value: (u, v) => (v == null ? "" : figures.words[v]),
    }));
    const values = { values: (u, at) => at.map((v) => figures.words[v] ?? ""), incrs: [1], size: 80 };
    return { data: [figures.at, ...figures.series.map((one) => one.values)], series, axes: axes(values), range: [0, 3.2] };
  }

  function draw(place, figures) {
    if (!figures.series.length) {
      place.textContent = "Nothing in this time.";
      return;
    }
    const made = (place.dataset.chart === "stack" ? stack : steps)(figures);
    const chart = new uPlot(
      {
        width: place.clientWidth - 32, height: HEIGHT, series: [{}, ...made.series], axes: made.axes,
        scales: { y: { range: made.range ?? ((u, low, high) => [0, Math.max(1, high * 1.1)]) } }, cursor: { drag: { x: false, y: false } },
      },
      made.data, place,
    );
    new ResizeObserver(() => chart.setSize({ width: place.clientWidth - 32, height: HEIGHT })).observe(place);
  }

  function drawAll() {
    for (const place of document.querySelectorAll("[data-chart]:not([data-drawn])")) {
      place.dataset.drawn = "";
      fetch(place.dataset.source, { headers: { Accept: "application/json" } })
        .then((response) => response.json())
        .then((figures) => draw(place, figures))
        .catch(() => { place.textContent = "The figures can't be read now."; });
    }
  }

  document.addEventListener("htmx:afterSwap", drawAll);
  drawAll();
});
