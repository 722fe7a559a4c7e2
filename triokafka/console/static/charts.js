// Charts with several lines, and the page of metrics. Points come as [milliseconds, value].

import { count, h, problem, roomFor, s, size } from "./drawing.js";
import { ask, facts } from "./requests.js";

const HEIGHT = 190, LEFT = 62, BOTTOM = 22, TOP = 10;
const known = new Map(); // the points of the last answers, by chart and line: only new ones are asked for
let newest = 0;

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes") return size(Math.round(value));
  if (unit === "bytes/s") return `${size(Math.round(value))}/s`;
  const number = value >= 100 ? count(Math.round(value)) : String(Number(value.toPrecision(3)));
  return unit === "1/s" ? `${number}/s` : unit ? `${number} ${unit}` : number;
}

const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

// Samples come later than they should when the machine is busy: a gap is three times their usual distance.
function usualGap(lines, least) {
  const distances = lines.flatMap((points) => points.slice(1).map(([at], index) => at - points[index][0])).sort((a, b) => a - b);
  return Math.max(least, 3 * (distances[Math.floor(distances.length / 2)] || 0));
}

// A line ends where a sample is missing: a broker that was away is a gap.
function pieces(points, gap) {
  const made = [];
  for (const point of points) {
    const last = made[made.length - 1];
    if (last && point[0] - last[last.length - 1][0] <= gap) last.push(point); else made.push([point]);
  }
  return made;
}

// The pattern tells lines apart where colours do not.
const swatch = (number) => s("svg", { class: "key", viewBox: "0 0 28 4", "aria-hidden": "true" },
  s("line", { class: `line-${number}`, x1: 0, x2: 28, y1: 2, y2: 2 }));

export function chart({ title, unit, series }, least) {
  const names = Object.keys(series).filter((name) => series[name].length);
  const all = names.flatMap((name) => series[name]);
  const gap = usualGap(names.map((name) => series[name]), least);
  if (all.length < 2) return h("section", { class: "card" }, h("h3", {}, title), h("p", { class: "muted" }, "Two samples are needed; the next one comes soon."));
  const WIDTH = roomFor(9);
  const times = all.map(([at]) => at);
  const first = Math.min(...times), last = Math.max(...times);
  const most = Math.max(...all.map(([, value]) => value)) || 1;
  const x = (at) => LEFT + ((at - first) / Math.max(1, last - first)) * (WIDTH - LEFT - 8);
  const y = (value) => TOP + (1 - value / most) * (HEIGHT - BOTTOM - TOP);
  const text = (at, up, anchor, words) => s("text", { x: at, y: up, "text-anchor": anchor }, words);
  const axis = unit === "records" ? "" : unit;
  const mark = s("line", { class: "mark", y1: TOP, y2: y(0), x1: -9, x2: -9 });
  const drawn = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": `${title}: ${names.map((name) => `${name} ${shown(series[name][series[name].length - 1][1], unit)}`).join(", ")}` },
  s("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: y(0), y2: y(0) }),
  s("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: y(most / 2), y2: y(most / 2) }),
  s("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: y(most), y2: y(most) }),
  ...names.flatMap((name, number) => pieces(series[name], gap).map((points) => (points.length > 1
    ? s("polyline", { class: `line line-${number}`, points: points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })
    : s("circle", { class: `dot line-${number}`, r: 2, cx: x(points[0][0]).toFixed(1), cy: y(points[0][1]).toFixed(1) })))),
  mark, text(LEFT - 6, y(most) + 4, "end", shown(most, axis)), text(LEFT - 6, y(most / 2) + 4, "end", shown(most / 2, axis)),
  text(LEFT - 6, y(0) + 4, "end", "0"), text(LEFT, HEIGHT - 4, "start", clock(first)), text(WIDTH - 4, HEIGHT - 4, "end", clock(last)));
  const values = names.map(() => h("td", { class: "number" }));
  const when = h("caption", { class: "muted" });
  const fill = (at) => {
    when.textContent = at === null ? "now" : `at ${clock(at)} UTC`;
    names.forEach((name, number) => {
      const points = series[name];
      const near = at === null ? points[points.length - 1]
        : points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
      values[number].textContent = at === null || Math.abs(near[0] - at) <= gap ? shown(near[1], unit) : "–";
    });
  };
  const point = (event) => {
    const box = drawn.getBoundingClientRect();
    const at = first + Math.min(1, Math.max(0, (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - 8))) * (last - first);
    mark.setAttribute("x1", x(at)); mark.setAttribute("x2", x(at));
    fill(at);
  };
  drawn.addEventListener("pointermove", point);
  drawn.addEventListener("pointerdown", point);
  drawn.addEventListener("pointerleave", () => { mark.setAttribute("x1", -9); mark.setAttribute("x2", -9); fill(null); });
  fill(null);
  return h("section", { class: "card" }, h("h3", {}, title), drawn,
    h("table", { class: "legend" }, when, h("tbody", {}, names.map((name, number) =>
      h("tr", {}, h("th", { scope: "row" }, swatch(number), name), values[number])))));
}

function merged(charts, group, oldest) {
  return charts.map((one) => {
    const series = {};
    for (const [name, points] of Object.entries(one.series)) {
      const key = JSON.stringify([group, one.key, name]);
      const all = [...(known.get(key) || []), ...points].filter(([at]) => at > oldest);
      known.set(key, all);
      series[name] = all;
    }
    return { ...one, series };
  });
}

export async function metrics() {
  const found = await ask(`/api/metrics?since=${newest}`);
  const oldest = found.now - found.window_ms;
  const cluster = merged(found.cluster, "cluster", oldest), brokers = merged(found.brokers, "brokers", oldest);
  for (const [key, points] of known) if (!points.length || points[points.length - 1][0] <= oldest) known.delete(key);
  newest = Math.max(newest, ...[...known.values()].map((points) => points[points.length - 1][0]));
  const least = facts.sample_ms * 3;
  const minutes = Math.round(found.window_ms / 60000);
  return {
    title: "Metrics", refresh: true,
    content: [
      h("h1", {}, "Metrics"),
      h("h2", {}, "Cluster"),
      cluster.length ? h("div", { class: "charts" }, cluster.map((one) => chart(one, least))) : h("p", { class: "card muted" }, "The first sample is being taken."),
      found.left_out ? h("p", { class: "muted" }, `${count(found.left_out)} partitions are not sampled, because there are too many; see the limit sampled.partitions.`) : null,
      h("h2", {}, "Brokers"),
      found.sources.filter((one) => one.problem).map((one) => problem({ error: `No metrics of ${one.name}`, message: one.problem })),
      brokers.length ? h("div", { class: "charts" }, brokers.map((one) => chart(one, least)))
        : h("p", { class: "card muted" }, found.sources.length ? "Two samples are needed; the next one comes soon."
          : ["For traffic, request times and load of each broker, start the console with ", h("code", {}, "--metrics HOST:PORT"), ", the address at which a broker exports metrics for Prometheus."]),
      h("p", { class: "muted" }, `The last ${minutes} minutes, sampled every ${facts.sample_ms / 1000} seconds. A chart has at most eight lines: those with the highest values.`),
    ],
  };
}


