// Elements without markup in strings: the page's policy forbids that, and there is nothing to escape.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "circle", "line", "rect", "text", "title", "tspan"]);

export const byId = (id) => document.getElementById(id);

// tag, attributes (on...: listeners, text: content, data: dataset), children.
export function el(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "text") made.textContent = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each != null));
  return made;
}

// Writes only what differs, so that selections and screen readers are left in peace.
export function setText(target, text) {
  const element = typeof target === "string" ? byId(target) : target;
  if (element.textContent !== text) element.textContent = text;
}

export const show = (element, is) => { element.hidden = !is; };

// Makes the children of `parent` those of `items`: an element of the same key stays, and keeps its focus.
export function listed(parent, items, key, make, fill) {
  const before = new Map([...parent.children].map((each) => [each.dataset.key, each]));
  const wanted = items.map((item) => {
    const name = String(key(item));
    const found = before.get(name) ?? make(item);
    found.dataset.key = name;
    before.delete(name);
    fill?.(found, item);
    return found;
  });
  for (const gone of before.values()) gone.remove();
  wanted.forEach((each, place) => {
    if (parent.children[place] !== each) parent.insertBefore(each, parent.children[place] ?? null);
  });
}
