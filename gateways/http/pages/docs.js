// The page at /docs: every call of /openapi.json with a form to try it. Nothing is loaded from elsewhere, nothing is
// kept: a password lives in its field until the page is closed. Text is only ever set as text.

const MAX_SHOWN = 200_000;                     // characters of an answer; the rest is counted
const at = (id) => document.getElementById(id);

/** An element with properties and children; strings become text. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Text as it is, which keys can scroll where it is longer than its box. */
function pre(textContent = "") {
  return make("pre", { textContent, tabIndex: 0 });
}

const spec = await (await fetch("/openapi.json")).json();

/** The schema that a reference names, or the schema itself. */
const resolved = (schema) => schema.$ref ? spec.components.schemas[schema.$ref.split("/").pop()] : schema;

/** Text without the marks of its mark-up. */
const plain = (text) => (text ?? "").replaceAll("`", "").replaceAll(/([^\n])\n([^\n-])/g, "$1 $2");

/** A schema as a short type, as people write it down; `deep` levels of it are opened. */
function typeOf(schema, deep = 3) {
  if (schema.$ref && deep <= 0) return schema.$ref.split("/").pop();
  const one = resolved(schema);
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in one) return JSON.stringify(one.const);
  const several = one.anyOf ?? one.oneOf ?? (one.properties ? null : one.allOf);
  if (several) return several.map((part) => typeOf(part, deep - 1)).join(one.allOf ? " & " : " | ");
  const kinds = [one.type ?? "any"].flat();
  return kinds.map((kind) => {
    if (kind === "array") return `[${typeOf(one.items || {}, deep - 1)}]`;
    if (kind !== "object") return kind;
    if (!one.properties) return one.additionalProperties ? `{name: ${typeOf(one.additionalProperties, deep - 1)}}` : "{}";
    if (deep <= 0) return "{...}";
    const required = new Set(one.required ?? []);
    const fields = Object.entries(one.properties).map(([name, part]) =>
      `  ${name}${required.has(name) ? "" : "?"}: ${typeOf(part, deep - 1).replaceAll("\n", "\n  ")}`);
    return `{\n${fields.join(",\n")}\n}`;
  }).join(" | ");
}

/** An example of a body, from the document. */
function exampleOf(content) {
  if (content.example !== undefined) return content.example;
  const schema = resolved(content.schema);
  if (schema.examples) return schema.examples[0];
  if (schema.properties?.messages) return { messages: [exampleOf({ schema: schema.properties.messages.items })] };
  if (schema.properties?.receipt_handles) return { receipt_handles: ["HANDLE"] };
  return undefined;
}

// --- who asks

const login = at("login");
function showLogin() {
  for (const kind of ["basic", "bearer"])
    for (const part of login.querySelectorAll(`.${kind}`)) part.hidden = at("scheme").value !== kind;
}
login.addEventListener("change", showLogin);
login.addEventListener("submit", (event) => event.preventDefault());
showLogin();

function authorization() {
  if (at("scheme").value === "bearer") return { Authorization: `Bearer ${at("token").value}` };
  if (at("scheme").value !== "basic") return {};
  const bytes = new TextEncoder().encode(`${at("user").value}:${at("password").value}`);
  return { Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` };
}

// --- one call

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The same as a curl command; what proves who asks is left out. */
function curlOf(method, url, headers, body) {
  const words = ["curl", "-X", method, ...Object.entries(headers).filter(([name]) => name !== "Authorization")
    .flatMap(([name, value]) => ["-H", quoted(`${name}: ${value}`)])];
  if (headers.Authorization) words.push(headers.Authorization.startsWith("Basic") ? "-u USER" : "-H 'Authorization: Bearer TOKEN'");
  if (body) words.push("--data-binary", quoted(body));
  return [...words, quoted(url)].join(" ");
}

function fieldsOf(parameters) {
  const grid = make("div", { className: "fields" });
  const inputs = parameters.map((parameter) => {
    const schema = parameter.schema;
    const input = schema.enum
      ? make("select", {}, ...["", ...schema.enum].map((value) => make("option", { textContent: value })))
      : make("input", { placeholder: schema.default ?? "" });
    if (parameter.in === "path" && parameter.example !== undefined) input.value = parameter.example;
    input.ariaLabel = parameter.name;
    const name = parameter.name;
    const own = parameter.name.endsWith("NAME");                    // a family of headers: its name is to be filled in
    const naming = own ? make("input", { value: parameter.name, ariaLabel: "name of a header" }) : null;
    grid.append(naming ?? make("span", { className: parameter.required ? "name must" : "name", textContent: name }), input,
      make("span", { className: "help", textContent: plain(parameter.description) }));
    return { parameter, value: () => input.value, name: () => naming ? naming.value : name };
  });
  return { grid, inputs };
}

/** A path's value: its slashes stay where the call takes several levels. */
const pathValue = (parameter, value) => parameter["x-levels"]
  ? value.split("/").map(encodeURIComponent).join("/") : encodeURIComponent(value);

function requestOf(path, inputs, media, body) {
  const query = new URLSearchParams();
  const headers = { ...authorization() };
  let url = path;
  for (const { parameter, value, name } of inputs) {
    const text = value();
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, pathValue(parameter, text));
    else if (text === "") continue;
    else if (parameter.in === "query") query.set(parameter.name, text);
    else headers[name()] = text;
  }
  if (body) headers["Content-Type"] = media === "*/*" ? "text/plain" : media;
  return { url: query.size ? `${url}?${query}` : url, headers };
}

async function show(response, out, signal) {
  const lines = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  const body = pre();
  const status = make("b", { className: response.ok ? "good" : "bad", textContent: `${response.status} ${response.statusText}` });
  out.replaceChildren(make("div", {}, status), pre(lines), body);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (reader && !signal.aborted) {                                // a stream is shown as it comes
    const { done, value } = await reader.read();
    if (done) break;
    text = (text + value).slice(-MAX_SHOWN);
    body.textContent = text;
  }
  if (response.headers.get("Content-Type")?.includes("json") && text.length < MAX_SHOWN)
    body.textContent = JSON.stringify(JSON.parse(text), null, 2);
  if (!text) body.remove();
}

function formOf(method, path, operation) {
  const all = operation.parameters ?? [];
  const { grid, inputs: named } = fieldsOf(all.filter((one) => one.in !== "header"));
  const { grid: headerGrid, inputs: headed } = fieldsOf(all.filter((one) => one.in === "header"));
  const inputs = [...named, ...headed];
  const content = operation.requestBody?.content;
  const media = content && make("select", { ariaLabel: "content type" }, ...Object.keys(content).map((name) => make("option", { value: name, textContent: name === "*/*" ? "text/plain, or any other" : name })));
  const body = content && make("textarea", { ariaLabel: "body", spellcheck: false });
  const fill = () => {
    const example = exampleOf(content[media.value]);
    body.value = example === undefined ? "" : JSON.stringify(example, null, 2);
  };
  if (content) { media.addEventListener("change", fill); fill(); }
  const send = make("button", { className: "send", textContent: "Send" });
  const stop = make("button", { textContent: "Stop", hidden: true });
  const curl = pre(), out = make("div", { className: "answer" });
  let control = null;
  stop.addEventListener("click", () => control?.abort());
  send.addEventListener("click", async () => {
    const text = body?.value ?? "";
    const { url, headers } = requestOf(path, inputs, media?.value, text);
    curl.textContent = curlOf(method, location.origin + url, headers, text);
    control = new AbortController();
    stop.hidden = false; send.disabled = true;
    try {
      const answer = await fetch(url, { method, headers, body: text || undefined, signal: control.signal, credentials: "omit" });
      await show(answer, out, control.signal);
    } catch (error) {
      if (error.name !== "AbortError") out.replaceChildren(make("b", { className: "bad", textContent: String(error) }));
    } finally { stop.hidden = true; send.disabled = false; }
  });
  const parts = named.length ? [make("h3", { textContent: "Parameters" }), grid] : [];
  if (content) parts.push(make("h3", { textContent: "Body" }), media, make("div", { className: "row" }, body));
  if (headed.length) parts.push(make("details", {}, make("summary", { textContent: "Request headers" }), headerGrid));
  return [...parts, make("div", { className: "row" }, send, stop), make("div", {}, curl), out];
}

function answersOf(operation) {
  const rows = Object.entries(operation.responses).map(([status, answer]) => {
    const kinds = Object.entries(answer.content ?? {}).filter(([kind]) => kind !== "application/problem+json");
    const shapes = kinds.map(([kind, { schema }]) => pre(`${kind}\n${typeOf(schema)}`));
    return make("tr", {}, make("td", { textContent: status }), make("td", {}, plain(answer.description), ...shapes));
  });
  return make("table", {}, make("tbody", {}, ...rows));
}

function callOf(method, path, operation) {
  const call = make("details", { className: "call", id: operation.operationId },
    make("summary", {}, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }),
      make("span", { className: "path", textContent: path }), make("span", { className: "said", textContent: operation.summary })));
  call.addEventListener("toggle", () => {                             // made when somebody looks
    if (!call.open || call.querySelector(":scope > div")) return;
    call.append(make("div", {}, make("p", { textContent: plain(operation.description) }),
      ...formOf(method.toUpperCase(), path, operation), make("h3", { textContent: "Answers" }), answersOf(operation)));
  });
  return call;
}

// --- all of them

document.title = `${spec.info.title}: the HTTP interface`;
at("title").textContent = `${spec.info.title}: HTTP, version ${spec.info.version}`;
at("intro").textContent = plain(spec.info.description);
const entries = Object.entries(spec.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ method, path, operation })));
const links = [];
for (const tag of spec.tags) {
  const mine = entries.filter(({ operation }) => operation.tags.includes(tag.name));
  if (!mine.length) continue;
  at("calls").append(make("h2", { textContent: tag.name[0].toUpperCase() + tag.name.slice(1) }), make("p", { textContent: tag.description }),
    ...mine.map(({ method, path, operation }) => callOf(method, path, operation)));
  at("index").append(make("b", { textContent: tag.name }));
  for (const { method, path, operation } of mine) {
    const link = make("a", { href: `#${operation.operationId}` }, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), ` ${path}`);
    links.push({ link, text: `${method} ${path} ${operation.summary}`.toLowerCase() });
    at("index").append(link);
  }
}
at("find").addEventListener("input", () => {
  const wanted = at("find").value.toLowerCase();
  for (const { link, text } of links) link.hidden = !text.includes(wanted);
});
function openNamed() {
  const named = location.hash && at(location.hash.slice(1));
  if (named) { named.open = true; named.scrollIntoView(); }
}
addEventListener("hashchange", openNamed);
openNamed();
document.body.dataset.ready = "true";
