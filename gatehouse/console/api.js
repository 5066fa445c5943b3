// Asking the hub. Credentials stand here, in memory, and nowhere else: closing or loading the page forgets them.
//
// Streams are read with fetch and not with EventSource, so that they carry the same header as any other call, no ticket
// stands in an address, and a refusal can be read.

const RETRY_MS = [300, 600, 1200, 2000, 3000];
const MAX_EVENT_CHARACTERS = 32 << 20;

let authorization = null;  // decision 76

/** Names this page to the hub, so that its connections can be told from others in a list of them. */
export const PAGE_ID = [...crypto.getRandomValues(new Uint8Array(6))].map((one) => one.toString(16).padStart(2, "0")).join("");

/** A refusal by the hub, or that it did not answer at all (`status` 0). */
class Problem extends Error {
  constructor(status, code, detail) {
    super(detail || code || `status ${status}`);
    this.status = status;
    this.code = code;
  }
}

/** From now on ask as this user. An empty user: the secret is an API key or a token. */
export function useCredentials(user, secret) {
  const basic = () => "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${secret}`)));
  authorization = user ? basic() : `Bearer ${secret}`;
}

export function forgetCredentials() {
  authorization = null;
}

export function hasCredentials() {
  return authorization !== null;
}

/** The JSON answer of one call; `body` is sent as JSON. Throws Problem. */
export async function ask(method, path, { body, query, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await send(method, path, query, headers, signal, body === undefined ? undefined : JSON.stringify(body));
  const text = await answer.text();
  return text ? JSON.parse(text) : {};
}

export const get = (path, query, signal) => ask("GET", path, { query, signal });

async function send(method, path, query, headers, signal, body) {
  const search = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== null
    && value !== undefined));
  const target = search.size ? `${path}?${search}` : path;
  headers["X-Console"] = PAGE_ID;
  if (authorization) headers.Authorization = authorization;
  let answer;
  try {
    answer = await fetch(target, { method, headers, body, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The hub does not answer.");
  }
  if (!answer.ok && answer.status !== 207) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer) {
  try {
    const document = await answer.json();
    return new Problem(answer.status, document.code, document.detail || document.title);
  } catch {
    return new Problem(answer.status, "", `The hub answered ${answer.status}.`);
  }
}

/** One path of encoded levels: `path("v1", "topics", "a b")`. */
export function path(...levels) {
  return "/" + levels.map(encodeURIComponent).join("/");
}

/** Read Server-Sent Events until `stop()` of what this returns; goes on behind the last event after a break.
 *
 *  onEvents(events)   a list of {event, data, id}, data as text: everything that has come in one piece
 *  onState(state, problem)   "live", "waiting" (it tries again by itself) or "refused" (it does not)
 *  silenceMs                 a stream that sends nothing for so long is taken for dead */
export function follow(target, query, { onEvents, onState, silenceMs }) {
  const abort = new AbortController();
  let lastId = "";
  const run = async () => {
    for (let failures = 0; !abort.signal.aborted;) {
      const attempt = new AbortController();
      const end = () => attempt.abort();
      abort.signal.addEventListener("abort", end);
      try {
        const headers = { Accept: "text/event-stream" };
        if (lastId) headers["Last-Event-ID"] = lastId;
        const answer = await send("GET", target, query, headers, attempt.signal);
        failures = 0;
        onState("live", null);
        await readEvents(answer.body, attempt, silenceMs, (events) => {
          lastId = events.findLast((one) => one.id)?.id ?? lastId;
          const told = events.filter((one) => one.data !== null);
          if (told.length) onEvents(told);
        });
        onState("waiting", null);
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, "unreachable", "The hub does not answer.");
        const forgotten = problem.code === "invalid_cursor" && lastId;      // another hub stands there now
        if (forgotten) lastId = "";
        else if (problem.status >= 400 && problem.status < 500 && problem.status !== 408 && problem.status !== 429) {
          onState("refused", problem);
          return;
        }
        onState("waiting", problem);
      } finally {
        abort.signal.removeEventListener("abort", end);
        attempt.abort();
      }
      await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)], abort.signal);
      failures += 1;
    }
  };
  run();
  return { stop: () => abort.abort() };
}

async function readEvents(body, attempt, silenceMs, onEvents) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = silenceMs ? setTimeout(() => attempt.abort(), silenceMs) : null;
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    if (rest.length > MAX_EVENT_CHARACTERS) throw new Problem(0, "too_large", "An event is too large to be shown.");
    onEvents(blocks.map(readEvent));
  }
}

/** What has no data is no event, but its id is remembered all the same. */
function readEvent(block) {
  const event = { event: "message", data: null, id: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    const field = line.slice(0, colon);
    if (field === "data") event.data = event.data === null ? value : `${event.data}\n${value}`;
    else if (field === "event" || field === "id") event[field] = value;
  }
  return event;
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
