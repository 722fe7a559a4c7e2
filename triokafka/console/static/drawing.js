// Elements, tables, charts, and the forms of numbers, sizes and times.

export function h(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value") made.value = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

export const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function size(bytes) {
  if (bytes === null || bytes === undefined || bytes < 0) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (bytes < 1024) return `${unit === "B" ? bytes : bytes.toFixed(1)} ${unit}`;
    bytes /= 1024;
  }
  return `${bytes.toFixed(1)} TiB`;
}

export const time = (ms) => (ms === null || ms < 0 ? "–" : new Date(ms).toISOString().replace("T", " ").replace("Z", ""));

// columns: [title, cell of a row, "number" or ""]
export function table(columns, rows, empty = "Nothing to show.") {
  if (!rows.length) return h("p", { class: "card muted" }, empty);
  // On a phone, the rows of a wide table become cards. The roles keep it a table for screen readers.
  const title = columns.map(([name]) => name).filter(Boolean).join(", ");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of ${title}` },
    h("table", { role: "table", class: columns.length > 3 ? "stack" : null },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([name, , kind]) =>
        h("th", { role: "columnheader", scope: "col", class: kind || null }, name || h("span", { class: "unseen" }, "More"))))),
      h("tbody", { role: "rowgroup" }, rows.map((row) =>
        h("tr", { role: "row" }, columns.map(([name, cell, kind]) => h("td", { role: "cell", class: kind || null, "data-label": name }, cell(row))))))));
}

export function problem(error) {
  return h("div", { class: "card problem", role: "alert" },
    h("b", {}, error.error || "Problem"), h("div", {}, error.message || String(error)));
}

export function tile(label, value, bad) {
  return h("div", { class: bad ? "tile bad" : "tile" }, h("b", {}, count(value)), h("span", { class: "muted" }, label));
}

const SVG = "http://www.w3.org/2000/svg";
export function s(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const child of children) made.append(child);
  return made;
}

// The width in pixels of one of several charts side by side, so that their texts have the size of other texts.
export function roomFor(most) {
  const room = document.getElementById("main").clientWidth - 32;
  const columns = Math.min(most, Math.max(1, Math.floor((room + 12) / 492)));
  return Math.max(260, Math.round((room - 12 * (columns - 1)) / columns) - (most > 1 ? 34 : 0));
}

// samples: [[milliseconds, value], …]
export function lineChart(samples, label) {
  const width = roomFor(1), height = 160, left = 60, bottom = 22;
  if (samples.length < 2) return h("p", { class: "card muted" }, `${label}: two samples are needed, one comes every 5 seconds.`);
  const most = Math.max(1, ...samples.map(([, value]) => value));
  const [first, last] = [samples[0][0], samples[samples.length - 1][0]];
  const x = (at) => left + ((at - first) / Math.max(1, last - first)) * (width - left - 8);
  const y = (value) => 10 + (1 - value / most) * (height - bottom - 10);
  const points = samples.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const text = (at, up, anchor, words) => s("text", { x: at, y: up, "text-anchor": anchor }, words);
  const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label} over time, now ${samples[samples.length - 1][1]}` },
    s("line", { class: "axis", x1: left, x2: width, y1: y(0), y2: y(0) }),
    s("line", { class: "axis", x1: left, x2: width, y1: y(most), y2: y(most) }),
    s("polygon", { class: "area", points: `${x(first)},${y(0)} ${points} ${x(last)},${y(0)}` }),
    s("polyline", { class: "line", points }),
    text(left - 6, y(most) + 4, "end", count(most)), text(left - 6, y(0) + 4, "end", "0"),
    text(left, height - 4, "start", clock(first)), text(width - 4, height - 4, "end", clock(last)));
}

export function shownValue(value) {
  if (value.format === "null") return h("span", { class: "muted" }, "null");
  return h("div", {},
    h("pre", {}, value.text),
    (value.cut || value.problem) && h("div", { class: "warn" },
      value.problem || `only the beginning of ${size(value.size)}`));
}

export function preview(value, most = 120) {
  if (value.format === "null") return h("span", { class: "muted" }, "null");
  const text = value.text.replace(/\s+/g, " ");
  return h("code", {}, text.length > most ? `${text.slice(0, most)}…` : text);
}
