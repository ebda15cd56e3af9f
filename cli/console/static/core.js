// What all views share: the library, questions to the server, the stream of what changes, words for values.

export {
  html, render, useReducer, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback,
} from "/vendor/htm-preact-standalone-3.1.1.js";
import { useEffect, useReducer, useRef, useState } from "/vendor/htm-preact-standalone-3.1.1.js";

const MOST_DOCUMENTS = 3000;

// --- Questions

export async function api(name, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") query.append(key, each);
    }
  }
  return answered(await fetch(`/api/${name}?${query}`));
}

export async function post(name, body) {
  const headers = { "content-type": "application/json", "x-barnabas": "1" };
  return answered(await fetch(`/api/${name}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answered(response) {
  const text = await response.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(text.trim() || `the console answers ${response.status}`);
  }
  if (!response.ok) throw new Error(value.error || `the console answers ${response.status}`);
  return value;
}

// --- What changes, as the server tells it

export const store = { about: null, values: {}, lists: {}, skew: 0, isConnected: false };
const watchers = new Set();
let source = null;
let wantedNow = "";
let isQueued = false;

// A page that takes long to draw is drawn more seldom, so that most of the time is the browser's for other things: what
// it shows may be a broker under full load on the same machine.
const REST = 4;
const LONGEST_REST_MS = 1000;
let restsUntil = 0;

function drawing(draw) {
  const began = performance.now();
  draw();
  requestAnimationFrame(() => setTimeout(() => {
    const now = performance.now();
    restsUntil = now + Math.min(LONGEST_REST_MS, REST * Math.max(0, now - began - 1000 / 60));
  }));
}

function changed() {
  if (isQueued) return;
  isQueued = true;
  setTimeout(() => {
    isQueued = false;
    drawing(() => {
      for (const watcher of watchers) watcher();
    });
  }, Math.max(0, restsUntil - performance.now()));
}

const AGAIN_MS = 2000;
let again = 0;

export function want(sections) {
  const wanted = [...new Set(sections)].sort().join(",");
  if (wanted === wantedNow && source) return;
  wantedNow = wanted;
  listen();
}

// A page that nobody sees isn't told anything: a browser has six connections to a host, for all of its pages together.
document.addEventListener("visibilitychange", () => listen());

function listen() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
  if (document.hidden || !wantedNow) return;
  source = new EventSource(`/api/live?want=${encodeURIComponent(wantedNow)}`);
  source.addEventListener("now", (event) => {
    store.skew = Number(event.data) - Date.now();
    if (!store.isConnected) {
      store.isConnected = true;
      changed();
    }
  });
  source.addEventListener("value", (event) => {
    const { name, value } = JSON.parse(event.data);
    store.values[name] = value;
    changed();
  });
  source.addEventListener("list", (event) => {
    const { name, documents } = JSON.parse(event.data);
    const held = new Map(store.lists[name]);
    for (const each of documents) {
      held.delete(each.key);
      held.set(each.key, each);
    }
    for (const key of held.keys()) {
      if (held.size <= MOST_DOCUMENTS) break;
      held.delete(key);
    }
    store.lists[name] = held;
    changed();
  });
  source.onerror = ({ target }) => {
    store.isConnected = false;
    changed();
    // the browser tries again where nobody answered, and not where it was refused: too many pages may be open
    if (target === source && target.readyState === EventSource.CLOSED) again = setTimeout(listen, AGAIN_MS);
  };
}

export function useStore() {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    watchers.add(again);
    again();
    return () => watchers.delete(again);
  }, []);
  return store;
}

store.changed = changed;
export const nowMs = () => Date.now() + store.skew;

// Renders again every so many ms, while `isOn`.
export function useTick(everyMs, isOn = true) {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(() => document.hidden || performance.now() < restsUntil || drawing(again), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, isOn]);
}

// What the server answers, asked anew when `key` changes, and every so many ms if that is said. Who asks several times
// is told whether it is still wanted.
export function useAsked(ask, key, everyMs = 0) {
  const [state, setState] = useState({ value: null, error: "", key });
  const number = useRef(0);
  const waitsFor = useRef(0); // the number of the question that isn't answered yet, or 0
  const run = async () => {
    const mine = ++number.current;
    waitsFor.current = mine;
    try {
      const value = await ask(() => mine === number.current);
      if (mine === number.current) setState({ value, error: "", key });
    } catch (error) {
      if (mine === number.current) setState((before) => ({ ...before, error: error.message, key }));
    }
    if (waitsFor.current === mine) waitsFor.current = 0;
  };
  useEffect(() => {
    run();
    if (!everyMs) return () => void (number.current += 1);
    // A slow answer is waited for: the next question would have it thrown away, each time anew.
    const timer = setInterval(() => document.hidden || waitsFor.current || run(), everyMs);
    return () => {
      number.current += 1;
      clearInterval(timer);
    };
  }, [key]);
  return { ...state, value: state.key === key ? state.value : null, again: run };
}

// --- Words

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export const count = (value, thing) => `${number(value)} ${thing}${value === 1 ? "" : "s"}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

export function time(ms, withDate = false) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${withDate ? day : ""}${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const to = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

export function bytesOf(field) {
  return Uint8Array.from(atob(field.base64), (letter) => letter.charCodeAt(0));
}
