// The page of routes: renders GET /openapi.json. Every route has its parameters, its body, its answer and a line of curl.

import { Refusal, getJson, keepToken } from "./api.js";
import { byId, el, setText, show } from "./dom.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const DEPTH_MAX = 3;  // of bodies in bodies
let schemas = {}, wantsToken = false;

const resolved = (schema) => (schema?.$ref ? { title: schema.$ref.split("/").at(-1), ...schemas[schema.$ref.split("/").at(-1)] } : schema ?? {});
const choices = (schema) => (schema.oneOf ?? schema.anyOf ?? []).map(resolved).filter((each) => each.type !== "null");

// ---- what a value may be, in words

function kind(given) {
  const schema = resolved(given), several = choices(schema);
  if (several.length) return [...new Set(several.map(kind))].join(" or ");
  if (schema.enum) return schema.enum.filter((each) => each !== null).map((each) => JSON.stringify(each)).join(" or ");
  if (schema.prefixItems) return `[${schema.prefixItems.map(kind).join(", ")}]`;
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.type === "object" && schema.title) return schema.title;
  if (schema.type === "object") return typeof schema.additionalProperties === "object" ? `object of ${kind(schema.additionalProperties)}` : "object";
  if (Array.isArray(schema.type)) return schema.type.filter((each) => each !== "null").join(" or ");
  return schema.format === "binary" ? "bytes" : schema.type ?? "any";
}

const BOUNDS = [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"], ["minItems", "entries ≥"], ["maxItems", "entries ≤"], ["maxLength", "characters ≤"]];

function notes(given) {
  const schema = resolved(given);
  const found = BOUNDS.filter(([name]) => schema[name] != null).map(([name, sign]) => `${sign} ${schema[name]}`);
  if (schema.default != null) found.push(`default ${JSON.stringify(schema.default)}`);
  return [given.description ?? (given.$ref ? "" : schema.description), found.join(", ")].filter(Boolean).join("; ");
}

// The objects that a value is made of, each with its fields.
function objects(given) {
  const schema = resolved(given);
  if (schema.properties) return [schema];
  const inner = [...choices(schema), ...(schema.prefixItems ?? [])];
  if (schema.items) inner.push(schema.items);
  if (typeof schema.additionalProperties === "object") inner.push(schema.additionalProperties);
  return inner.flatMap(objects);
}

// ---- curl

const PLAIN = { string: "NAME", integer: 0, number: 0, boolean: true, object: {} };

function example(given) {
  const schema = resolved(given);
  const said = schema.examples?.[0] ?? schema.example ?? schema.default ?? schema.enum?.[0];
  if (said != null) return said;
  const several = choices(schema);
  if (several.length) return example(several[0]);
  if (schema.prefixItems) return schema.prefixItems.map(example);
  if (schema.type === "array") return [example(schema.items)];
  if (!schema.properties) return PLAIN[schema.type] ?? null;
  return Object.fromEntries((schema.required ?? []).map((name) => [name, example(schema.properties[name])]));
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(path, method, operation) {
  const parameters = (operation.parameters ?? []).filter((each) => each.required);
  const written = path.replaceAll(/{([^}]+)}/g, (_, name) => example(parameters.find((each) => each.name === name)?.schema ?? { type: "string" }));
  const query = parameters.filter((each) => each.in === "query").map((each) => `${each.name}=${encodeURIComponent([example(each.schema)].flat()[0])}`);
  const content = operation.requestBody?.content ?? {};
  const parts = [`curl "$URL${written}${query.length ? `?${query.join("&")}` : ""}"`];
  if (content["application/json"]) parts.push(`--json ${quoted(JSON.stringify(example(content["application/json"].schema)))}`);
  else if (method !== "get") parts.push(`-X ${method.toUpperCase()}`);
  if ("text/event-stream" in (operation.responses?.["200"]?.content ?? {})) parts.push("--no-buffer");
  if (wantsToken) parts.push('-H "authorization: Bearer $TOKEN"');
  return parts.join(" ");
}

// ---- elements

function table(heads, rows) {
  return el("div", { class: "fields-table", tabindex: "0", role: "region", "aria-label": heads[0] }, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))), el("tbody", {}, ...rows)));
}

function row(name, needed, type, about) {
  return el("tr", {}, el("td", {}, el("code", { text: name }), needed ? el("span", { class: "needed", text: "required" }) : null),
    el("td", { class: "of", text: type }), el("td", { text: about }));
}

function fields(schema, isBody, depth = 0) {
  const entries = Object.entries(schema.properties ?? {});
  const rows = entries.map(([name, each]) => row(name, isBody && schema.required?.includes(name), kind(each), notes(each)));
  const made = el("div", {}, table(["Field", "Type", "About"], rows));
  const inner = new Map(entries.flatMap(([, each]) => objects(each)).map((each) => [each.title, each]));
  if (depth < DEPTH_MAX) {
    for (const [title, each] of inner) made.append(el("details", { class: "nested" }, el("summary", { text: title ?? "object" }), el("div", {}, fields(each, isBody, depth + 1))));
  }
  return made;
}

function part(title, small, ...content) {
  return el("section", {}, el("h3", { text: title }, small ? el("small", { text: small }) : null), ...content);
}

// Paragraphs of a docstring, whose lines are not those of the page.
function prose(text, more = "") {
  return text.split(/\n\s*\n/).map((each) => each.trim()).filter(Boolean).map((each) => el("p", { class: `prose ${more}`, text: each.replaceAll(/\s*\n\s*/g, " ") }));
}

function bodyPart(title, content) {
  const forms = Object.keys(content ?? {});
  if (!forms.length) return null;
  const schema = content["application/json"]?.schema;
  const found = schema ? objects(schema) : [];
  const about = found.map((each) => each.description).filter(Boolean).join("\n\n");
  return part(title, forms.join(", "), ...prose(about, "quiet-text"), ...found.map((each) => fields(each, title === "Body")));
}

function route(path, method, operation) {
  const parameters = (operation.parameters ?? []).map((each) =>
    row(each.name, each.required, kind(each.schema), [each.in === "query" ? "" : `in the ${each.in}`, notes({ ...each.schema, description: each.description ?? each.schema.description })].filter(Boolean).join("; ")));
  const summary = el("summary", {}, el("span", { class: `method method-${method}`, text: method.toUpperCase() }), el("span", { class: "path", text: path }), el("span", { class: "said", text: operation.summary }));
  const made = el("details", { class: "route", id: `${method}${path}` }, summary);
  const names = [...(operation.parameters ?? []).map((each) => each.name), ...objects(operation.requestBody?.content?.["application/json"]?.schema).flatMap((each) => Object.keys(each.properties))];
  made.dataset.words = [method, path, operation.summary, operation.description, ...names].join(" ").toLowerCase();
  made.append(el("div", { class: "route-body" },
    ...prose(operation.description ?? ""),
    parameters.length ? part("Parameters", "", table(["Parameter", "Type", "About"], parameters)) : null,
    bodyPart("Body", operation.requestBody?.content),
    part("curl", "", el("pre", { class: "curl" }, el("code", { text: curl(path, method, operation) }))),
    bodyPart("Answer", operation.responses?.["200"]?.content)));
  return made;
}

// ---- the page

function find() {
  const words = byId("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...document.querySelectorAll(".route")];
  for (const each of all) show(each, words.every((word) => each.dataset.words.includes(word)));
  const shown = all.filter((each) => !each.hidden).length;
  setText("count", shown === all.length ? `${shown} routes` : `${shown} of ${all.length} routes`);
}

function openPlace() {
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!wanted?.classList.contains("route")) return;
  wanted.open = true;
  wanted.scrollIntoView();
}

async function load() {
  try {
    const found = await getJson("/openapi.json");
    schemas = found.components?.schemas ?? {};
    setText("version", found.info.version);
    const operations = Object.entries(found.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method]).map((method) => [path, method, item[method]]));
    byId("main").replaceChildren(...operations.sort((a, b) => a[0].localeCompare(b[0])).map((each) => route(...each)));
    show(byId("notice"), false);
    show(byId("token-form"), false);
    find();
    openPlace();
  } catch (error) {
    const asks = error instanceof Refusal && error.status === 401;
    wantsToken ||= asks;
    show(byId("token-form"), asks);
    setText("notice", error instanceof Refusal ? error.message : "The service does not answer. Load this page again when it does.");
    show(byId("notice"), true);
  }
}

byId("find").addEventListener("submit", (event) => event.preventDefault());
byId("words").addEventListener("input", find);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  byId("token").value = "";
  load();
});
addEventListener("hashchange", openPlace);
wantsToken = Boolean(sessionStorage.getItem("livegnn-token"));
load();
