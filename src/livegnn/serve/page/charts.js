// Spark lines: two minutes by the second, from zero up. A pointer over one reads the value under it.

import { el } from "./dom.js";

const HEIGHT = 34, WIDTH = 240, TOP = 3;

// lines: [{values, name}], the first one filled.  text(value): how a value reads.
export function spark(svg, lines, kept, about, text) {
  const most = Math.max(...lines.flatMap((line) => line.values.map((value) => value ?? 0)), 0) || 1;
  const x = (place, size) => WIDTH - ((size - 1 - place) * WIDTH) / (kept - 1);
  const y = (value) => HEIGHT - 1 - ((HEIGHT - 1 - TOP) * value) / most;
  const parts = [];
  lines.forEach((line, number) => {
    const runs = broken(line.values);
    const drawn = runs.map((run) => run.map(([place, value], k) => `${k ? "L" : "M"}${x(place, line.values.length).toFixed(1)} ${y(value).toFixed(1)}`).join(""));
    if (number === 0) {
      const areas = runs.map((run, k) => `${drawn[k]}L${x(run.at(-1)[0], line.values.length).toFixed(1)} ${HEIGHT}L${x(run[0][0], line.values.length).toFixed(1)} ${HEIGHT}Z`);
      parts.push(el("path", { class: "spark-area", d: areas.join("") }));
    }
    parts.push(el("path", { class: `spark-line spark-line-${number}`, d: drawn.join(""), "vector-effect": "non-scaling-stroke" }));
  });
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  const known = lines[0].values.filter((value) => value != null);
  const range = known.length ? `between ${text(Math.min(...known))} and ${text(Math.max(...known))}` : "nothing yet";
  svg.setAttribute("aria-label", `${about}, last two minutes: ${range}`);
  svg.replaceChildren(...parts, el("path", { class: "spark-base", d: `M0 ${HEIGHT - 0.5}H${WIDTH}`, "vector-effect": "non-scaling-stroke" }));
  hover(svg, lines, kept, text);
}

function broken(values) {
  const runs = [];
  values.forEach((value, place) => {
    if (value == null) return;
    if (place === 0 || values[place - 1] == null) runs.push([]);
    runs.at(-1).push([place, value]);
  });
  return runs;
}

const pointed = new WeakMap();  // svg -> where the pointer is, as a fraction

function hover(svg, lines, kept, text) {
  if (!pointed.has(svg)) {
    pointed.set(svg, null);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      pointed.set(svg, (event.clientX - box.left) / box.width);
      svg.dispatchEvent(new CustomEvent("read"));
    });
    svg.addEventListener("pointerleave", () => { pointed.set(svg, null); svg.dispatchEvent(new CustomEvent("read")); });
    svg.addEventListener("read", () => svg.read?.());
  }
  const cell = svg.closest(".cell");
  svg.read = () => {
    const at = pointed.get(svg);
    const ago = at == null ? null : Math.round((1 - at) * (kept - 1));
    const place = ago == null ? -1 : lines[0].values.length - 1 - ago;
    cell.querySelector(".read")?.remove();
    if (place < 0) return;
    const said = lines.map((line) => `${line.name}${text(line.values[place])}`).join(" · ");
    cell.append(el("p", { class: "read", text: `${said}, ${ago} s ago` }));
  };
  svg.read();
}

// One bar of several parts. parts: [{name, value, tone}].
export function stacked(parts) {
  const all = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  let x = 0;
  const bars = parts.map((part) => {
    const width = (100 * part.value) / all;
    const bar = el("rect", { class: `tone-${part.tone}`, x: x.toFixed(3), y: 0, width: Math.max(0, width - 0.4).toFixed(3), height: 8 }, el("title", { text: part.name }));
    x += width;
    return bar;
  });
  return el("svg", { class: "stacked", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars);
}
