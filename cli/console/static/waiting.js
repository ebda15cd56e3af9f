// Who holds the readers of committed records, since when, and what ends it: as `barnabas transactions explain` says.

import { html, count, nowMs, number, span, store, time, to } from "/core.js";
import { ask } from "/asking.js";

export function Waiting({ waiting }) {
  const now = nowMs();
  const name = `${waiting.topic}-${waiting.partition}`;
  return html`<section class="waiting" aria-label=${`Readers of ${name} wait`}>
    <h3><a href=${to("log", waiting.topic, waiting.partition)}>${name}</a>: readers of committed records wait at offset
      ${" "}${number(waiting.last_stable_offset)} (of ${number(waiting.high_watermark)})${waiting.since_ms ? html`, since ${time(waiting.since_ms)} (${span(now - waiting.since_ms)})` : ""}</h3>
    <p>Behind it: ${waiting.exact ? "" : "at least "}${count(waiting.records_waiting, "record")} that they get as soon as nothing is open before them,
      ${" "}${number(waiting.records_open)} of open transactions, ${number(waiting.records_aborted)} of aborted ones.</p>
    ${waiting.transactions.length ? html`<ol>${waiting.transactions.map((one) => html`<li key=${one.start_offset}><${Holder} one=${one} waiting=${waiting} now=${now} /></li>`)}</ol>`
      : html`<p>No transaction is open there: one has ended, and the replicas in sync don't have its marker yet.</p>`}
  </section>`;
}

// The same in a line.
export function WaitingLine({ waiting }) {
  const [one, ...more] = waiting.transactions;
  const who = one ? one.transactional_id || `producer id ${one.producer_id}` : "";
  return html`Readers of <a href=${to("log", waiting.topic, waiting.partition)}>${waiting.topic}-${waiting.partition}</a> wait
    ${waiting.since_ms ? html` since ${time(waiting.since_ms)} (${span(nowMs() - waiting.since_ms)})` : ""}
    ${one ? html` for <b>${who}</b> <span class=${`state ${one.verdict}`}>${one.verdict}</span>` : " for the replicas in sync"}
    ${more.length ? ` and ${more.length} more` : ""}`;
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
      : one.verdict === "unknown" ? html`Whether it hangs can't be said: ${one.why}.`
      : one.ends_ms ? html`If its application doesn't end it, the broker aborts it at ${time(one.ends_ms)}, ${one.ends_ms > now ? html`in ${span(one.ends_ms - now)}` : "which is now"}. To end it now, stop or restart the application whose transactional.id is ${one.transactional_id}, or abort it.`
      : "No broker aborts it by itself: it is part of a two-phase commit."}
    ${one.end_with && store.about && store.about.live ? html`<br /><code>${one.end_with}</code>${" "}<button class="danger" onClick=${abort}>Abort…</button>` : ""}`;
}
