// What became of each batch, now or as it was at a time: a batch is there when its time has come, a transaction is over
// when its marker is there. Nothing here touches the page.

const ENDS = { commit: "committed", abort: "aborted" };

// How many of the batches are there at the time; all of them where it is null.
export function countAt(batches, at) {
  if (at === null) return batches.length;
  let count = batches.length;
  while (count > 0 && batches[count - 1].time > at) count -= 1;
  return count;
}

// The fate of each batch that is there, the transactions that are open, the end and the last stable offset.
export function ribbonAt(batches, at, offsets) {
  const count = countAt(batches, at);
  const markers = new Map();
  const fates = new Array(count);
  for (let index = count - 1; index >= 0; index -= 1) {
    const { kind, producer, fate } = batches[index];
    if (ENDS[kind]) markers.set(producer, ENDS[kind]);
    fates[index] = fate ? markers.get(producer) || (at === null ? fate : "open") : "";
  }
  const open = new Map();
  for (let index = 0; index < count; index += 1) {
    const batch = batches[index];
    if (ENDS[batch.kind]) open.delete(batch.producer);
    else if (fates[index] === "open") {
      const one = open.get(batch.producer) || { producer: batch.producer, epoch: batch.epoch, from: batch.base, since: batch.time, records: 0 };
      one.records += batch.count;
      open.set(batch.producer, one);
    }
  }
  const held = [...open.values()].sort((a, b) => a.from - b.from);
  const isAll = at === null || count === batches.length;
  const end = isAll && offsets.end !== null ? offsets.end : count ? batches[count - 1].last + 1 : offsets.from;
  const stable = at === null ? offsets.stable : held.length ? held[0].from : end;
  return { count, fates, held, end, stable };
}

// The times at which something happened, each once, in their order.
export function moments(batches, transactions = []) {
  const times = new Set();
  for (const batch of batches) if (batch.time >= 0) times.add(batch.time);
  for (const one of transactions) for (const step of one.steps) times.add(step.at);
  return [...times].sort((a, b) => a - b);
}

// The transaction, of those that are known, that a batch is of.
export function transactionOf(batch, transactions) {
  if (batch.producer < 0 || !(batch.fate || batch.kind === "commit" || batch.kind === "abort")) return null;
  let found = null;
  for (const one of transactions) {
    if (one.producer !== batch.producer || one.started > batch.time + 1000) continue;
    if (!found || one.started > found.started) found = one;
  }
  return found;
}

// The state of a transaction at a time; null before it began.
export function stateAt(transaction, at) {
  let found = null;
  for (const step of transaction.steps) if (at === null || step.at <= at) found = step;
  return found;
}
