// The shown page: its address, its content, and notices above it.

import { h, problem } from "./drawing.js";
import { facts, send } from "./requests.js";

export const main = document.getElementById("main");
export const sections = [["", "Overview", "o"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["brokers", "Brokers", "b"],
  ["metrics", "Metrics", "m"],  ["transactions", "Transactions", "x"], ["access", "Access", "a"],
  ...(facts.faults ? [["faults", "Faults", "f"]] : [])];
let current = null; // the page that is shown: {leave, refresh}
let visit = 0;
let known = {}; // the functions of the pages, by the first part of their address

// Shows these pages from now on.
export function usePages(pages) { known = pages; }

export function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query || "") };
}

export function go(path, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== false && value !== null));
  location.hash = `#/${path}${String(text) ? `?${text}` : ""}`;
}

export async function change(name, document_, done) {
  try {
    const found = await send(`/api/change/${name}`, document_);
    notice(done(found));
    await show(true);
  } catch (error) { notice(`${error.error}: ${error.message}`, true); }
}

export function notice(words, bad) {
  const box = document.getElementById("notice");
  box.textContent = words;
  box.className = bad ? "bad" : "";
  box.hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => { box.hidden = true; }, bad ? 12000 : 5000);
}

export async function show(keep) {
  const number = ++visit;
  const { parts, query } = address();
  if (current && current.leave) current.leave();
  current = null;
  for (const link of document.querySelectorAll("#sections a")) {
    if (link.dataset.section === (parts[0] || "")) { link.setAttribute("aria-current", "page"); link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.offsetLeft - 80; }
    else link.removeAttribute("aria-current");
  }
  const page = known[parts[0] || ""];
  const heading = () => h("h1", {}, [(sections.find(([path]) => path === parts[0]) || [null, "Overview"])[1], ...parts.slice(1)].join(" / "));
  if (!page) { main.replaceChildren(h("h1", {}, "No such page"), problem({ error: "The console does not have this page", message: location.hash })); return; }
  if (!keep) main.replaceChildren(h("p", { class: "muted" }, "Loading …"));
  try {
    const made = await page(parts.slice(1), query);
    if (number !== visit) { if (made.leave) made.leave(); return; }
    const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.name : null;
    main.replaceChildren(...made.content.filter(Boolean));
    current = made;
    document.title = `${made.title} – triokafka console`;
    if (focused) { const again = main.querySelector(`[name="${CSS.escape(focused)}"]`); if (again) again.focus(); }
    else if (!keep) main.focus({ preventScroll: true });
  } catch (error) {
    if (number === visit && !error.quiet) main.replaceChildren(heading(), problem(error));
  }
}

// Loads the page again, unless a form in it is in use.
export function refresh() {
  if (current && current.refresh && !document.hidden && !main.querySelector("form :focus, details[open] form")) show(true);
}
