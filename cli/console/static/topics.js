// Topics, of which there may be thousands: only the lines that are seen are made.

import { html, useEffect, useMemo, useRef, useState, useStore, useAsked, api, number, size, to } from "/core.js";
import { Holders, useWaiting } from "/waiting.js";

const LINE = 30;
const COLUMNS = ["Topic", "Partitions", "Replicas", "Records", "After the last stable offset", "Size", "Lacking replicas"];

export function Topics() {
  const { values } = useStore();
  const [filter, setFilter] = useState("");
  const [isInternal, setInternal] = useState(false);
  const [sort, setSort] = useState([0, 1]);
  const [top, setTop] = useState(0);
  const box = useRef(null);
  const all = values.topics;
  const shown = useMemo(() => {
    const [column, way] = sort;
    const kept = (all || []).filter(
      (row) => (isInternal || !row[7]) && (!filter || row[0].toLowerCase().includes(filter.toLowerCase())),
    );
    if (column === 0 && way === 1) return kept;
    return kept.sort((a, b) => way * (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0));
  }, [all, filter, isInternal, sort]);
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
  }, [filter, isInternal, sort]);
  const first = Math.max(0, Math.floor(top / LINE) - 10);
  const lines = shown.slice(first, first + Math.ceil(innerHeight / LINE) + 20);
  const arrow = (index) => (sort[0] === index ? (sort[1] === 1 ? " ▲" : " ▼") : "");
  return html`
    <h1>Topics</h1>
    <p class="tools">
      <label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <label><input type="checkbox" checked=${isInternal} onChange=${(event) => setInternal(event.target.checked)} /> internal topics</label>
      <span role="status" id="count">${all ? `${number(shown.length)} topics` : "asking…"}</span>
    </p>
    <div class="scrolls tall" ref=${box} tabindex="0" role="region" aria-label="Topics" onScroll=${(event) => setTop(event.target.scrollTop)}>
      <table class="lines" aria-rowcount=${shown.length + 1}>
        <thead><tr>${COLUMNS.map((name, index) => html`<th scope="col" key=${name} class=${index ? "right" : ""}
          aria-sort=${sort[0] === index ? (sort[1] === 1 ? "ascending" : "descending") : null}>
          <button class="plain" onClick=${() => setSort([index, sort[0] === index ? -sort[1] : index ? -1 : 1])}>${name}${arrow(index)}</button></th>`)}</tr></thead>
        <tbody>
          ${first > 0 ? html`<tr key="above" aria-hidden="true" style=${{ height: `${first * LINE}px` }}></tr>` : ""}
          ${lines.map((row, index) => html`<tr key=${row[0]} aria-rowindex=${first + index + 2} style=${{ height: `${LINE}px` }}>
            <th scope="row"><a href=${to("topic", row[0])}>${row[0]}</a></th>
            <td>${number(row[1])}</td><td>${number(row[2])}</td><td>${number(row[3])}</td>
            <td class=${row[4] ? "open" : ""}>${number(row[4])}</td><td>${size(row[5])}</td>
            <td class=${row[6] ? "wrong" : ""}>${number(row[6])}</td></tr>`)}
          ${shown.length > first + lines.length
            ? html`<tr key="below" aria-hidden="true" style=${{ height: `${(shown.length - first - lines.length) * LINE}px` }}></tr>` : ""}
        </tbody>
      </table>
    </div>`;
}

export function Topic({ parts: [name] }) {
  const { value, error } = useAsked(() => api("topic", { topic: name }), name, 1000);
  const waiting = useWaiting((each) => each.topic === name);
  const [isAll, setAll] = useState(false);
  const settings = value ? value.settings.filter((each) => isAll || each.why !== "Kafka's default") : [];
  return html`
    <h1>${name}</h1>
    ${error ? html`<p class="problem" role="alert">${error}</p>` : ""}
    ${value ? html`
      <${Holders} waiting=${waiting} />
      <div class="scrolls" tabindex="0" role="region" aria-label="Partitions"><table id="partitions">
        <thead><tr><th scope="col">Partition</th>${["Leader", "Replicas", "In sync", "Start", "End", "Last stable", "Size"].map(
          (each) => html`<th scope="col" class="right">${each}</th>`)}</tr></thead>
        <tbody>${value.partitions.map((row) => html`<tr key=${row.partition}>
          <th scope="row"><a href=${to("log", name, row.partition)}>${name}-${row.partition}</a></th>
          <td>${row.leader === null ? "none" : row.leader}</td><td>${row.replicas.join(", ")}</td>
          <td class=${row.in_sync.length < row.replicas.length ? "wrong" : ""}>${row.in_sync.join(", ")}</td>
          <td>${number(row.start)}</td><td>${number(row.end)}</td>
          <td class=${row.last_stable < row.end ? "open" : ""}>${number(row.last_stable)}</td><td>${size(row.bytes)}</td></tr>`)}
        </tbody></table></div>
      <h2>Settings</h2>
      <p class="tools"><label><input type="checkbox" checked=${isAll} onChange=${(event) => setAll(event.target.checked)} />
        also settings with Kafka's defaults</label></p>
      <${Settings} settings=${settings} />` : error ? "" : html`<p>asking…</p>`}`;
}

export function Settings({ settings }) {
  if (!settings.length) return html`<p>All have Kafka's defaults.</p>`;
  return html`<div class="scrolls" tabindex="0" role="region" aria-label="Settings"><table class="left">
    <thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">Why</th><th scope="col">Otherwise</th></tr></thead>
    <tbody>${settings.map((each) => html`<tr key=${each.setting}><th scope="row">${each.setting}</th><td class="value">${each.value}</td>
      <td>${each.why}</td><td>${each.else}</td></tr>`)}</tbody></table></div>`;
}
