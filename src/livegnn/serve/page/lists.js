// Lists of what happened: flips as they come, the most-changed vertices, models and their shadows, memory by part.

import { follow, query } from "./api.js";
import { stacked } from "./charts.js";
import { byId, el, listed, setText, show } from "./dom.js";
import * as format from "./format.js";

const KEPT = 200, SHOWN_MS = 250, TONES = 8, MOST = 7, DIFFERING = 3;

// A prediction as a coloured badge: the class as a number too, so that colour alone says nothing.
// absent: what a missing one is called.
export function badge(value, view, absent = "none") {
  if (value == null) return el("span", { class: "badge badge-none", text: absent });
  return el("span", { class: `badge ${tone(value, view)}`, text: format.prediction(value, view.isProbability) });
}

export function tone(value, view) {
  if (value == null) return "tone-none";
  if (!view.isProbability) return `tone-${((Number(value) % TONES) + TONES) % TONES}`;
  return value >= 0.5 ? "tone-1" : "tone-0";
}

export function vertexButton(vertex, view, type = view.type) {
  return el("button", { type: "button", class: "vertex", text: String(vertex), title: `Show what feeds ${vertex}`, onclick: () => view.select(vertex, type) });
}

// ---- flips

export class Flips {
  constructor(view) {
    this.view = view;
    this.stop = () => {};
    this.rows = [];
    this.seen = 0;
    this.isPaused = this.isHeld = this.isStale = this.hidesNew = false;
    const hide = byId("hide-new");
    hide.addEventListener("click", () => {
      this.hidesNew = !this.hidesNew;
      hide.setAttribute("aria-pressed", String(this.hidesNew));
      this.draw(true);
    });
    const pause = byId("pause"), scroll = byId("flips-scroll");
    pause.addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      pause.setAttribute("aria-pressed", String(this.isPaused));
      setText(pause, this.isPaused ? "Resume" : "Pause");
      this.draw();
    });
    for (const [name, held] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) {
      scroll.addEventListener(name, () => { this.isHeld = held; this.draw(); });
    }
    setInterval(() => this.isStale && this.draw(), SHOWN_MS);
  }

  // Follows the engine and type that the view has now.
  restart() {
    this.stop();
    this.rows = [];
    this.seen = 0;
    this.said("");
    const { engine, type, output } = this.view;
    const path = `/v1/changes?${query({ engine, type, output, flips: "true", row_change: "true" })}`;
    this.stop = follow(path, (kind, data) => this.take(kind, data), (state, error) => this.state(state, error));
    this.draw();
  }

  take(kind, data) {
    if (kind === "change") {
      const now = Date.now();
      this.seen += data.changes.length + data.more;
      for (const [vertex, before, after] of data.changes) this.rows.unshift({ number: (this.next = (this.next ?? 0) + 1), now, version: data.version, vertex, before, after });
    } else if (kind === "missed") {
      this.rows.unshift({ number: (this.next = (this.next ?? 0) + 1), now: Date.now(), missed: data });
    } else return;
    this.rows.length = Math.min(this.rows.length, KEPT);
    this.isStale = true;
  }

  state(state, error) {
    byId("flips-scroll").dataset.state = state;
    if (state === "refused") this.said(error.message, true);
    else if (state === "open") this.said("");
  }

  said(text, isRefusal = false) {
    this.refusal = isRefusal ? text : "";
    this.isStale = true;
  }

  draw(isAsked = false) {
    const still = this.isPaused || this.isHeld;
    const { view } = this;
    setText("flips-aside", this.isPaused ? "paused" : this.isHeld && this.rows.length ? "held under your pointer" : `${format.count(this.seen)} so far`);
    if (still && this.rows.length && !isAsked) return;
    this.isStale = false;
    const rows = this.hidesNew ? this.rows.filter((row) => row.missed || (row.before != null && row.after != null)) : this.rows;
    show(byId("flips-empty"), !rows.length);
    setText("flips-empty", this.refusal || "No prediction has changed its class since this page was opened.");
    listed(byId("flip-rows"), rows, (row) => row.number, (row) => (row.missed ? missedRow(row) : flipRow(row, view)));
  }
}

function flipRow(row, view) {
  return el("tr", {},
    el("td", { class: "time", text: format.timeOfDay(row.now) }),
    el("td", { class: "number quiet-text", text: format.count(row.version) }),
    el("td", { class: "number" }, vertexButton(row.vertex, view)),
    el("td", { class: "flip" }, badge(row.before, view, "new"), el("span", { class: "arrow", "aria-label": "to", text: "→" }), badge(row.after, view, "gone")),
  );
}

const REASONS = { ring: "they came too fast", model: "the model changed", size: "one was too large", fault: "the service could not read them" };

function missedRow(row) {
  const { from, to, reason } = row.missed;
  return el("tr", { class: "missed" }, el("td", { colspan: 4, text: `Versions ${format.count(from)} to ${format.count(to)} are not listed: ${REASONS[reason] ?? reason}.` }));
}

// ---- most changed

export function showMost(engine, view) {
  const most = (engine?.most_changed ?? []).slice(0, MOST);
  const largest = Math.max(...most.map((one) => one.moved), 0) || 1;
  show(byId("most-empty"), !most.length);
  setText("most-empty", engine?.mode === "eager" ? "No output row has changed in the last minute." : "This engine computes on demand; its changes are not followed.");
  const rows = byId("most-rows");
  if (rows.children.length && (rows.matches(":hover") || rows.contains(document.activeElement))) return;  // no row moves from under a pointer
  listed(rows, most, (one) => `${one.type}/${one.vertex}`, (one) =>
    el("tr", {}, el("td", {}, vertexButton(one.vertex, view, one.type)), el("td"), el("td", { class: "wide" }), el("td", { class: "number quiet-text" })),
  (row, one) => {
    const [, predicted, bar, versions] = row.children;
    replaced(predicted, badge(one.prediction, view.of(one.type)));
    replaced(bar, shareBar(one.moved / largest, format.amount(one.moved)));
    setText(versions, format.count(one.versions));
  });
}

// Replaces what a cell shows, only where that reads differently.
export function replaced(cell, content) {
  if (cell.firstElementChild?.outerHTML !== content.outerHTML) cell.replaceChildren(content);
}

// A value and a bar of it. part: from -1 to 1.  hasSign: both directions are drawn from the middle.
export function shareBar(part, text, { hasSign = false, toneName = "tone-plain" } = {}) {
  const width = Math.min(1, Math.abs(part)) * (hasSign ? 50 : 100);
  const x = hasSign ? (part < 0 ? 50 - width : 50) : 0;
  const bar = el("svg", { class: "bar-line", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    hasSign && el("rect", { class: "bar-zero", x: 49.6, y: 0, width: 0.8, height: 6 }) || null,
    el("rect", { class: toneName, x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 6 }));
  return el("span", { class: "share" }, bar, el("span", { class: "share-text", text }));
}

// ---- models

export function showModels(stats, engine, registry, view) {
  const parent = byId("models");
  const versions = Object.entries(registry ?? {}).map(([name, each]) => `${name} ${each.join(", ")}`).join(" · ");
  setText("models-aside", versions && `registry: ${versions}`);
  if (!engine) { parent.replaceChildren(el("p", { class: "empty", text: "This deployment has no engine." })); return; }
  const { shadow } = engine;
  const facts = el("dl", { class: "facts" },
    el("dt", { text: "Serves" }), el("dd", {}, el("b", { text: engine.model || "a model of no registry" }), el("span", { class: "quiet-text", text: ` ${engine.mode}` })),
    ...(shadow ? [
      el("dt", { text: "Shadow" }), el("dd", {}, el("b", { text: shadow.model })),
      el("dt", { text: "Differ" }), el("dd", { title: `${format.count(shadow.differing)} of ${format.count(shadow.compared)} predictions of changed vertices` },
        el("b", { text: format.percent(shadow.differing, shadow.compared) }), el("span", { class: "quiet-text", text: ` ${format.count(shadow.differing)} of ${format.count(shadow.compared)}` })),
    ] : []));
  const rows = (shadow?.newest ?? []).slice(0, DIFFERING).map(([vertex, served, other]) =>
    el("tr", {}, el("td", {}, vertexButton(vertex, view)), el("td", { class: "flip" }, badge(served, plainClass(view)), el("span", { class: "arrow", text: "≠" }), badge(other, plainClass(view)))));
  const table = rows.length ? el("table", { class: "rows" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "They differ now" }), el("th", { scope: "col", class: "flip", text: "Served, shadow" }))), el("tbody", {}, ...rows)) : null;
  const none = shadow ? null : el("p", { class: "empty", text: "No shadow follows this engine." });
  const made = el("div", {}, facts, table ?? none);
  if (!parent.contains(document.activeElement) && !parent.matches(":hover")) replaced(parent, made);
}

// Shadows compare classes: of one column, whether its probability is at least 0.5.
const plainClass = (view) => ({ ...view, isProbability: false });

// ---- memory

export function showMemory(memory, engines) {
  const groups = new Map();
  for (const [part, size] of Object.entries(memory)) {
    const place = part.lastIndexOf("."), owner = part.slice(0, place);
    if (!groups.has(owner)) groups.set(owner, []);
    if (size) groups.get(owner).push([part.slice(place + 1).replaceAll("_", " "), size]);
  }
  const all = Object.values(memory).reduce((sum, size) => sum + size, 0);
  const order = [...groups.keys()].map((owner, number) => ({ owner, number, parts: groups.get(owner).sort((a, b) => b[1] - a[1]), size: groups.get(owner).reduce((sum, each) => sum + each[1], 0) }));
  setText("memory-total", Object.keys(memory).length ? format.bytes(all) : "");
  if (!order.length) { byId("memory").replaceChildren(el("p", { class: "empty", text: "Not measured yet." })); return; }
  const list = order.map((one) => el("li", {},
    el("span", { class: `key tone-m${one.number % 4}`, "aria-hidden": "true" }),
    el("b", { text: one.owner }), el("span", { class: "number", text: format.bytes(one.size) }),
    el("small", { text: one.parts.map(([name, size]) => `${name} ${format.bytes(size)}`).join(", ") })));
  replaced(byId("memory"), el("div", {}, stacked(order.map((one) => ({ name: one.owner, value: one.size, tone: `m${one.number % 4}` }))), el("ul", { class: "memory-list" }, ...list)));
}
