// The what-if form: a few updates, some vertices, and their predictions now and then.

import { Refusal, postJson, whole } from "./api.js";
import { byId, el, listed, show } from "./dom.js";
import * as format from "./format.js";
import { badge, vertexButton } from "./lists.js";

// op -> its fields: name, label, kind. Weight and time appear where the graph has them. A time is a whole number in the
// graph's unit, or a date, which the service counts in it.
const EDGE = [["u", "from", "vertex"], ["v", "to", "vertex"]];
const OPERATIONS = {
  add_edge: ["Add edge", [...EDGE, ["weight", "weight", "number"], ["time", "time", "time"]]],
  remove_edge: ["Remove edge", EDGE],
  set_weight: ["Set weight", [...EDGE, ["weight", "weight", "number"]]],
  set_features: ["Set features", [["u", "of", "vertex"], ["x", "to", "numbers"]]],
  add_vertex: ["Add vertex", [["u", "id", "vertex"], ["x", "features", "numbers"]]],
  remove_vertex: ["Remove vertex", [["u", "id", "vertex"]]],
};

export class WhatIf {
  constructor(view) {
    this.view = view;
    this.rows = [{ number: 0, op: "add_edge" }];
    byId("more").addEventListener("click", () => { this.rows.push({ number: this.rows.at(-1).number + 1, op: "add_edge" }); this.draw(); });
    byId("whatif").addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
  }

  // After the graph became known, or another vertex was chosen.
  draw() {
    const ids = byId("whatif-ids");
    if (this.view.vertex != null && (!ids.value || ids.dataset.filled === ids.value)) ids.value = ids.dataset.filled = String(this.view.vertex);
    listed(byId("updates"), this.rows, (row) => row.number, (row) => this.row(row), (item) => show(item.querySelector(".remove"), this.rows.length > 1));
  }

  row(row) {
    const item = el("li", { class: "update" });
    const options = Object.entries(OPERATIONS).filter(([name]) => name !== "set_weight" || this.view.graph.has_weight).map(([name, [label]]) => el("option", { value: name, text: label }));
    const choice = el("select", { "aria-label": "Update", name: "op" }, ...options);
    const fields = el("span", { class: "fields" });
    const remove = el("button", { type: "button", class: "remove", "aria-label": "Leave this update out", text: "×", onclick: () => { this.rows = this.rows.filter((each) => each !== row); this.draw(); byId("more").focus(); } });
    choice.addEventListener("change", () => { row.op = choice.value; fields.replaceChildren(...this.fields(row)); });
    fields.append(...this.fields(row));
    item.append(choice, fields, remove);
    return item;
  }

  fields(row) {
    const { graph } = this.view;
    const wanted = OPERATIONS[row.op][1].filter(([name]) => (name !== "weight" || graph.has_weight) && (name !== "time" || graph.has_time));
    const fields = wanted.map(([name, label, kind]) => el("label", { class: `field field-${kind}` }, el("span", { text: label }), el("input", {
      name, data: { kind }, required: true, spellcheck: "false", placeholder: { numbers: `${graph.feature_width} numbers`, vertex: "vertex", time: graph.time_unit ? "2026-05-31T12:30" : "number or date" }[kind] ?? "",
    })));
    if (graph.vertex_types.length) fields.push(...this.typed(row.op));
    return fields;
  }

  typed(op) {
    const { graph } = this.view, choose = (name, label, values) => el("label", { class: "field" }, el("span", { text: label }), el("select", { name, data: { kind: "json" } }, ...values.map(([value, text]) => el("option", { value: JSON.stringify(value), text }))));
    if (op.endsWith("_edge") || op === "set_weight") return [choose("edge_type", "type", graph.edge_types.map((each) => [each, each.join(" ")]))];
    return [choose("vertex_type", "type", graph.vertex_types.map((each) => [each, each]))];
  }

  updates() {
    return [...byId("updates").children].map((item) => {
      const update = { op: item.querySelector("[name=op]").value };
      for (const input of item.querySelectorAll(".fields [name]")) update[input.name] = this.value(input);
      return update;
    });
  }

  value(input) {
    const { kind } = input.dataset, { value } = input;
    if (kind === "vertex") return this.view.parsed(value);
    if (kind === "json") return JSON.parse(value);
    if (kind === "time") return /^\s*-?\d+\s*$/.test(value) ? whole(value) : value.trim();
    return kind === "numbers" ? value.split(/[\s,;]+/).filter(Boolean).map(Number) : Number(value);
  }

  async ask() {
    const { view } = this, answer = byId("whatif-answer");
    const ids = byId("whatif-ids").value.split(/[\s,;]+/).filter(Boolean).map((each) => view.parsed(each));
    try {
      const found = await postJson("/v1/what-if", { engine: view.engine, ids, updates: this.updates(), ...(view.type ? { vertex_type: view.type } : {}), ...(view.output ? { output: view.output } : {}) });
      answer.replaceChildren(this.answered(found, ids));
    } catch (error) {
      answer.replaceChildren(el("p", { class: "refusal", text: error instanceof Refusal ? error.message : "The service does not answer. Ask again when it does." }));
    }
  }

  answered(found, ids) {
    const { view } = this;
    const moved = found.now.filter((value, place) => value !== found.then[place]).length;
    const entries = ids.map((vertex, place) => el("li", { class: found.now[place] === found.then[place] ? "same" : "moved" },
      vertexButton(vertex, view), badge(found.now[place], view), el("span", { class: "arrow", "aria-label": "to", text: "→" }), badge(found.then[place], view)));
    return el("div", {}, el("p", { class: "quiet-text", text: `${moved} of ${ids.length} predictions would change, at version ${format.count(found.version)}.` }), el("ul", { class: "what-list" }, ...entries));
  }
}
