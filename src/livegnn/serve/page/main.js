// The page of a service: asks GET /v1/stats once a second, follows GET /v1/changes, and shows what they say.

import { Refusal, getJson, keepToken, whole } from "./api.js";
import { byId, el, setText, show } from "./dom.js";
import * as format from "./format.js";
import { Flips, showMemory, showModels, showMost } from "./lists.js";
import { Neighbourhood } from "./neighbourhood.js";
import { Series, notice, showNumbers, showState } from "./numbers.js";
import { WhatIf } from "./whatif.js";

const OFTEN = 20, LOOKS = 8;  // versions, or answers, before a vertex is chosen
const EVERY_MS = 1000, AWAY_MS = [1000, 2000, 4000], REGISTRY_MS = 15000, PATIENCE_MS = 10000;

// What is looked at: shared by all parts of the page.
const view = {
  engine: null, type: null, output: null, vertex: null, vertexType: null, isProbability: false,
  graph: { ids: "integer", vertex_types: [], edge_types: [], feature_width: 0 },

  // The view as of another vertex type, whose rows may have another width.
  of(type) { return { ...view, isProbability: width(type) === 1 }; },

  // The id that a text means in this graph; null for one that means none.
  parsed(text) {
    const trimmed = String(text).trim();
    if (view.graph.ids === "text") return trimmed || null;
    if (!/^-?\d+$/.test(trimmed)) return trimmed || null;
    return whole(trimmed);
  },

  select(vertex, type = view.type) {
    const same = vertex === view.vertex && type === view.vertexType;
    Object.assign(view, { vertex, vertexType: type });
    if (!same) keepPlace();
    parts.near.load();
    parts.whatif.draw();
  },
};

const series = new Series();
let looks = 0, stats = null, registry = null, registryAt = -REGISTRY_MS, failures = 0, seenAt = null, parts = null;

const current = () => stats?.engines.find((one) => one.name === view.engine);

function width(type) {
  const widths = current()?.widths ?? {};
  return widths[type ?? ""] ?? Object.values(widths)[0];
}

// The types that an engine has rows for: those to choose from.
function typesOf(engine) { return view.graph.vertex_types.filter((name) => "" in (engine?.widths ?? {}) || name in (engine?.widths ?? {})); }

// ---- what is looked at, in the address, so that it can be sent to others, and Back goes back

function keepPlace() {
  const place = new URLSearchParams();
  if (view.engine && stats.engines.length > 1) place.set("engine", view.engine);
  if (view.vertexType) place.set("type", view.vertexType);
  if (view.vertex != null) place.set("vertex", view.vertex);
  const hash = `#${place}`;
  if (hash !== location.hash) history.pushState(null, "", hash);
}

function takePlace() {
  const place = new URLSearchParams(location.hash.slice(1));
  const wanted = place.get("engine");
  choose(stats.engines.some((one) => one.name === wanted) ? wanted : stats.engines[0]?.name ?? null, place.get("type"));
  if (place.has("vertex")) view.select(view.parsed(place.get("vertex")), view.type);
}

function choose(name, type = view.type) {
  const engine = stats.engines.find((one) => one.name === name);
  const types = typesOf(engine);
  const chosen = types.length ? (types.includes(type) ? type : types[0]) : null;
  if (name === view.engine && chosen === view.type) return;
  Object.assign(view, { engine: name, type: chosen, vertexType: chosen, output: engine?.outputs[0] ?? null });
  view.isProbability = width(chosen) === 1;
  if (name === null) return;
  parts.flips.restart();
  parts.near.load();
}

function showEngines() {
  const { engines } = stats, parent = byId("engines"), types = typesOf(current());
  show(parent, engines.length > 1);
  const only = engines.length === 1 ? engines[0] : null;
  show(byId("only"), only !== null);
  if (only && byId("only").textContent !== `${only.name} ${only.model}`) byId("only").replaceChildren(el("b", { text: only.name }), ` ${only.model}`);
  if (parent.children.length !== engines.length) {
    parent.replaceChildren(...engines.map((one) => el("label", {},
      el("input", { type: "radio", name: "engine", value: one.name, onchange: () => { choose(one.name); keepPlace(); draw(); } }), el("span", { text: one.name }))));
  }
  for (const input of parent.querySelectorAll("input")) input.checked = input.value === view.engine;
  show(byId("types"), types.length > 0);
  const select = byId("type");
  if ([...select.options].map((each) => each.value).join("\n") !== types.join("\n")) select.replaceChildren(...types.map((name) => el("option", { value: name, text: name })));
  if (view.type) select.value = view.type;
}

// ---- numbers

function draw() {
  const engine = current();
  showEngines();
  showNumbers(stats, engine, series);
  showMost(engine, view);
  showModels(stats, engine, registry, view);
  showMemory(stats.memory);
  setText("graph-size", `${format.count(stats.graph.vertices)} vertices, ${format.count(stats.graph.edges)} edges`);
  setText("foot", `${plural(stats.connections, "connection")} · ${plural(stats.subscribers, "subscriber")} · ${format.count(stats.missed)} missed`);
  showState(stats.ready ? "live" : "full", stats.ready ? "Live" : "Takes no updates");
  notice(stats.ready ? "" : "The service answers, and takes no updates now: its log does not answer, or it is about to end.");
}

const plural = (value, word) => `${format.count(value)} ${word}${value === 1 ? "" : "s"}`;

async function look() {
  const found = await getJson(`/v1/stats?after=${series.number}`, AbortSignal.timeout(PATIENCE_MS));
  const isFirst = stats === null;
  if (found.series.number < series.number) series.clear();  // the process is another one: what it has comes next time
  series.take(found.series);
  [stats, view.graph] = [found, found.graph];
  failures = 0;
  seenAt = Date.now();
  if (isFirst) takePlace();
  view.isProbability = width(view.type) === 1;
  if (performance.now() - registryAt > REGISTRY_MS) {
    registryAt = performance.now();
    registry = (await getJson("/v1/models")).registry;
  }
  draw();
  if (isFirst) parts.whatif.draw();
  if (view.vertex == null) chooseFirst();
  else parts.near.load(stats.version);
}

// Without a choice, one that changed much and often is shown, so that there is something to look at.
function chooseFirst() {
  const there = (current()?.most_changed ?? []).filter((one) => one.prediction != null);
  const first = there.sort((a, b) => b.versions - a.versions)[0];
  looks += 1;
  if (looks < LOOKS && !(first?.versions >= OFTEN)) return;
  if (!first) return;
  Object.assign(view, { vertex: first.vertex, vertexType: first.type });
  parts.near.load();
  parts.whatif.draw();
}

async function forever() {
  for (;;) {
    if (!document.hidden) {
      try {
        await look();
      } catch (error) {
        if (error instanceof Refusal && (error.status === 401 || error.status === 403)) await askToken(error);
        else away(error);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, failures ? AWAY_MS[Math.min(failures, AWAY_MS.length) - 1] : EVERY_MS));
  }
}

function away(error) {
  failures += 1;
  const since = seenAt ? `Last seen at ${format.timeOfDay(seenAt)}, version ${format.count(stats.version)}. ` : "";
  showState("away", "No answer");
  const what = error instanceof Refusal ? error.message : "The service does not answer.";
  notice(`${what} ${since}This page asks again by itself.`);
}

function askToken(error) {
  const dialog = byId("ask-token");
  showState("wait", "Wants a token");
  if (error.status === 403) { notice(error.message); if (error.kind !== "ScopeMissing") { failures += 1; return null; } }
  setText("token-why", sessionStorage.getItem("livegnn-token") ? "The token was not taken. Try another." : "Its operator has one. It stays in this tab, until you close it.");
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      keepToken(byId("token").value.trim());
      byId("token").value = "";
      if (view.engine) parts.flips.restart();
      resolve();
    }, { once: true });
  });
}

// ---- theme

const darkByDefault = matchMedia("(prefers-color-scheme: dark)");

function theme() { return document.documentElement.dataset.theme ?? (darkByDefault.matches ? "dark" : "light"); }

function showTheme() {
  setText("theme-text", theme() === "dark" ? "Light theme" : "Dark theme");
  byId("theme").title = byId("theme-text").textContent;
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
  try { localStorage.setItem("livegnn-theme", theme()); } catch { /* the choice lasts as long as the page */ }
  showTheme();
});
darkByDefault.addEventListener("change", showTheme);
showTheme();

parts = { flips: new Flips(view), near: new Neighbourhood(view), whatif: new WhatIf(view) };
byId("type").addEventListener("change", (event) => { choose(view.engine, event.target.value); keepPlace(); draw(); });
addEventListener("popstate", () => stats && takePlace());
forever();
