// The shell: where one is, what all views need, and what is wrong.

import { html, render, useEffect, useRef, useState, store, useStore, want, api, nowMs, to } from "/core.js";
import { Topics, Topic } from "/topics.js";
import { Log } from "/log.js";
import { Transactions, Transaction } from "/transactions.js";
import { Groups, Group } from "/groups.js";
import { Client, Clients } from "/clients.js";
import { Cluster, Rights } from "/cluster.js";
import { Questions } from "/asking.js";
import { useWaiting } from "/waiting.js";

const LONG_MS = 5000;
const TABS = [
  ["transactions", "Transactions"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["clients", "Clients"],
  ["cluster", "Cluster"],
  ["rights", "Users and rights"],
];
// For each place: its tab, its view, the sections that it shows.
const PLACES = {
  transactions: ["transactions", Transactions, () => ["lanes", "events"]],
  transaction: ["transactions", Transaction, () => ["lanes"]],
  topics: ["topics", Topics, () => ["topics"]],
  topic: ["topics", Topic, () => ["lanes"]],
  log: ["topics", Log, ([topic, partition]) => ["lanes", `log:${topic}:${partition}`]],
  groups: ["groups", Groups, () => ["groups", "events"]],
  group: ["groups", Group, () => ["lanes"]],
  clients: ["clients", Clients, () => []],
  client: ["clients", Client, () => []],
  cluster: ["cluster", Cluster, () => ["events"]],
  rights: ["rights", Rights, () => []],
};

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [place, ...parts] = path.split("/").map(decoded);
  const name = Object.hasOwn(PLACES, place) ? place : "transactions";
  return { place: name, parts, query: new URLSearchParams(query), key: path };
}

function App() {
  const [where, setWhere] = useState(here);
  const { values, isConnected, about } = useStore();
  const main = useRef(null);
  const isFirst = useRef(true);
  useEffect(() => {
    const moved = () => setWhere((before) => (location.hash === "#main" ? before : here()));
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const [tab, View, sections] = PLACES[where.place];
  useEffect(() => {
    want(["brokers", "held", ...sections(where.parts)]);
    if (!isFirst.current && main.current) main.current.focus();
    isFirst.current = false;
  }, [where.key]);
  const asked = values.held?.at_ms || nowMs();
  const held = useWaiting((each) => asked - each.since_ms > LONG_MS);
  const problem = ["cluster", "transactions", "log"].map((name) => values[`problem:${name}`]).find(Boolean);
  const title = TABS.find(([name]) => name === tab)[1];
  useEffect(() => {
    document.title = `${where.parts[0] || title} · barnabas`;
  });
  return html`
    <header class="top">
      <strong class="brand">barnabas</strong>
      <nav aria-label="Views">
        ${TABS.map(
          ([name, label]) => html`<a key=${name} href=${to(name)} aria-current=${tab === name ? "page" : null}>
            ${label}${name === "transactions" && held.length
              ? html` <span class="badge" title="partitions whose readers have waited for more than 5 s">${held.length}</span>` : ""}</a>`,
        )}
      </nav>
      <span class="where">${about ? about.where : ""}${about && !about.live ? " (a folder, not a broker)" : ""}</span>
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      <div role="status">
        ${problem ? html`<p class="problem">${problem}</p>` : ""}
        ${about && !isConnected ? html`<p class="problem">The console doesn't answer. Trying again…</p>` : ""}
      </div>
      <${View} key=${where.key} parts=${where.parts} query=${where.query} />
    </main>
    <${Questions} />`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
api("about").then((about) => {
  store.about = about;
  store.skew = about.now - Date.now();
  store.changed();
}, () => {});
