// Groups of all kinds: members, what each has left to read, and what happened to them.

import { html, useEffect, useState, useStore, useAsked, useRef, api, number, time, to } from "/core.js";
import { ask } from "/asking.js";
import { Chart } from "/chart.js";
import { Holders, useWaiting } from "/waiting.js";

export function Groups() {
  const { values, lists } = useStore();
  const [filter, setFilter] = useState("");
  const rows = (values.groups || []).filter((row) => row[0].toLowerCase().includes(filter.toLowerCase()));
  const events = [...(lists.events || new Map()).values()].filter((each) => each.kind === "group").slice(-50).reverse();
  return html`
    <h1>Groups</h1>
    <p class="tools"><label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <span role="status">${values.groups ? `${number(rows.length)} groups` : "asking…"}</span></p>
    <div class="scrolls" tabindex="0" role="region" aria-label="Groups"><table class="left" id="groups">
      <thead><tr>${["Group", "Kind", "Protocol", "State", "Coordinator"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, 2000).map((row) => html`<tr key=${row[0]}><th scope="row"><a href=${to("group", row[0])}>${row[0]}</a></th>
        <td>${row[1]}</td><td>${row[2]}</td><td>${row[3]}</td><td>${row[4]}</td></tr>`)}</tbody></table></div>
    ${events.length ? html`<h2>Events since you opened this page</h2>
      <ol class="events">${events.map((each) => html`<li key=${each.key}><time>${time(each.at)}</time> ${each.text}</li>`)}</ol>` : ""}`;
}

const LAG = [
  ["committed", "Committed"], ["last_stable", "Last stable"], ["end", "End"], ["lag", "Lag"], ["waiting", "Waiting"],
  ["open", "Open"], ["all", "All"], ["offsets", "Offsets"],
];
const MEANS = {
  lag: "records that a read_committed consumer can read now",
  waiting: "records that it can read once the open transactions before them have ended",
  open: "records of these open transactions",
  all: "records that a read_uncommitted consumer can read",
  offsets: "the difference of offsets, which most tools call the lag",
};

export function Group({ parts: [name] }) {
  const { value, error, again } = useAsked(() => api("group", { group: name }), name, 1500);
  const history = useAsked(() => api("group-history", { group: name }), name, 5000);
  const waiting = useWaiting((each) => value && value.partitions.some((row) => row.topic === each.topic && row.partition === each.partition));
  const [where, setWhere] = useState("earliest");
  const [topic, setTopic] = useState("");
  const points = useRef([]);
  useEffect(() => {
    if (!value) return;
    const sum = value.partitions.reduce((total, each) => total + (each.lag || 0), 0);
    const held = value.partitions.reduce((total, each) => total + (each.waiting || 0) + (each.open || 0), 0);
    points.current = [...points.current.slice(-600), [Date.now() / 1000, sum, held]];
  }, [value]);
  const reset = (event) => {
    event.preventDefault();
    ask("reset", { group: name, topics: topic ? [topic] : [], to: where }, "Set the offsets", again);
  };
  const known = value ? [["kind", value.kind], ["state", value.state], ["assignor", value.assignor], ["epoch", value.epoch],
    ["assignment epoch", value.assignment_epoch], ["topology epoch", value.topology_epoch], ["coordinator", value.coordinator]] : [];
  return html`
    <h1>${name}</h1>
    ${error ? html`<p class="problem" role="alert">${error}</p>` : ""}
    ${value ? html`
      <dl class="facts">${known.filter(([, is]) => is !== null && is !== "" && is !== undefined && is !== -1).map(([what, is]) => html`<div key=${what}><dt>${what}</dt><dd>${is}</dd></div>`)}</dl>
      <h2>Lag</h2>
      <${Holders} waiting=${waiting} />
      <div class="scrolls" tabindex="0" role="region" aria-label="Lag"><table id="lag">
        <thead><tr><th scope="col">Partition</th>${LAG.map(([key, label]) => html`<th scope="col" class="right" title=${MEANS[key]}>${label}</th>`)}<th scope="col">Member</th></tr></thead>
        <tbody>${value.partitions.map((row) => html`<tr key=${`${row.topic}-${row.partition}`}>
          <th scope="row"><a href=${to("log", row.topic, row.partition)}>${row.topic}-${row.partition}</a>${row.note ? html`<br /><small>${row.note}</small>` : ""}</th>
          ${LAG.map(([key]) => html`<td class=${key === "open" && row.open ? "open" : ""}>${!row.exact && "lag waiting open all".includes(key) ? "≥ " : ""}${number(row[key])}</td>`)}
          <td>${row.member || "–"}</td></tr>`)}</tbody></table></div>
      <p class="legend">${Object.entries(MEANS).map(([key, means]) => html`<span><b>${key}</b> ${means}. </span>`)}</p>
      <${Chart} points=${points.current} names=${["lag", "held by open transactions"]} label="Lag over time" />
      <h2>Members</h2>
      ${value.members.length ? html`<div class="scrolls" tabindex="0" role="region" aria-label="Members"><table class="left">
        <thead><tr>${["Member", "Instance", "Client", "Host", "Epoch", "Has"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
        <tbody>${value.members.map((each) => html`<tr key=${each.member}><th scope="row" class="value">${each.member}</th><td>${each.instance || "–"}</td>
          <td>${each.client}</td><td>${each.host}</td><td>${each.epoch === null ? "–" : each.epoch}</td>
          <td>${(each.tasks && each.tasks.length ? each.tasks : each.partitions.map((one) => `${one.topic}-${one.partition}`)).join(", ") || "–"}</td></tr>`)}</tbody></table></div>`
        : html`<p>None.</p>`}
      ${Object.keys(value.subtopologies || {}).length ? html`<h2>Subtopologies</h2><ul>${Object.entries(value.subtopologies).map(([id, topics]) => html`<li>${id}: ${topics.join(", ")}</li>`)}</ul>` : ""}
      <h2>Set offsets</h2>
      <form class="tools" onSubmit=${reset}>
        <label>To <input value=${where} onInput=${(event) => setWhere(event.target.value)} list="wheres" /></label>
        <datalist id="wheres"><option value="earliest">earliest</option><option value="latest">latest</option><option value="shift -10">shift -10</option><option value="offset 0">offset 0</option></datalist>
        <label>Topic <input value=${topic} placeholder="all" onInput=${(event) => setTopic(event.target.value)} /></label>
        <button>Preview the offsets…</button>
      </form>` : error ? "" : html`<p>asking…</p>`}
    <h2>History</h2>
    ${history.error ? html`<p class="problem">${history.error}</p>` : ""}
    ${history.value && history.value.length ? html`<p>The coordinator's records in __consumer_offsets, newest first, without committed offsets.</p>
      <ol class="events" id="history">${history.value.slice(-60).reverse().map((each) => html`<li key=${each.place.join("-")}>
        <time>${time(each.at, true)}</time> <b>${told(each)}</b>
        <details><summary>${each.type} <a href=${`${to("log", "__consumer_offsets", each.place[0])}?at=${each.place[1]}`}>offset ${each.place[1]}</a></summary><pre>${JSON.stringify(each.says, null, 1)}</pre></details></li>`)}</ol>`
      : html`<p>${history.value ? "There are no records about it." : "asking…"}</p>`}`;
}

// A record of a group, in a few words.
function told({ type, says }) {
  if (!says || says.deleted) return "gone";
  if (type === "GroupMetadata") {
    const members = says.members || [];
    const who = members.map((each) => each.client_id || each.member_id).join(", ");
    return members.length ? `generation ${says.generation}: ${members.length} members (${who})` : `generation ${says.generation}: empty`;
  }
  if (says.member_id && type.endsWith("MemberMetadata")) return `member ${says.client_id || says.member_id} joined`;
  if (type.includes("TargetAssignment")) return says.member_id ? `target: ${assigned(says)}` : `assignment epoch ${says.assignment_epoch}`;
  if (type.includes("CurrentMember") || type.includes("CurrentAssignment")) return `has, at epoch ${says.member_epoch}: ${assigned(says)}`;
  if (says.epoch !== undefined) return `epoch ${says.epoch}`;
  return type;
}

function assigned(says) {
  const of = says.topic_partitions || says.assigned_partitions || [];
  const count = of.reduce((sum, each) => sum + (each.partitions || []).length, 0);
  return `${count} partition${count === 1 ? "" : "s"}`;
}
