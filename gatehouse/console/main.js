// The console's frame: which page is open, who is logged in, and whether the hub is there.

import { ask, follow, forgetCredentials, hasCredentials, useCredentials } from "./api.js";
import { circuits } from "./circuits.js";
import { connections } from "./connections.js";
import { deadLetters } from "./dead_letters.js";
import { duration, fill, h, visible } from "./dom.js";
import { group, groups } from "./groups.js";
import { links } from "./links.js";
import { logIn } from "./login.js";
import { overview } from "./overview.js";
import { Page } from "./page.js";
import { publish } from "./publish.js";
import { queue, queues } from "./queues.js";
import { retained } from "./retained.js";
import { scheduled } from "./scheduled.js";
import { Series } from "./series.js";
import { sessions } from "./sessions.js";
import { topic, topics } from "./topics.js";
import { trace } from "./trace.js";
import { transactions } from "./transactions.js";
import { users } from "./users.js";

const PAGES = [
  ["", "Overview", overview],
  ["topics", "Topics", topics, topic],
  ["groups", "Groups", groups, group],
  ["queues", "Queues", queues, queue],
  ["connections", "Connections", connections],
  ["sessions", "Sessions", sessions],
  ["publish", "Publish", publish],
  ["scheduled", "Scheduled", scheduled],
  ["dead-letters", "Dead letters", deadLetters, deadLetters],
  ["retained", "Retained", retained, retained],
  ["transactions", "Transactions", transactions, transactions],
  ["trace", "Trace", trace, trace],
  ["links", "Links", links],
  ["circuits", "Circuits", circuits],
  ["users", "Users", users],
];
const FOR_ADMINISTRATORS = ["connections", "sessions", "links", "circuits", "users"];
const SILENCE_MS = 10_000;         // the hub speaks every second: one that does not is gone
const AWAY_MS = 10_000;            // a page nobody has looked at for so long stops listening

const $ = (id) => document.getElementById(id);

/** What every page may read: the newest status, what went through the doors, and who to tell of a new one. */
const hub = { status: null, series: new Series(), onStatus: null };
let open = null;
let stream = null;
let awayTimer = null;

// --- pages ----------------------------------------------------------------------------------------------------------

function places() {
  return location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
}

function show(focus) {
  const [first, ...rest] = places();
  const [path, title, list, one] = PAGES.find((page) => page[0] === first) ?? PAGES[0];
  open?.stop();
  hub.onStatus = null;
  open = new Page(onProblem);
  const view = rest[0] && one ? one(open, hub, ...rest) : list(open, hub);
  fill($("view"), open.notice, view);
  drawNavigation(path);
  document.title = `${rest[0] && one ? `${visible(rest[0])} · ` : ""}${title} · ${hub.status?.hub ?? "Gatehouse"}`;
  if (focus) {
    $("view").querySelector("h1")?.focus();
    scrollTo(0, 0);
  }
}

function drawNavigation(current) {
  const shown = PAGES.filter(([path]) => hub.status.you.administrator || !FOR_ADMINISTRATORS.includes(path));
  fill($("nav"), shown.map(([path, title]) => h("a", { href: `#/${path}`, data: { page: path },
    "aria-current": path === current ? "page" : null }, title)), h("a", { href: "/docs" }, "HTTP calls"));
}

// --- the hub --------------------------------------------------------------------------------------------------------

function listen() {
  stream?.stop();
  stream = follow("/v1/status/events", {}, { onEvents, onState, silenceMs: SILENCE_MS });
}

function onEvents(events) {
  for (const { event, data } of events) {
    if (event === "history") hub.series.load(JSON.parse(data));
    else if (event === "status") {
      const before = hub.status;
      hub.status = JSON.parse(data);
      hub.series.push(hub.status);
      if (!open) begin();
      else if (before.you.administrator !== hub.status.you.administrator) show(false);
      drawFrame();
      hub.onStatus?.(hub.status);
    }
  }
}

function onState(state, problem) {
  if (state === "refused") {
    onProblem(problem);
    return;
  }
  const link = $("link-state");
  link.className = state;
  link.textContent = state === "live" ? "live" : "no connection, trying again";
  fill($("alert"), state === "waiting" && open ? h("p.problem", {},
    `${problem?.status ? visible(problem.message) : "The hub does not answer."} What is shown may be old. `
    + "The console goes on by itself once the hub is back.") : null);
  if (state === "waiting" && !open) fill($("view"), h("p.empty", {}, "The hub does not answer. Trying again…"));
}

/** Whether this was about the whole console, so that the page need not say it. */
function onProblem(problem) {
  if (problem.status === 401) {
    askWhoItIs(hasCredentials() ? "You are not logged in any more: " + visible(problem.message) : "", null);
    return true;
  }
  return problem.status === 0 && problem.code === "unreachable";
}

function drawFrame() {
  const { hub: name, you, now, started } = hub.status;
  $("hub-name").textContent = visible(name);
  $("hub-name").title = `up ${duration(now - started)}`;
  const user = you.tenant === "/" ? you.user : `${you.user} in ${you.tenant}`;
  $("user").textContent = visible(you.anonymous ? "not logged in" : user);
  $("log-in").hidden = !you.anonymous;
  $("log-out").hidden = you.anonymous;
}

// --- who ------------------------------------------------------------------------------------------------------------

function begin() {
  $("nav").hidden = false;
  show(false);
}

function end() {
  stream?.stop();
  open?.stop();
  open = stream = hub.status = hub.onStatus = null;
  hub.series = new Series();
  $("nav").hidden = true;
  $("user").textContent = $("link-state").textContent = "";
  $("log-in").hidden = $("log-out").hidden = true;
  fill($("alert"));
}

/** `back` is what to do for who would rather not say; null where the hub lets nobody in without. */
function askWhoItIs(reason, back) {
  end();
  forgetCredentials();
  fill($("view"), logIn(reason, async (user, secret) => {
    useCredentials(user, secret);
    try {
      await ask("GET", "/v1/status");
    } catch (error) {
      forgetCredentials();
      throw error;
    }
    fill($("view"));
    listen();
  }, back));
  $("view").querySelector("input").focus();
}

function logOut() {
  end();
  forgetCredentials();
  fill($("view"), h("p.empty", {}, "Logged out."));
  listen();
}

function onVisibility() {
  clearTimeout(awayTimer);
  if (document.hidden) {
    awayTimer = setTimeout(() => { stream?.stop(); stream = null; }, AWAY_MS);
  } else if (!stream && open) listen();
}

$("log-in").addEventListener("click", () => askWhoItIs("", () => { fill($("view")); listen(); }));
$("log-out").addEventListener("click", logOut);
addEventListener("hashchange", () => { if (hub.status) show(true); });
document.addEventListener("visibilitychange", onVisibility);
$("nav").hidden = true;
listen();
