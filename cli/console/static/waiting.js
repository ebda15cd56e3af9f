// Who holds the readers of committed records, since when, and what ends it: as `barnabas transactions explain` says.

import { html, count, nowMs, number, span, store, time, to, useStore } from "/core.js";
import { ask } from "/asking.js";

export function Waiting({ waiting }) {
  const now = nowMs();
  const name = `${waiting.topic}-${waiting.partition}`;
  return html`<section class="waiting" aria-label=${`Readers of ${name} wait`}>
    <h3><a href=${to("log", waiting.topic, waiting.partition)}>${name}</a>: readers of committed records wait at offset
      ${" "}${number(waiting.last_stable_offset)} (of ${number(waiting.high_watermark)})${waiting.since_ms ? html`, since ${time(waiting.since_ms)} (${span(now - waiting.since_ms)})` : ""}</h3>
    <p>Behind it: ${waiting.exact ? "" : "at least "}${count(waiting.records_waiting, "record")} that they get once no transaction is open before them,
      ${" "}${number(waiting.records_open)} of open transactions, ${number(waiting.records_aborted)} of aborted ones.</p>
    ${waiting.transactions.length ? html`<ol>${waiting.transactions.map((one) => html`<li key=${one.start_offset}><${Holder} one=${one} waiting=${waiting} now=${now} /></li>`)}</ol>`
      : html`<p>No transaction is open there: one has ended, and the replicas in sync don't have its marker yet.</p>`}
  </section>`;
}

// The key of its lane: of several that have begun in one millisecond it is the last, since only that one may be open.
export function laneOf(one, lanes) {
  const first = `${one.transactional_id}/${one.started_ms}`;
  let key = first;
  for (let at = 2; lanes?.has(`${first}~${at}`); at += 1) key = `${first}~${at}`;
  return key;
}

// Whose readers wait. It is asked for from time to time, and lanes tell at once that a transaction is over: busy
// applications would seem to hold readers for as long as nobody asks again. What hangs is no part of its lane: a record
// that came behind its marker holds readers for good, whatever its transactional id has done since.
export function useWaiting(isWanted = () => true) {
  const { values, lists } = useStore();
  const isOver = (one) => one.verdict !== "hanging" && lists.lanes?.get(laneOf(one, lists.lanes))?.state.startsWith("Complete");
  return (values.held ? values.held.waiting : []).filter(isWanted).flatMap((each) => {
    const transactions = each.transactions.filter((one) => !isOver(one));
    return each.transactions.length && !transactions.length ? [] : [{ ...each, transactions }];
  });
}

// Whoever has held readers for longest first. What busy applications hold for a moment comes and goes behind it.
export const longestFirst = (waiting) => [...waiting].sort((a, b) => (a.since_ms ?? Infinity) - (b.since_ms ?? Infinity));

const MOST_LINES = 5;
const MOST_NAMES = 4;

// The same in a line for each application, however many partitions it holds.
export function Holders({ waiting }) {
  const found = new Map();
  for (const each of longestFirst(waiting)) {
    const [one] = each.transactions;
    const key = one ? `${one.verdict} ${one.transactional_id || one.producer_id}` : "";
    if (!found.has(key)) found.set(key, { one, since: each.since_ms, partitions: [] });
    found.get(key).partitions.push(each);
  }
  if (!found.size) return "";
  const lines = [...found.entries()].slice(0, MOST_LINES);
  return html`<ul class="held">${lines.map(([key, { one, since, partitions }]) => {
    const name = one ? one.transactional_id || `producer id ${one.producer_id}` : "";
    const more = partitions.length - MOST_NAMES;
    return html`<li key=${key}>${one
      ? html`<b>${one.transactional_id && one.started_ms ? html`<a href=${to("transaction", laneOf(one, store.lists.lanes))}>${name}</a>` : name}</b> <span class=${`state ${one.verdict}`}>${one.verdict}</span> holds the readers of`
      : "No transaction is open, and the replicas in sync don't have the last marker yet: it holds the readers of"}
      ${partitions.slice(0, MOST_NAMES).map((each, index) => html`${index ? ", " : " "}<a href=${to("log", each.topic, each.partition)}>${each.topic}-${each.partition}</a>`)}
      ${more > 0 ? ` and ${more} more` : ""}${since ? html` since ${time(since)} (${span(nowMs() - since)})` : ""}</li>`;
  })}
    ${found.size > MOST_LINES ? html`<li>and ${found.size - MOST_LINES} more, for less long</li>` : ""}</ul>`;
}

function Holder({ one, waiting, now }) {
  const hangs = one.verdict === "hanging";
  const abort = () => {
    const body = hangs
      ? { topic: waiting.topic, partition: waiting.partition, start_offset: one.start_offset }
      : { id: one.transactional_id };
    ask("abort", body, "Abort the transaction");
  };
  return html`
    <b>${one.transactional_id || `producer id ${one.producer_id}, whose transactional id isn't known`}</b>
    ${" "}<span class=${`state ${one.verdict}`}>${one.verdict}</span>
    ${one.state ? html` ${one.state}${one.started_ms ? html`, in a transaction since ${time(one.started_ms)} (${span(now - one.started_ms)})` : ""}` : ""}
    <br />producer id ${one.producer_id}, epoch ${one.producer_epoch}${one.coordinator !== null && one.coordinator >= 0 ? html`; coordinator: broker ${one.coordinator}` : ""};
      open from <a href=${`${to("log", waiting.topic, waiting.partition)}?at=${one.start_offset}`}>offset ${one.start_offset}</a> on with ${count(one.records, "record")}, the last of ${time(one.last_timestamp_ms)}
    <br />${hangs ? html`It hangs: ${one.why}. No broker will ever end it.`
      : one.verdict === "ending" ? "It is being ended: the outcome is certain, and its markers are on their way."
      : one.verdict === "unknown" ? html`It is unknown whether it hangs: ${one.why}.`
      : one.ends_ms ? html`If its application doesn't end it, the broker aborts it at ${time(one.ends_ms)}, ${one.ends_ms > now ? html`in ${span(one.ends_ms - now)}` : "which is now"}. To end it now, stop or restart the application whose transactional.id is ${one.transactional_id}, or abort it.`
      : "No timeout ends it: it is part of a two-phase commit."}
    ${one.end_with && store.about && store.about.live ? html`<br /><code>${one.end_with}</code>${" "}<button class="danger" onClick=${abort}>Abort…</button>` : ""}`;
}
