// A partition: a ribbon of its log, its records, and the bytes of a batch.

import { html, count, useEffect, useMemo, useRef, useState, useStore, useTick, useAsked, api, number, span, size, time, nowMs, to } from "/core.js";
import { moments, ribbonAt, transactionOf } from "/ribbon.js";
import { Waiting, useWaiting } from "/waiting.js";
import { Chart } from "/chart.js";
import { ask } from "/asking.js";
import { FORMS, hexOf, schemaOf, shown } from "/values.js";

const MOST_BATCHES = 600;
const FAR_BEHIND = 5000;
const PAUSE_MS = 80;

// Batches from a place on, which grow with the log while nobody looks elsewhere.
function useRibbon(topic, partition, place, tail) {
  const [state, setState] = useState({ batches: [], start: 0, stable: 0, end: 0, from: 0, next: 0, error: "", isReady: false });
  const held = useRef({ isBusy: false, isGone: false, place, state });
  const it = held.current;
  const put = (value) => {
    it.state = value;
    if (!it.isGone) setState(value);
  };
  const load = async (from, isMore) => {
    if (it.isBusy) return;
    it.isBusy = true;
    try {
      const found = await api("ribbon", { topic, partition, from });
      const before = isMore ? it.state.batches : [];
      const batches = [...before, ...found.batches.filter((each) => !before.length || each.base > before[before.length - 1].last)].slice(-MOST_BATCHES);
      put({ ...found, batches, from: batches.length ? batches[0].base : found.from, error: "", isReady: true });
    } catch (error) {
      put({ ...it.state, error: error.message, isReady: true });
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
    it.isBusy = false;
    if (!it.isGone && it.again) it.again();
  };
  useEffect(() => () => void (it.isGone = true), []);
  useEffect(() => {
    it.place = place;
    const wait = setInterval(() => {
      if (it.isBusy) return;
      clearInterval(wait);
      load(place, false);
    }, 10);
    return () => clearInterval(wait);
  }, [place]);
  const follow = () => {
    if (!tail || !it.state.isReady || it.place) return;
    const [start, stable, end] = tail;
    const { next } = it.state;
    if (end > next) load(end - next > FAR_BEHIND ? undefined : next, end - next <= FAR_BEHIND);
    else if (stable !== it.state.stable || end !== it.state.end || start !== it.state.start) put({ ...it.state, start, stable, end });
  };
  it.again = follow;
  useEffect(follow, [tail && tail.join(), state.isReady]);
  return state;
}

export function Log({ parts: [topic, index], query }) {
  const partition = Number(index);
  const { values, lists, about } = useStore();
  const wished = query.get("at");
  const [place, setPlace] = useState(wished ? String(Math.max(0, Number(wished) - 20)) : "");
  const [at, setAt] = useState(null);
  const [chosen, setChosen] = useState(wished ? Number(wished) : null);
  const tail = values[`log:${topic}:${partition}`];
  const ribbon = useRibbon(topic, partition, place, tail);
  const transactions = useMemo(() => [...(lists.lanes || new Map()).values()].filter((one) => one.partitions.includes(`${topic}-${partition}`)), [lists.lanes, topic, partition]);
  const seen = useMemo(() => ribbonAt(ribbon.batches, at, ribbon), [ribbon, at]);
  const times = useMemo(() => moments(ribbon.batches), [ribbon.batches]);
  const points = useRef([]);
  useTick(1000, Boolean(about && about.live));
  if (tail) {
    const second = Math.round(Date.now() / 500) / 2;
    const last = points.current[points.current.length - 1];
    if (!last || last[0] !== second) points.current = [...points.current.slice(-600), [second, tail[2], tail[1]]];
  }
  const [waiting] = useWaiting((each) => each.topic === topic && each.partition === partition);
  const step = (way) => {
    const current = at === null ? Infinity : at;
    const found = way < 0 ? times.filter((each) => each < current && (at !== null || each < times[times.length - 1])).pop() : times.find((each) => each > current);
    if (found !== undefined) setAt(found);
    else if (way > 0) setAt(null);
  };
  const move = (offset) => {
    setAt(null);
    setPlace(offset);
  };
  const position = at === null ? times.length - 1 : times.indexOf(at);
  return html`
    <h1>${topic}-${partition}</h1>
    ${ribbon.error ? html`<p class="problem" role="alert">${ribbon.error}</p>` : ""}
    <dl class="facts" id="offsets">
      <div><dt>log start</dt><dd>${number(ribbon.start)}</dd></div>
      <div><dt>last stable offset</dt><dd class=${seen.stable < seen.end ? "open" : ""} id="stable">${number(seen.stable)}</dd></div>
      <div><dt>high watermark</dt><dd id="end">${number(seen.end)}</dd></div>
      <div><dt>waiting offsets</dt><dd>${number(seen.end - seen.stable)}</dd></div>
    </dl>
    ${waiting && at === null ? html`<${Waiting} waiting=${waiting} />` : ""}
    ${at !== null && seen.held.length ? html`<p>At ${time(at)} readers of committed records waited for producer id ${seen.held[0].producer}, since ${time(seen.held[0].since)} (${span(at - seen.held[0].since)}).</p>` : ""}
    <div class="tools">
      <span role="group" aria-label="Where in the log">
        <button onClick=${() => move("earliest")} disabled=${ribbon.from <= ribbon.start}>Start</button>
        <button onClick=${() => move(String(Math.max(ribbon.start, ribbon.from - 300)))} disabled=${ribbon.from <= ribbon.start}>◀ Earlier</button>
        <button onClick=${() => move(String(Math.min(ribbon.next, ribbon.end)))} disabled=${ribbon.next >= ribbon.end}>Later ▶</button>
        <button onClick=${() => move("")} aria-pressed=${place === "" ? "true" : "false"}>End</button></span>
      <span role="group" aria-label="Steps in time">
        <button onClick=${() => step(-1)} id="back" disabled=${position <= 0}>◀ Step back</button>
        <label>Time <input type="range" min="0" max=${Math.max(0, times.length - 1)} value=${position} aria-valuetext=${at === null ? "now" : time(at, true)}
          onInput=${(event) => setAt(Number(event.target.value) >= times.length - 1 ? null : times[Number(event.target.value)])} /></label>
        <button onClick=${() => step(1)} id="forth" disabled=${at === null}>Step forward ▶</button>
        <button onClick=${() => setAt(null)} aria-pressed=${at === null ? "true" : "false"} id="live">Live</button></span>
      <output id="at">${at === null ? "now" : time(at, true)}</output>
    </div>
    <${Ribbon} batches=${ribbon.batches} seen=${seen} from=${ribbon.from} chosen=${chosen} choose=${setChosen} />
    <p class="legend"><span class="key plain">without a transaction</span> <span class="key committed">committed</span> <span class="key aborted">aborted</span>
      ${" "}<span class="key open">open</span> <span class="key marker">C</span><span class="key marker">A</span> markers.
      ${" "}${ribbon.batches.length ? `${number(ribbon.batches.length)} batches, offsets ${number(ribbon.from)} to ${number(ribbon.next - 1)}.` : "No batches here."} Arrow keys move from batch to batch.</p>
    ${chosen !== null ? html`<${Batch} key=${chosen} topic=${topic} partition=${partition} offset=${chosen} transactions=${[...(lists.lanes || new Map()).values()]} close=${() => setChosen(null)} />` : ""}
    ${points.current.length > 1 ? html`<${Chart} points=${points.current} names=${["high watermark", "last stable offset"]} label="Offsets since you opened this page" />` : ""}
    <${Records} topic=${topic} partition=${partition} end=${tail ? tail[2] : ribbon.end} stable=${tail ? tail[1] : ribbon.stable} isReady=${ribbon.isReady} wished=${wished} choose=${setChosen} />
    ${about && about.live ? html`<${Deleting} topic=${topic} partition=${partition} />` : ""}`;
}

const WORDS = { commit: "COMMIT marker", abort: "ABORT marker", control: "control" };

function Ribbon({ batches, seen, from, chosen, choose }) {
  const box = useRef(null);
  const last = Math.max(seen.end, batches.length ? batches[batches.length - 1].last + 1 : from + 1);
  const total = Math.max(1, last - from);
  const x = (offset) => `${(Math.max(0, Math.min(offset, last) - from) / total) * 100}%`;
  const shown = batches.slice(0, seen.count);
  const index = Math.max(0, shown.findIndex((each) => each.base <= chosen && chosen <= each.last));
  const keys = (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (way === undefined || !shown.length) return;
    event.preventDefault();
    const current = Number(document.activeElement.dataset.index ?? index);
    const next = Math.min(shown.length - 1, Math.max(0, way === -Infinity ? 0 : way === Infinity ? shown.length - 1 : current + way));
    const button = box.current.querySelector(`[data-index="${next}"]`);
    if (button) button.focus();
  };
  return html`<div class="ribbon" role="group" aria-label="The log, batch by batch" ref=${box} onKeyDown=${keys}>
    <div class="band">
      ${shown.map((each, number_) => {
        const fate = each.kind === "plain" ? seen.fates[number_] || "plain" : each.kind === "control" ? "marker" : `marker ${each.kind}`;
        const words = `offsets ${each.base} to ${each.last}, ${WORDS[each.kind] || `${count(each.count, "record")}, ${seen.fates[number_] || "without a transaction"}`}${each.producer >= 0 ? `, producer ${each.producer}` : ""}, ${time(each.time)}`;
        return html`<button key=${each.base} data-index=${number_} tabindex=${number_ === index ? 0 : -1} class=${`batch ${fate} ${number_ === index && chosen !== null ? "chosen" : ""}`}
          style=${{ left: x(each.base), width: `max(2px, calc(${x(each.last + 1)} - ${x(each.base)} - 1px))` }} title=${words} aria-label=${words}
          onClick=${() => choose(each.base)}>${each.kind === "commit" ? "C" : each.kind === "abort" ? "A" : ""}</button>`;
      })}
    </div>
    <div class="marks">
      <span class=${`mark stable ${seen.stable - from < total / 2 ? "first" : ""}`} style=${{ left: x(seen.stable) }} title="last stable offset"><span>last stable offset ${seen.stable}${seen.held.length ? `, held by producer ${seen.held[0].producer} since ${time(seen.held[0].since)}` : ""}</span></span>
      <span class=${`mark end ${seen.end - from < total / 2 ? "first" : ""}`} style=${{ left: x(seen.end) }} title="high watermark"><span>high watermark ${seen.end}</span></span>
    </div>
  </div>`;
}

function Batch({ topic, partition, offset, transactions, close }) {
  const { value, error } = useAsked(() => api("batch", { topic, partition, offset }), `${topic}-${partition}-${offset}`);
  const [over, setOver] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    if (value && box.current) box.current.focus();
  }, [Boolean(value)]);
  if (error) return html`<p class="problem" role="alert">${error}</p>`;
  if (!value) return html`<p>asking…</p>`;
  const of = transactionOf(value, transactions);
  const bytes = value.hex.match(/../g) || [];
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) rows.push(at);
  // A line is one text, but for the bytes of the field that is pointed at: there may be a thousand lines.
  const line = (row) => {
    const cut = (at) => Math.min(Math.max(at, row), row + 16);
    const [begin, end] = over === null ? [row, row] : [cut(over.at), cut(over.at + over.size)];
    const text = (from, to_) => bytes.slice(from, to_).join(" ");
    if (begin === end) return text(row, row + 16);
    return html`${text(row, begin)} <span class="over">${text(begin, end)}</span> ${text(end, row + 16)}`;
  };
  const said = value.records.filter((each) => each.type || each.wrong);
  return html`<section class="bytes" aria-label="The bytes of the batch" tabindex="-1" ref=${box}>
    <h2>Batch ${value.base} to ${value.last} <button onClick=${close}>Close</button></h2>
    <p>${size(value.bytes)} on disk, ${count(value.count, "record")}${value.kind === "plain" ? value.fate ? html`, <span class=${`state ${value.fate}`}>${value.fate}</span>` : ", without a transaction" : html`, ${WORDS[value.kind]}`}.
      ${of ? html` Of the transaction of <a href=${to("transaction", of.key)}>${of.id}</a>; what stands for it in __transaction_state:
        ${of.steps.map((step) => html`${" "}${step.place ? html`<a href=${`${to("log", "__transaction_state", step.place[0])}?at=${step.place[1]}`}>${step.state} (${step.place[0]}, offset ${step.place[1]})</a>` : step.state}`)}.` : ""}</p>
    ${said.map((each) => html`<details open=${said.length < 4} key=${each.offset}><summary>${each.offset}: ${each.type || each.wrong}</summary><pre>${JSON.stringify(each.says, null, 1)}</pre></details>`)}
    <div class="two">
      <div class="scrolls" tabindex="0" role="region" aria-label="Fields"><table class="left" id="fields">
        <thead><tr><th scope="col">At</th><th scope="col">Size</th><th scope="col">Field</th><th scope="col">Value</th><th scope="col">Meaning</th></tr></thead>
        <tbody>${value.fields.map((each) => html`<tr key=${`${each.at}-${each.name}`} class=${over === each ? "over" : ""} onMouseEnter=${() => setOver(each)} onMouseLeave=${() => setOver(null)}>
          <td>${each.at}</td><td>${each.size}</td><th scope="row" class=${`depth${each.depth}`}>${each.name}</th><td class="value">${each.value}</td><td>${each.means}</td></tr>`)}</tbody></table></div>
      <div class="scrolls hex" tabindex="0" role="region" aria-label="Bytes in hexadecimal"><table><tbody>${rows.map((row) => html`<tr key=${row}><th scope="row">${row.toString(16).padStart(4, "0")}</th>
        <td>${line(row)}</td></tr>`)}</tbody></table>
        ${bytes.length < value.bytes ? html`<p>${number(value.bytes - bytes.length)} bytes more</p>` : ""}</div>
    </div>
  </section>`;
}

function Records({ topic, partition, end, stable, isReady, wished, choose }) {
  const [from, setFrom] = useState(wished ? String(Math.max(0, Number(wished) - 5)) : "-50");
  const [typed, setTyped] = useState(from);
  const [key, setKey] = useState("");
  const [typedKey, setTypedKey] = useState("");
  const [isCommitted, setCommitted] = useState(false);
  const [form, setForm] = useState("auto");
  const [schemaText, setSchemaText] = useState("");
  const { schema, error: wrongSchema } = useMemo(() => schemaOf(schemaText), [schemaText]);
  const isTail = from.startsWith("-");
  const which = `${from}|${key}|${isCommitted}`;
  const [searched, setSearched] = useState(null);
  // What is searched for a key is long: the search goes on by itself until it has found some, and says how far it is.
  const find = async (isAsked) => {
    const asked = (from_) => api("records", { topic, partition, from: from_, key, committed: isCommitted ? 1 : "", most: 100 });
    let value = await asked(from);
    while (key && !value.records.length && value.next < value.end && isAsked()) {
      setSearched(value.next);
      value = await asked(value.next);
    }
    if (isAsked()) setSearched(null);
    return value;
  };
  const found = useAsked(find, which);
  const isBusy = useRef(false);
  useEffect(() => {
    if (!isReady || !isTail || !found.value || isBusy.current) return undefined;
    if (found.value.end === end && found.value.stable === stable) return undefined;
    isBusy.current = true;
    const timer = setTimeout(async () => {
      await found.again();
      isBusy.current = false;
    }, PAUSE_MS);
    return () => {
      isBusy.current = false;
      clearTimeout(timer);
    };
  }, [end, stable, which, found.value]);
  const go = (event) => {
    event.preventDefault();
    setFrom(typed.trim() || "-50");
    setKey(typedKey);
  };
  const jump = (place) => {
    setTyped(place);
    setFrom(place);
  };
  const records = found.value ? found.value.records : [];
  // Their values are decoded when they come, and not whenever the page is drawn.
  const lines = useMemo(() => records.map((each) => html`<tr key=${each.offset} class=${each.fate || each.kind}>
        <th scope="row"><button class="plain" title="the bytes of its batch" onClick=${() => choose(each.offset)}>${each.offset}</button></th><td>${time(each.time, true)}</td>
        ${each.unread ? html`<td colspan="3">${each.unread}</td>` : html`
        <td class="value"><pre>${each.says && each.kind !== "plain" ? "" : shown(each.key, form === "Avro" ? "auto" : form)}</pre></td>
        <td class="value"><pre>${each.says ? `${each.type} ${JSON.stringify(each.says, null, 1)}` : shown(each.value, form, schema)}</pre></td>
        <td class="value">${each.headers.map(([name, value]) => html`<div>${name}: ${shown(value, form === "Avro" ? "auto" : form)}</div>`)}</td>`}
        <td>${each.kind !== "plain" ? WORDS[each.kind] : each.fate ? html`<span class=${`state ${each.fate}`}>${each.fate}</span>` : ""}</td></tr>`), [found.value, form, schema]);
  return html`<h2>Records</h2>
    <form class="tools" onSubmit=${go}>
      <label>From <input value=${typed} onInput=${(event) => setTyped(event.target.value)} list="places" /></label>
      <datalist id="places"><option value="earliest">earliest</option><option value="-50">-50</option><option value="15m">15m</option><option value="2026-01-31T12:00">2026-01-31T12:00</option></datalist>
      <label>Key <input value=${typedKey} onInput=${(event) => setTypedKey(event.target.value)} placeholder="any" /></label>
      <button>Show</button>
      <label><input type="checkbox" checked=${isCommitted} onChange=${(event) => setCommitted(event.target.checked)} /> only committed ones</label>
      <label>As <select value=${form} onChange=${(event) => setForm(event.target.value)}>${FORMS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      ${found.value && found.value.next < found.value.end ? html`<button type="button" onClick=${() => jump(String(found.value.next))}>Next ▶</button>` : ""}
    </form>
    ${form === "Avro" || schemaText ? html`<label class="schema">Avro schema of the values (JSON) <textarea rows="4" value=${schemaText} onInput=${(event) => setSchemaText(event.target.value)}></textarea></label>
      ${wrongSchema ? html`<p class="problem">${wrongSchema}</p>` : ""}` : ""}
    ${found.error ? html`<p class="problem" role="alert">${found.error}</p>` : ""}
    <p role="status" id="searched">${searched !== null ? html`Searched up to offset ${number(searched)} of ${number(end)}: none with this key yet.
      ${" "}<button type="button" onClick=${() => (setKey(""), setTypedKey(""))}>Stop</button>` : found.value === null && !found.error ? "asking…" : ""}</p>
    <div class="scrolls tall" tabindex="0" role="region" aria-label="Records"><table class="left" id="records">
      <thead><tr>${["Offset", "Time", "Key", "Value", "Headers", "Transaction"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
      <tbody>${lines}</tbody></table></div>
    ${found.value && !records.length ? html`<p>None ${key ? html`with this key up to offset ${number(found.value.next)}` : "there"}.</p>` : ""}`;
}

function Deleting({ topic, partition }) {
  const [before, setBefore] = useState("");
  const go = (event) => {
    event.preventDefault();
    ask("delete-records", { topic, partition, before: Number(before) }, "Delete the records");
  };
  return html`<h2>Delete records</h2><form class="tools" onSubmit=${go}>
    <label>Before offset <input type="number" min="1" required value=${before} onInput=${(event) => setBefore(event.target.value)} /></label>
    <button class="danger">Preview the deletion…</button></form>`;
}
