// Users, the rules of their rights, limits, and asking what somebody may do.

import { ask, path } from "./api.js";
import { count, fill, h, moment, name, number, visible } from "./dom.js";
import { listing } from "./listing.js";
import { confirmed, field, heading } from "./page.js";

const OPERATIONS = ["publish", "consume", "create", "alter", "administer", "transact", "relay", "trace", "connect", "describe"];
const KINDS = ["address", "topic", "group", "hub", "client"];

export function users(page) {
  const people = userList(page);
  const rules = ruleList(page);
  const limits = limitList(page);
  return h("div", {}, heading("Users"), people.element, newUser(page, people), h("h2", {}, "Rules"), rules.element,
    newRule(page, rules), h("h2", {}, "Limits"), limits.element, newLimit(page, limits), h("h2", {}, "What may somebody do?"), question(page));
}

// --- users ----------------------------------------------------------------------------------------------------------

function userList(page) {
  const list = listing(page, {
    path: () => "/v1/users", field: "users", key: (row) => row.name, caption: "Users",
    empty: "There are no users yet. While that is so, and no rule, whoever may come in may do everything.",
    columns: [
      { title: "User", cell: (row) => name(row.name) },
      { title: "Groups", cell: (row) => [...row.groups, ...row.groups_from_file].map((one) => visible(one)).join(", ") || "–" },
      { title: "Tenants", cell: (row) => [...new Set([row.tenant, ...row.tenants])].map((one) => visible(one)).join(", ") },
      { title: "Password", cell: (row) => row.has_password ? "yes" : "none" },
      { title: "API keys", number: true, cell: (row) => number(row.keys.length) },
      { title: "Quota", cell: (row) => row.messages_per_s ? `${count(row.messages_per_s, "message")} a second` : "–" },
      { title: "Made", cell: (row) => moment(row.created) },
      { title: "Expires", cell: (row) => row.expires === null ? "never" : moment(row.expires) },
      { title: "Actions", hidden: true, signature: (row) => String(row.disabled), cell: (row) => h("button", {
        type: "button", "aria-label": `${row.disabled ? "Enable" : "Disable"} ${visible(row.name)}`,
        onclick: () => able(row) }, row.disabled ? "Enable" : "Disable") },
    ],
  });
  async function able(row) {
    const sure = row.disabled || await confirmed(h("span", {}, "Disable ", name(row.name), "? Its connections end."), "Disable");
    if (!sure) return;
    await page.attempt(() => ask("PUT", path("v1", "users", row.name), { body: { disabled: !row.disabled } }));
    list.again();
  }
  return list;
}

function newUser(page, list) {
  const user = h("input", { required: true, autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
  const password = h("input", { required: true, type: "password", autocomplete: "new-password", minlength: 8 });
  const groups = h("input", { autocomplete: "off", spellcheck: "false" });
  const submit = async () => {
    const body = { password: password.value, groups: words(groups.value) };
    await ask("PUT", path("v1", "users", user.value.trim()), { body });
    list.again();
  };
  return form(page, "New user", "Make", submit, h("div.columns", {}, field("Name", user), field("Password", password),
    field("Groups", groups, "admins may do everything")));
}

// --- rules ----------------------------------------------------------------------------------------------------------

function ruleList(page) {
  const list = listing(page, {
    path: () => "/v1/acl", field: "rules", key: (row) => row.id, caption: "Rules", empty: "There are no rules yet.",
    columns: [
      { title: "Who", cell: (row) => name(row.who) },
      { title: "Effect", cell: (row) => row.effect },
      { title: "May", cell: (row) => row.operations.join(", ") },
      { title: "On", cell: (row) => h("span", {}, `${row.kind} `, name(row.pattern)) },
      { title: "Tenant", cell: (row) => visible(row.tenant) },
      { title: "Actions", hidden: true, signature: (row) => String(row.from_file), cell: (row) => row.from_file
        ? h("span.soft", {}, "from the configuration")
        : h("button", { type: "button", "aria-label": `Remove the rule of ${visible(row.who)}`, onclick: () => remove(row) }, "Remove") },
    ],
  });
  async function remove(row) {
    const question = h("span", {}, "Remove the rule of ", name(row.who), "? What it allowed ends at once.");
    if (!await confirmed(question, "Remove it")) return;
    await page.attempt(() => ask("DELETE", path("v1", "acl", row.id)));
    list.again();
  }
  return list;
}

function newRule(page, list) {
  const effect = choice(["allow", "deny"]);
  const who = h("input", { required: true, autocomplete: "off", spellcheck: "false", placeholder: "group:operators" });
  const operations = h("input", { required: true, autocomplete: "off", spellcheck: "false", value: "publish, consume" });
  const kind = choice(KINDS);
  const pattern = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "plant/#" });
  const submit = async () => {
    const body = { effect: effect.value, who: who.value.trim(), operations: words(operations.value), kind: kind.value };
    if (kind.value !== "hub") body.pattern = pattern.value.trim();
    await ask("POST", "/v1/acl", { body });
    list.again();
  };
  return form(page, "New rule", "Add", submit, h("div.columns", {}, field("Effect", effect),
    field("Who", who, "user:NAME, group:NAME, everyone"), field("Operations", operations, OPERATIONS.join(", ")),
    field("Kind", kind), field("Pattern", pattern)));
}

// --- limits ---------------------------------------------------------------------------------------------------------

function limitList(page) {
  const rate = (value) => value === undefined ? "–" : number(value);
  const list = listing(page, {
    path: () => "/v1/limits", field: "limits", key: (row) => row.id, caption: "Limits", empty: "There are no limits yet.",
    columns: [
      { title: "Of", cell: (row) => name(row.of) },
      { title: "Direction", cell: (row) => row.direction },
      { title: "Messages a second", number: true, cell: (row) => rate(row.messages_per_s) },
      { title: "Bytes a second", number: true, cell: (row) => rate(row.bytes_per_s) },
      { title: "Operations a second", number: true, cell: (row) => rate(row.operations_per_s) },
      { title: "Does", cell: (row) => row.observe ? "observes" : "limits" },
      { title: "Tenant", cell: (row) => visible(row.tenant) },
      { title: "Actions", hidden: true, signature: (row) => String(row.from_file), cell: (row) => row.from_file
        ? h("span.soft", {}, "from the configuration")
        : h("button", { type: "button", "aria-label": `Delete the limit of ${visible(row.of)}`, onclick: () => remove(row) }, "Delete") },
    ],
  });
  async function remove(row) {
    const sure = await confirmed(h("span", {}, "Delete the limit of ", name(row.of), "? Who waits for it waits no longer."), "Delete it");
    if (!sure) return;
    await page.attempt(() => ask("DELETE", path("v1", "limits", row.id)));
    list.again();
  }
  return list;
}

function newLimit(page, list) {
  const of = h("input", { required: true, autocomplete: "off", spellcheck: "false", placeholder: "user:ann" });
  const rates = ["messages", "bytes", "operations"].map((what) => [what, h("input", { type: "number", min: "0", step: "any" })]);
  const submit = async () => {
    const body = { of: of.value.trim() };
    for (const [what, input] of rates) if (input.value !== "") body[`${what}_per_s`] = Number(input.value);
    await ask("POST", "/v1/limits", { body });
    list.again();
  };
  return form(page, "New limit", "Add", submit, h("div.columns", {}, field("Of", of, "hub, user:NAME, topic:NAME, address:FILTER, ..."),
    rates.map(([what, input]) => field(`${what[0].toUpperCase()}${what.slice(1)} a second`, input))));
}

// --- a question -----------------------------------------------------------------------------------------------------

function question(page) {
  const user = h("input", { required: true, autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
  const operation = choice(OPERATIONS);
  const kind = choice(KINDS);
  const on = h("input", { autocomplete: "off", spellcheck: "false" });
  const answer = h("p", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    fill(answer);
    await page.attempt(async () => {
      const body = { user: user.value.trim(), operation: operation.value, kind: kind.value, on: on.value };
      const told = await ask("POST", "/v1/acl/test", { body });
      fill(answer, h(told.allowed ? "strong.good" : "strong.bad", {}, told.allowed ? "Yes" : "No"), `: ${visible(told.why)}`);
    });
  };
  return h("form.card", { onsubmit: submit }, h("div.columns", {}, field("User", user), field("Operation", operation),
    field("Kind", kind), field("On", on)), h("div.buttons", {}, h("button", { type: "submit" }, "Ask")), answer);
}

// --- pieces ---------------------------------------------------------------------------------------------------------

function choice(values) {
  return h("select", {}, values.map((value) => h("option", { value }, value)));
}

function words(text) {
  return text.split(",").map((one) => one.trim()).filter(Boolean);
}

/** A form behind its title; emptied when what it asks for is done. */
function form(page, title, act, submit, ...fields) {
  const element = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    if (await page.attempt(submit)) element.reset();
  } }, ...fields, h("div.buttons", {}, h("button", { type: "submit" }, act)));
  return h("details.card", {}, h("summary", {}, title), element);
}
