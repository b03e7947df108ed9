// Requests to the service that this page came from. A token is kept in this tab's session, and nowhere else.

const KEPT = "livegnn-token";
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

export class Refusal extends Error {
  constructor(status, error) {
    super(error?.message ?? `The service answered ${status}.`);
    this.status = status;
    this.kind = error?.kind ?? "";
  }
}

let token = sessionStorage.getItem(KEPT) ?? "";

export function keepToken(text) {
  token = text;
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
}

function headers(more = {}) {
  return token ? { authorization: `Bearer ${token}`, ...more } : more;
}

async function answered(path, options) {
  const response = await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  if (response.ok) return response;
  const document = await response.json().catch(() => ({}));
  throw new Refusal(response.status, document.error);
}

// Ids beyond 2^53 are BigInt, so that none is rounded to that of another vertex.
const exact = (text) => JSON.parse(text, (key, value, at) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(at?.source ?? "") ? BigInt(at.source) : value);
export const whole = (text) => Number.isSafeInteger(Number(text)) ? Number(text) : BigInt(text.trim());
const written = (body) => JSON.stringify(body, (key, value) =>
  typeof value !== "bigint" ? value : JSON.rawJSON ? JSON.rawJSON(String(value)) : Number(value));

export async function getJson(path, signal) {
  return exact(await (await answered(path, { headers: headers(), signal })).text());
}

export async function postJson(path, body) {
  const response = await answered(path, {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: written(body),
  });
  return exact(await response.text());
}

export const query = (pairs) =>
  new URLSearchParams(Object.entries(pairs).filter(([, value]) => value != null && value !== "")).toString();

// Follows a stream of server-sent events until stop() is called. It reconnects where it was by Last-Event-ID.
// event(kind, data) gets each one; state("open" | "away" | "refused", error) says how it is.
export function follow(path, event, state) {
  const ending = new AbortController();
  let last = "", failures = 0;

  async function once() {
    const more = last ? { "last-event-id": last } : {};
    const response = await answered(path, { headers: headers({ accept: "text/event-stream", ...more }), signal: ending.signal });
    state("open");
    failures = 0;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
        last = fields.id ?? last;
        event(fields.event, exact(fields.data));
      }
    }
  }

  async function forever() {
    while (!ending.signal.aborted) {
      try {
        await once();
      } catch (error) {
        if (ending.signal.aborted) return;
        const isFinal = error instanceof Refusal && error.status < 500 && error.status !== 429;
        state(isFinal ? "refused" : "away", error);
        if (isFinal) return;
      }
      const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      failures += 1;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  forever();
  return () => ending.abort();
}
