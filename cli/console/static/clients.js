// Clients, as they tell of themselves (KIP-714): what each has pushed to a broker with a listener for metrics.

import { html, useState, useAsked, api, count, number, span, to } from "/core.js";

const ms = (value) => (value === null ? "–" : `${number(Math.round(value * 100) / 100)} ms`);

// The number of this name: the sum of those that it has, by topic and partition maybe; null where the client tells none.
function told(client, name) {
  const found = client.metrics.filter(([each, , value]) => each === name && value !== null);
  return found.length ? found.reduce((sum, [, , value]) => sum + value, 0) : null;
}

const largest = (client, name) =>
  client.metrics.reduce((most, [each, , value]) => (each === name && value !== null && (most === null || value > most) ? value : most), null);

function commits(client) {
  const mean = largest(client, "consumer.coordinator.commit.latency.avg");
  const most = largest(client, "consumer.coordinator.commit.latency.max");
  if (mean === null && most === null) return "–";
  return `${mean === null ? "" : ms(mean)}${most === null ? "" : `${mean === null ? "" : ", "}at most ${ms(most)}`}`;
}

function ends(client) {
  const committing = told(client, "producer.txn.commit.time.ns.total");
  const aborting = told(client, "producer.txn.abort.time.ns.total");
  const all = (committing || 0) + (aborting || 0);
  const share = all ? `${number(Math.round((1000 * (aborting || 0)) / all) / 10)} %` : "–";
  return [committing === null ? "–" : span(committing / 1e6), aborting === null ? "–" : `${span(aborting / 1e6)} (${share})`];
}

function lag(client) {
  const sum = told(client, "consumer.fetch.manager.records.lag");
  if (sum !== null) return number(sum);
  const most = largest(client, "consumer.fetch.manager.records.lag.max");
  return most === null ? "–" : `at most ${number(most)} in a partition`;
}

const MEANS = [
  ["Client", "by its client.id"], ["Software", "the library, and its version"],
  ["Request", "the producer's average time for a Produce"], ["Sent", "records of the producer"],
  ["Errors", "records of the producer that failed"],
  ["Committing", "the producer's total time in commitTransaction"],
  ["Aborting", "the producer's total time in abortTransaction, and its share of both"],
  ["Commits of offsets", "the consumer's average and longest time for them"],
  ["Lag", "records that the consumer hasn't read, in all of its partitions"], ["Pushed", "how long ago"],
];

export function Clients() {
  const [filter, setFilter] = useState("");
  const { value, error } = useAsked(() => api("clients"), "clients", 2000);
  const rows = value ? value.clients.filter((each) => each.client_id.toLowerCase().includes(filter.toLowerCase())) : [];
  return html`
    <h1>Clients</h1>
    ${error ? html`<p class="problem" role="alert">${error}</p>` : ""}
    ${value ? value.problems.map((each) => html`<p class="problem" role="alert" key=${each}>${each}</p>`) : ""}
    ${!value ? (error ? "" : html`<p>asking…</p>`) : !value.listeners.length ? html`<p id="no-listener">Clients' metrics are served by a broker's listener for
      metrics: start the broker with <code>barnabas.metrics.listener=HOST:PORT</code>, and the console with <code>--metrics HOST:PORT</code>.
      <code>barnabas --console</code> knows its own broker's.</p>` : html`
    <p class="tools"><label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <span role="status">${count(rows.length, "client")}${value.count > value.clients.length ? ` of ${number(value.count)}: the most recently seen` : ""}</span></p>
    ${value.clients.length ? html`<div class="scrolls tall" tabindex="0" role="region" aria-label="Clients"><table class="left" id="clients">
      <thead><tr>${MEANS.map(([each, means]) => html`<th scope="col" title=${means}>${each}</th>`)}</tr></thead>
      <tbody>${rows.map((each) => html`<tr key=${`${each.listener} ${each.client_instance_id}`}>
        <th scope="row"><a href=${to("client", each.client_instance_id, each.listener)}>${each.client_id || "(no name)"}</a></th>
        <td>${each.client_software_name} ${each.client_software_version}</td>
        <td>${ms(told(each, "producer.request.latency.avg"))}</td><td>${number(told(each, "producer.record.send.total"))}</td>
        <td class=${told(each, "producer.record.error.total") ? "wrong" : ""}>${number(told(each, "producer.record.error.total"))}</td>
        ${ends(each).map((text) => html`<td>${text}</td>`)}<td>${commits(each)}</td><td>${lag(each)}</td>
        <td>${each.pushed_ms_ago === null ? "not yet" : span(each.pushed_ms_ago)}</td></tr>`)}</tbody></table></div>
    <p class="legend">– means that a client doesn't report this: librdkafka has fewer metrics than Java's clients.</p>`
      : html`<p>No client that is connected has anything to push. Clients push what a subscription asks for:
        ${" "}<code>kafka-client-metrics.sh --alter --name all --metrics '*' --interval 10000</code></p>`}`}`;
}

export function Client({ parts: [id, listener] }) {
  const { value, error } = useAsked(() => api("client", { client: id, listener }), `${id} ${listener}`, 2000);
  const facts = value ? [["software", `${value.client_software_name} ${value.client_software_version}`],
    ["from", `${value.client_source_address}:${value.client_source_port}`], ["instance id", value.client_instance_id],
    ["pushes to", value.listener], ["every", span(value.interval_ms)],
    ["last pushed", value.pushed_ms_ago === null ? "not yet" : `${span(value.pushed_ms_ago)} ago`]] : [];
  return html`
    <h1>${value ? value.client_id || "(no name)" : "A client"}</h1>
    ${error ? html`<p class="problem" role="alert">${error}</p>` : ""}
    ${value ? html`<dl class="facts">${facts.map(([what, is]) => html`<div key=${what}><dt>${what}</dt><dd>${is}</dd></div>`)}</dl>
      <h2>All metrics that it has pushed</h2>
      <div class="scrolls tall" tabindex="0" role="region" aria-label="Metrics"><table class="left" id="metrics">
        <thead><tr>${["Metric", "Of", "Value"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
        <tbody>${value.metrics.map(([name, of, is], index) => html`<tr key=${index}><th scope="row">${name}</th>
          <td>${Object.entries(of).map(([key, text]) => `${key}=${text}`).join(", ")}</td><td>${number(is)}</td></tr>`)}</tbody></table></div>`
      : error ? "" : html`<p>asking…</p>`}`;
}
