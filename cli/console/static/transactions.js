// Transactions over time: a lane for each transactional id, and who holds the readers.

import { html, count, useEffect, useMemo, useRef, useState, useStore, useTick, nowMs, number, span, time, to } from "/core.js";
import { moments, stateAt } from "/ribbon.js";
import { Holders, Waiting, laneOf, longestFirst, useWaiting } from "/waiting.js";
import { ask } from "/asking.js";

const WINDOWS = [["10 s", 10e3], ["1 min", 60e3], ["10 min", 600e3], ["1 h", 3600e3], ["1 d", 86400e3]];
const MOST_LANES = 60;
const MOST_BARS = 150;
const MOST_HELD = 30;
const END = { PrepareCommit: "committed", CompleteCommit: "committed", PrepareAbort: "aborted", CompleteAbort: "aborted", Unknown: "unknown" };
const isOver = (state) => state.startsWith("Complete") || state === "Unknown";

// When it was decided, and when the last marker was there; null where it isn't yet.
function ends(transaction, at) {
  let decided = null;
  let complete = null;
  for (const step of transaction.steps) {
    if (at !== null && step.at > at) break;
    if (END[step.state] && decided === null) decided = step.at;
    if (isOver(step.state)) complete = step.at;
  }
  return { decided, complete };
}

// The last ones, and behind them those that hold readers, which have a lane before all others: just these may be older
// than what is remembered, and are as their coordinators tell them then.
function useTransactions() {
  const { lists } = useStore();
  const waiting = useWaiting();
  const told = waiting.map((each) => each.transactions.map((one) => laneOf(one, lists.lanes))).join();
  return useMemo(() => {
    const found = new Map(lists.lanes);
    const held = new Map();
    for (const { topic, partition, transactions } of waiting) for (const one of transactions) {
      if (!one.transactional_id || !one.started_ms) continue;
      const { transactional_id: id, started_ms: started, producer_id: producer, producer_epoch: epoch, state } = one;
      const key = laneOf(one, lists.lanes);
      if (found.has(key)) held.set(key, found.get(key));
      if (found.has(key)) continue;
      const steps = [{ state, at: started, epoch, place: null }];
      if (!held.has(key)) held.set(key, { key, id, started, producer, epoch, state, steps, partitions: [], timeout: one.timeout_ms });
      held.get(key).partitions.push(`${topic}-${partition}`);
    }
    for (const key of held.keys()) found.delete(key);
    return [...found.values(), ...held.values()];
  }, [lists.lanes, told]);
}

export function Transactions() {
  const { values, lists, about } = useStore();
  const all = useTransactions();
  const [filter, setFilter] = useState("");
  const [width, setWidth] = useState(60e3);
  const [at, setAt] = useState(null);
  const isFirst = useRef(true);
  const live = at === null;
  useTick(250, live && (about === null || about.live));
  const newest = all.reduce((most, one) => Math.max(most, one.steps[one.steps.length - 1].at), 0);
  const now = about && !about.live ? newest : nowMs();
  useEffect(() => {
    if (!isFirst.current || !all.length) return;  // the first that comes says how far one has to look back
    isFirst.current = false;
    const age = now - newest;
    if (age > width * 0.8) setWidth(WINDOWS.map(([, ms]) => ms).find((ms) => ms > age * 1.2) || Math.max(age * 1.2, 86400e3));
  }, [all.length > 0]);
  const until = at === null ? now : at;
  const from = until - width;
  const kept = all.filter((one) => !filter || one.id.toLowerCase().includes(filter.toLowerCase()) || one.partitions.some((name) => name.startsWith(filter)));
  const lanes = lanesOf(kept, from, until, at);
  const times = useMemo(() => moments([], kept), [all, filter]);
  const elections = [...(lists.events || new Map()).values()].filter((each) => (each.kind === "election" || each.kind === "broker") && each.at >= from && each.at <= until);
  const held = useWaiting();
  const step = (way) => {
    const found = way < 0 ? times.filter((each) => each < until).pop() : times.find((each) => each > until);
    if (found !== undefined) setAt(found);
    else if (way > 0) setAt(null);
  };
  // Bars have their places in a strip that moves: where time goes on and nothing happens, the strip alone is drawn anew.
  const origin = Math.floor(from / width) * width;
  const x = (ms) => `${((Math.min(until, Math.max(from, ms)) - origin) / width) * 100}%`;
  const moved = { transform: `translateX(${((origin - from) / width) * 100}%)` };
  const listed = kept.filter((one) => at === null || one.started <= at).sort((a, b) => b.started - a.started).slice(0, 200);
  return html`
    <h1>Transactions</h1>
    <${Holders} waiting=${held} />
    ${values.held && !held.length ? html`<p id="nobody-waits">Nobody waits for a transaction.</p>` : ""}
    <div class="tools">
      <label>Transactional id or partition <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <span role="group" aria-label="Time shown">${WINDOWS.map(([label, ms]) => html`<button key=${label} aria-pressed=${width === ms ? "true" : "false"} onClick=${() => setWidth(ms)}>${label}</button>`)}</span>
      <span role="group" aria-label="Steps in time">
        <button onClick=${() => step(-1)} id="back">◀ Step back</button>
        <button onClick=${() => step(1)} id="forth">Step forward ▶</button>
        <button aria-pressed=${live ? "true" : "false"} onClick=${() => setAt(null)} id="live">Live</button></span>
      <output id="at">${live ? "now" : time(at, true)}</output>
    </div>
    <div class="lanes" role="group" aria-label="Lanes">
      ${lanes.map(({ id, bars, more }) => html`<div class="lane" key=${id}>
        <div class="id" title=${id}>${id}</div>
        <div class="track"><div class="strip" style=${moved}>${bars.map((bar) => html`<a key=${bar.one.key} href=${to("transaction", bar.one.key)} class=${`bar ${bar.fate}`}
            style=${{ left: x(bar.begin), width: `max(3px, calc(${x(bar.decided)} - ${x(bar.begin)}))` }}
            title=${bar.words} aria-label=${`${id}: ${bar.words}`}>${bar.letter}</a>
            ${bar.markers ? html`<span class=${`markers ${bar.fate}`} style=${{ left: x(bar.decided), width: `calc(${x(bar.markers)} - ${x(bar.decided)})` }}></span>` : ""}`)}
          ${elections.map((each) => html`<span key=${`e${each.key}`} class="election" style=${{ left: x(each.at) }} title=${`${time(each.at)} ${each.text}`}></span>`)}</div>
          ${more ? html`<small class="more">${more} more</small>` : ""}</div>
      </div>`)}
      ${lanes.length ? html`<div class="lane axis" aria-hidden="true"><div class="id"></div><div class="track">${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<span style=${{ left: `${part * 100}%` }} class=${part === 1 ? "last" : ""}>${time(from + part * width, width > 3600e3)}</span>`)}</div></div>`
        : html`<p>${all.length ? "None in the time shown." : "No transaction is known yet."}</p>`}
    </div>
    <p class="legend"><span class="key open">open</span> <span class="key committed">committed</span> <span class="key aborted">aborted</span>
      ${" "}<span class="key unknown">over, outcome unknown</span>
      ${" "}The bright end of a bar is the time from its decision to its last marker; a vertical line is an election.</p>
    ${elections.length ? html`<ol class="events" id="elections">${elections.slice(-20).reverse().map((each) => html`<li key=${each.key}><time>${time(each.at)}</time> ${each.text}</li>`)}</ol>` : ""}
    <div id="held">${held.length ? html`<h2>Which transactions hold the readers, and how to end them</h2>` : ""}
      ${longestFirst(held).slice(0, MOST_HELD).map((each) => html`<${Waiting} key=${`${each.topic}-${each.partition}`} waiting=${each} />`)}
      ${held.length > MOST_HELD ? html`<p>And ${count(held.length - MOST_HELD, "partition")} more, whose readers have waited less long.</p>` : ""}</div>
    <h2>${live ? "The latest ones" : `As they were at ${time(at)}`}</h2>
    <div class="scrolls" tabindex="0" role="region" aria-label="Transactions"><table class="left" id="transactions">
      <thead><tr>${["Transactional id", "State", "Since", "Began", "Took", "Producer", "Partitions"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
      <tbody>${listed.map((one) => {
        const state = stateAt(one, at);
        const { decided, complete } = ends(one, at);
        return html`<tr key=${one.key}><th scope="row"><a href=${to("transaction", one.key)}>${one.id}</a></th>
          <td><span class=${`state ${END[state?.state] || "open"}`}>${state ? state.state : "–"}</span></td><td>${state ? time(state.at) : "–"}</td>
          <td>${time(one.started)}</td><td>${complete || decided ? span((complete || decided) - one.started) : span(until - one.started)}</td>
          <td>${one.producer}/${state ? state.epoch : one.epoch}</td><td class="value">${one.partitions.slice(0, 6).join(", ")}${one.partitions.length > 6 ? ` and ${one.partitions.length - 6} more` : ""}</td></tr>`;
      })}</tbody></table></div>`;
}

function lanesOf(transactions, from, until, at) {
  const lanes = new Map();
  for (let index = transactions.length - 1; index >= 0; index -= 1) {
    const one = transactions[index];
    const { decided, complete } = ends(one, at);
    const last = complete ?? decided ?? until;
    if (one.started > until || last < from) continue;
    if (!lanes.has(one.id)) {
      if (lanes.size === MOST_LANES) continue;
      lanes.set(one.id, { id: one.id, bars: [], more: 0 });
    }
    const lane = lanes.get(one.id);
    if (lane.bars.length === MOST_BARS) {
      lane.more += 1;
      continue;
    }
    const state = stateAt(one, at);
    const fate = (state && END[state.state]) || "open";
    const words = `${state ? state.state : "?"}, began ${time(one.started)}, ${decided ? `${fate === "unknown" ? "over" : "decided"} after ${span(decided - one.started)}` : `open for ${span(until - one.started)}`}, ${count(one.partitions.length, "partition")}`;
    lane.bars.push({
      one, fate, words, begin: one.started, decided: decided ?? until, markers: decided !== null ? complete ?? until : null,
      letter: { committed: "C", aborted: "A", open: "…", unknown: "?" }[fate],
    });
  }
  return [...lanes.values()].sort((a, b) => a.id.localeCompare(b.id));
}

export function Transaction({ parts: [key] }) {
  const all = useTransactions();
  const { about } = useStore();
  const one = all.find((each) => each.key === key);
  useTick(1000, Boolean(one && !isOver(one.state)));
  const waiting = useWaiting((each) => one && each.transactions.some((by) => by.transactional_id === one.id));
  if (!one) return html`<h1>${key}</h1><p>It isn't among the transactions that the console remembers.</p>`;
  const { decided, complete } = ends(one, null);
  const facts = [["producer id", one.producer], ["epoch", one.epoch], ["timeout", span(one.timeout)], ["began", time(one.started, true)],
    [one.state === "Unknown" ? "over" : "decided", decided ? `${time(decided)}, after ${span(decided - one.started)}` : "not yet"],
    ["last marker", complete ? `${time(complete)}, ${span(complete - decided)} later` : "not yet"]];
  return html`
    <h1>${one.id}</h1>
    <p><span class=${`state ${END[one.state] || "open"}`} id="state">${one.state}</span></p>
    <dl class="facts">${facts.map(([what, is]) => html`<div key=${what}><dt>${what}</dt><dd>${is}</dd></div>`)}</dl>
    ${one.state === "Ongoing" && about && about.live ? html`<p><button class="danger" onClick=${() => ask("abort", { id: one.id }, "Abort the transaction")}>Abort…</button></p>` : ""}
    ${waiting.map((each) => html`<${Waiting} key=${`${each.topic}-${each.partition}`} waiting=${each} />`)}
    <h2>Its steps</h2>
    <div class="scrolls" tabindex="0" role="region" aria-label="Steps"><table class="left" id="steps"><thead><tr>${["At", "State", "Epoch", "Its record"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
      <tbody>${one.steps.map((step) => html`<tr key=${step.place ? step.place.join("-") : step.at}><td>${time(step.at)}</td><th scope="row">${step.state}</th><td>${step.epoch}</td>
        <td>${step.place ? html`<a href=${`${to("log", "__transaction_state", step.place[0])}?at=${step.place[1]}`}>__transaction_state-${step.place[0]}, offset ${number(step.place[1])}</a>` : "reported by its coordinator"}</td></tr>`)}</tbody></table></div>
    <h2>Partitions</h2>
    <ul>${one.partitions.map((name) => {
      const cut = name.lastIndexOf("-");
      return html`<li key=${name}><a href=${to("log", name.slice(0, cut), name.slice(cut + 1))}>${name}</a></li>`;
    })}</ul>`;
}
