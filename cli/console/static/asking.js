// Whatever changes something is asked for twice: the server says what it would do, and a person says yes.

import { html, useEffect, useReducer, useRef, post } from "/core.js";

let current = null;
let again = () => {};

// `done` is called with what the server says it did.
export async function ask(verb, body, label, done = () => {}) {
  current = { verb, body, label, done, question: "", seen: null, table: null, error: "", isBusy: true, told: "" };
  again();
  try {
    const found = await post(verb, body);
    Object.assign(current, { question: found.question, seen: found.seen, table: found.table, isBusy: false });
  } catch (error) {
    Object.assign(current, { error: error.message, isBusy: false });
  }
  again();
}

async function execute() {
  const mine = current;
  mine.isBusy = true;
  again();
  try {
    const found = await post(mine.verb, { ...mine.body, seen: mine.seen, execute: true });
    mine.told = found.done;
    mine.done(found.done);
  } catch (error) {
    mine.error = error.message;
  }
  mine.isBusy = false;
  again();
}

export function Questions() {
  const [, render] = useReducer((count) => count + 1, 0);
  const dialog = useRef(null);
  again = render;
  const it = current;
  const shown = useRef(null);
  // An effect runs behind the paint, when the next question may have been asked already: it goes by what was drawn.
  useEffect(() => {
    shown.current = it;
    if (it && !dialog.current.open) {
      dialog.current.showModal();
      dialog.current.querySelector(".leave").focus();
    }
    if (!it && dialog.current.open) dialog.current.close();
  });
  const close = () => {
    current = null;
    render();
  };
  // The browser tells of a dialog's end later, too: it isn't that of a question that is yet to be shown.
  const closed = () => {
    if (!dialog.current.open && current === shown.current) close();
  };
  return html`<dialog ref=${dialog} aria-labelledby="question" onClose=${closed}>
    ${it && html`
      <h2 id="question">${it.label}</h2>
      ${it.error ? html`<p class="problem" role="alert">${it.error}</p>` : ""}
      ${it.told ? html`<p role="status" class="told">${it.told}</p>` : html`<p>${it.question || (it.error ? "" : "…")}</p>`}
      ${it.table && !it.told ? html`<div class="scrolls" tabindex="0" role="region" aria-label="The offsets to set"><table>
        <thead><tr>${Object.keys(it.table[0] || {}).map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
        <tbody>${it.table.map((row) => html`<tr>${Object.values(row).map((value) => html`<td>${value}</td>`)}</tr>`)}</tbody>
      </table></div>` : ""}
      <p class="buttons">
        ${it.question && !it.told && !it.error
          ? html`<button key="do" class="danger" disabled=${it.isBusy} onClick=${execute}>${it.label}</button>` : ""}
        <button key="leave" class="leave" onClick=${close}>${it.told || it.error ? "Close" : "Cancel"}</button>
      </p>`}
  </dialog>`;
}
