// Brokers, what happened to them, their settings; users and what they may do.

import { html, useState, useStore, useAsked, api, number, time, to } from "/core.js";
import { Settings } from "/topics.js";

export function Cluster() {
  const { values, lists } = useStore();
  const it = values.brokers;
  const [node, setNode] = useState(null);
  const events = [...(lists.events || new Map()).values()].slice(-200).reverse();
  if (!it) return html`<h1>Cluster</h1><p>asking…</p>`;
  const facts = [["cluster id", it.cluster_id], ["controller", it.controller], ["topics", number(it.topics)],
    ["partitions", number(it.partitions)], ["without a leader", number(it.without_leader)], ["lacking replicas", number(it.under_replicated)]];
  return html`
    <h1>Cluster</h1>
    <dl class="facts">${facts.filter(([, is]) => is !== null && is !== undefined && is !== "–").map(([what, is]) => html`<div key=${what}><dt>${what}</dt><dd>${is}</dd></div>`)}</dl>
    <h2>Brokers</h2>
    <div class="scrolls" tabindex="0" role="region" aria-label="Brokers"><table class="left" id="brokers">
      <thead><tr>${["Broker", "Address", "Rack", "Leads", ""].map((each) => html`<th scope="col">${each || html`<span class="unseen">Settings</span>`}</th>`)}</tr></thead>
      <tbody>${it.brokers.map((each) => html`<tr key=${each.node}><th scope="row">${each.node}</th><td>${each.address}</td><td>${each.rack || "–"}</td>
        <td>${number(each.leads)}</td><td><button onClick=${() => setNode(each.node)}>Settings of broker ${each.node}</button></td></tr>`)}</tbody></table></div>
    ${node === null ? "" : html`<${BrokerSettings} key=${node} node=${node} />`}
    <h2>Events since the console began to watch</h2>
    ${events.length ? html`<ol class="events" id="events">${events.map((each) => html`<li key=${each.key} class=${each.kind}><time>${time(each.at)}</time> ${each.text}
      ${each.names.length > 1 ? html`<details><summary>which</summary>${each.names.join(", ")}</details>` : ""}</li>`)}</ol>` : html`<p>Nothing yet. Elections, changes of groups, and brokers and topics that come and go will appear here.</p>`}`;
}

function BrokerSettings({ node }) {
  const { value, error } = useAsked(() => api("broker", { node }), node);
  const own = value ? value.settings.filter((each) => each.why !== "Kafka's default") : [];
  return html`<h2>Settings of broker ${node}</h2>${error ? html`<p class="problem" role="alert">${error}</p>` : ""}${value ? html`<${Settings} settings=${own} />` : ""}`;
}

export function Rights() {
  const { value, error } = useAsked(() => api("rights"), "rights", 5000);
  if (!value) return html`<h1>Users and rights</h1>${error ? html`<p class="problem" role="alert">${error}</p>` : html`<p>asking…</p>`}`;
  return html`
    <h1>Users and rights</h1>
    <h2>Users with SCRAM credentials</h2>
    ${value.users_error ? html`<p>They can't be listed: ${value.users_error}</p>` : ""}
    ${value.users ? Object.keys(value.users).length ? html`<ul id="users">${Object.entries(value.users).map(([user, by]) => html`<li key=${user}><b>${user}</b> ${by.join("; ")}</li>`)}</ul>` : html`<p>None.</p>` : ""}
    <h2>Access control lists</h2>
    ${value.acls_error ? html`<p>They can't be listed: ${value.acls_error}</p>` : ""}
    ${value.acls === null && !value.acls_error ? html`<p>This cluster has no authorizer: everybody may do everything.</p>` : ""}
    ${value.acls ? value.acls.length ? html`<div class="scrolls" tabindex="0" role="region" aria-label="ACLs"><table class="left" id="acls">
      <thead><tr>${["Principal", "Permission", "Operation", "Resource", "Name", "Pattern", "Host"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
      <tbody>${value.acls.map((each) => html`<tr><th scope="row">${each.principal}</th><td class=${each.permission === "deny" ? "wrong" : ""}>${each.permission}</td>
        <td>${each.operation}</td><td>${each.resource}</td><td>${each.name}</td><td>${each.pattern}</td><td>${each.host}</td></tr>`)}</tbody></table></div>` : html`<p>None.</p>` : ""}`;
}
