// A record's bytes as text, JSON, hexadecimal or Avro. Whatever they are, they become text of the page and nothing else.

import { bytesOf } from "/core.js";
import { avro } from "/avro.js";

export const FORMS = ["auto", "text", "JSON", "hex", "Avro"];
const decoder = new TextDecoder("utf-8", { fatal: true });

export const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");

function textOf(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

const isPrintable = (text) => !/[\u0000-\u0008\u000e-\u001f]/.test(text);

// JSON on lines of their own, with all that it says as it is written: numbers have more digits than JavaScript keeps.
function indented(text) {
  const tokens = text.match(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  const lines = [];
  let depth = 0;
  const line = () => lines.push("\n", " ".repeat(depth));
  tokens.forEach((token, index) => {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (tokens[index - 1] !== "{" && tokens[index - 1] !== "[") line();
    }
    lines.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") {
      depth += 1;
      if (tokens[index + 1] !== "}" && tokens[index + 1] !== "]") line();
    } else if (token === ",") line();
  });
  return lines.join("");
}

// `schema` is one that `avro` has read; null where none is given.
export function shown(field, form, schema = null) {
  if (field === null || field === undefined) return "null";
  const bytes = bytesOf(field);
  const more = field.size > bytes.length ? ` … (${field.size.toLocaleString("en")} bytes)` : "";
  const text = textOf(bytes);
  if (form === "Avro" || (form === "auto" && schema)) {
    if (!schema) return "(no schema given)";
    try {
      return JSON.stringify(schema.decode(bytes), (_, value) => (typeof value === "bigint" ? value.toString() : value), 1);
    } catch (error) {
      return form === "Avro" ? `(not of this schema: ${error.message}) ${hexOf(bytes)}` : text ?? hexOf(bytes);
    }
  }
  if (form === "hex" || text === null) return hexOf(bytes) + more;
  if (form === "text") return text + more;
  if (/^\s*[[{]/.test(text) || form === "JSON") {
    try {
      JSON.parse(text);
      return indented(text);
    } catch {
      return text + more;
    }
  }
  return (isPrintable(text) ? text : hexOf(bytes)) + more;
}

export function schemaOf(text) {
  if (!text.trim()) return { schema: null, error: "" };
  try {
    return { schema: avro(JSON.parse(text)), error: "" };
  } catch (error) {
    return { schema: null, error: error.message };
  }
}
