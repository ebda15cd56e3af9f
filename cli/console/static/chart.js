// A chart over time, by uPlot, which is loaded where the first one is shown.

import { html, useEffect, useRef } from "/core.js";

let loading = null;

function uplot() {
  loading ||= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    Object.assign(style, { rel: "stylesheet", href: "/vendor/uplot-1.6.32.css" });
    const script = document.createElement("script");
    Object.assign(script, { src: "/vendor/uplot-1.6.32.js", onload: () => resolve(window.uPlot), onerror: reject });
    document.head.append(style, script);
  });
  return loading;
}

const COLOURS = ["--line", "--open-line"];

// `points` are [seconds, value, value…].
export function Chart({ points, names, label }) {
  const box = useRef(null);
  const chart = useRef(null);
  const data = [points.map((point) => point[0]), ...names.map((_, index) => points.map((point) => point[index + 1]))];
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    let isGone = false;
    uplot().then((UPlot) => {
      if (isGone || !box.current) return;
      const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
      const axis = { stroke: colour("--text"), grid: { stroke: colour("--edge") } };
      const series = names.map((name, index) => ({ label: name, stroke: colour(COLOURS[index]), width: 2 }));
      const options = { width: box.current.clientWidth || 600, height: 160, series: [{}, ...series], axes: [axis, { ...axis, size: 70 }] };
      chart.current = new UPlot(options, latest.current, box.current);
    }, () => {});
    return () => {
      isGone = true;
      if (chart.current) chart.current.destroy();
      chart.current = null;
    };
  }, []);
  const last = points.length ? points[points.length - 1] : null;
  useEffect(() => {
    if (chart.current) chart.current.setData(latest.current);
  }, [points.length, last && last[0]]);
  const now = last ? names.map((name, index) => `${name} ${last[index + 1]}`).join(", ") : "nothing yet";
  return html`<figure class="chart"><figcaption>${label}</figcaption><div ref=${box} role="img" aria-label=${`${label}: ${now}`}></div></figure>`;
}
