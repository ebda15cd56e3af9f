// Avro's binary encoding, read by a schema that somebody gives. Five bytes of a schema registry in front are passed over.
// Source: the specification of Apache Avro 1.12, "Binary Encoding".

const MOST_ITEMS = 10000;
const text = new TextDecoder("utf-8", { fatal: true });

export function avro(schema) {
  const names = new Map();
  const read = reader(schema, names, "");
  return {
    decode(bytes) {
      const starts = bytes.length > 5 && bytes[0] === 0 ? [5, 0] : [0];
      let failure;
      for (const start of starts) {
        try {
          const from = { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), at: start };
          const value = read(from);
          if (from.at !== bytes.length) throw new Error(`${bytes.length - from.at} bytes are left`);
          return value;
        } catch (error) {
          failure ||= error;
        }
      }
      throw failure;
    },
  };
}

function long(from) {
  let value = 0n;
  for (let shift = 0n; shift < 70n; shift += 7n) {
    if (from.at >= from.bytes.length) throw new Error("it ends too early");
    const byte = from.bytes[from.at++];
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) {
      const signed = BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
      const small = Number(signed);
      return Number.isSafeInteger(small) ? small : signed;
    }
  }
  throw new Error("a number that is too long");
}

function take(from, size) {
  if (!(size >= 0) || from.at + size > from.bytes.length) throw new Error("it ends too early");
  from.at += size;
  return from.bytes.subarray(from.at - size, from.at);
}

const hex = (bytes) => `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;

const PRIMITIVES = {
  null: () => null,
  boolean: (from) => take(from, 1)[0] === 1,
  int: long,
  long,
  float: (from) => (take(from, 4), from.view.getFloat32(from.at - 4, true)),
  double: (from) => (take(from, 8), from.view.getFloat64(from.at - 8, true)),
  bytes: (from) => hex(take(from, long(from))),
  string: (from) => text.decode(take(from, long(from))),
};

function blocks(from, item) {
  let total = 0;
  for (;;) {
    let count = long(from);
    if (!count) return;
    if (count < 0) {
      count = -count;
      long(from);
    }
    total += count;
    if (total > MOST_ITEMS) throw new Error(`more than ${MOST_ITEMS} items`);
    for (let index = 0; index < count; index += 1) item();
  }
}

function reader(schema, names, space) {
  if (Array.isArray(schema)) {
    const options = schema.map((each) => reader(each, names, space));
    return (from) => {
      const index = long(from);
      if (!options[index]) throw new Error(`the union has no branch ${index}`);
      return options[index](from);
    };
  }
  if (typeof schema === "string") {
    if (Object.hasOwn(PRIMITIVES, schema)) return PRIMITIVES[schema];
    return (from) => {
      const found = names.get(schema) || names.get(`${space}.${schema}`);
      if (!found) throw new Error(`nothing is named ${schema}`);
      return found(from);
    };
  }
  if (!schema || typeof schema !== "object") throw new Error("a schema is a name, an object or a list");
  const kind = schema.type;
  if (typeof kind === "object") return reader(kind, names, space);
  if (kind === "array") {
    const item = reader(schema.items, names, space);
    return (from) => {
      const found = [];
      blocks(from, () => found.push(item(from)));
      return found;
    };
  }
  if (kind === "map") {
    const item = reader(schema.values, names, space);
    return (from) => {
      const found = [];
      blocks(from, () => found.push([PRIMITIVES.string(from), item(from)]));
      return Object.fromEntries(found);
    };
  }
  if (kind === "record" || kind === "error" || kind === "enum" || kind === "fixed") {
    const inner = schema.namespace || (schema.name.includes(".") ? schema.name.replace(/\.[^.]*$/, "") : space);
    const name = schema.name.includes(".") ? schema.name : inner ? `${inner}.${schema.name}` : schema.name;
    let read;
    const lazily = (from) => read(from);
    names.set(name, lazily);
    if (!names.has(schema.name)) names.set(schema.name, lazily);
    if (kind === "enum") read = (from) => schema.symbols[long(from)] ?? "?";
    else if (kind === "fixed") read = (from) => hex(take(from, schema.size));
    else {
      const fields = schema.fields.map((field) => [field.name, reader(field.type, names, inner)]);
      read = (from) => Object.fromEntries(fields.map(([field, of]) => [field, of(from)]));
    }
    return lazily;
  }
  return reader(kind, names, space);
}
