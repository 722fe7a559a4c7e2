// Addresses, requests, keyboard, theme. The pages are in views.js.

import { h, problem } from "./drawing.js";
import { pages } from "./views.js";

export const facts = JSON.parse(document.body.dataset.facts);
const main = document.getElementById("main");
const sections = [["", "Overview", "o"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["brokers", "Brokers", "b"],
  ["metrics", "Metrics", "m"],  ["transactions", "Transactions", "x"], ["access", "Access", "a"],
  ...(facts.faults ? [["faults", "Faults", "f"]] : [])];
let current = null; // the page that is shown: {leave, refresh}
let visit = 0;

export async function ask(address) {
  const response = await fetch(address, { headers: { Accept: "application/json" } });
  const found = await response.json();
  if (response.status === 401 && facts.login) { showLogin(found.message); throw { error: "Log in", message: "", quiet: true }; }
  if (!response.ok) throw found;
  return found;
}

export async function send(address, document_) {
  const response = await fetch(address, {
    method: "POST", headers: { "Content-Type": "application/json", "X-Console-Token": facts.token },
    body: JSON.stringify(document_),
  });
  const found = await response.json();
  if (!response.ok) throw found;
  return found;
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

export function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query || "") };
}

export function go(path, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== false && value !== null));
  location.hash = `#/${path}${String(text) ? `?${text}` : ""}`;
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
  const page = pages[parts[0] || ""];
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

function showLogin(message) {
  document.getElementById("logout").hidden = true;
  main.replaceChildren(h("h1", {}, "Log in"),
    h("form", { class: "row", onsubmit: async (event) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(event.target));
      try { await send("/api/login", given); document.getElementById("logout").hidden = false; await begin(); }
      catch (error) { showLogin(error.message); }
    } },
    h("label", {}, "User", h("input", { name: "user", autocomplete: "username", required: true })),
    h("label", {}, "Password", h("input", { name: "password", type: "password", autocomplete: "current-password", required: true })),
    h("button", { class: "primary" }, "Log in")),
    message && message !== "log in" ? problem({ error: "Refused", message }) : h("p", { class: "muted" }, "With a user of the cluster."));
  const first = main.querySelector("input");
  if (first) first.focus();
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("theme", name || ""); } catch { /* a private window */ }
}

let prefix = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing) return;
  if (prefix === "g") {
    prefix = "";
    const found = sections.find(([, , key]) => key === event.key);
    if (found) { event.preventDefault(); go(found[0]); }
  } else if (event.key === "g") prefix = "g";
  else if (event.key === "/") { const filter = main.querySelector("input[type=search], input"); if (filter) { event.preventDefault(); filter.focus(); filter.select(); } }
  else if (event.key === "r") show(true);
  else if (event.key === "?") showHelp();
});

function showHelp() {
  const help = document.getElementById("help");
  const keys = [["/", "filter"], ["r", "refresh"], ["?", "this help"], ["Esc", "leave a field"],
    ...sections.map(([, name, key]) => [`g ${key}`, name.toLowerCase()])];
  help.replaceChildren(h("h2", {}, "Keyboard"), h("table", {}, h("tbody", {}, keys.map(([key, what]) =>
    h("tr", {}, h("td", {}, key.split(" ").map((one) => [h("kbd", {}, one), " "])), h("td", {}, what))))),
    h("form", { method: "dialog", class: "row" }, h("button", { class: "primary" }, "Close")));
  help.showModal();
}

async function begin() {
  const named = ask("/api/overview").then((found) => { document.getElementById("cluster").textContent = `cluster ${found.cluster.cluster_id || ""}`; }, () => {});
  if (facts.login) await named; // so that only one request asks for a login
  await show();
}

document.getElementById("sections").append(...sections.map(([path, name]) =>
  h("a", { href: `#/${path}`, "data-section": path }, name)));
document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  setTheme(dark ? "light" : "dark");
});
document.getElementById("logout").addEventListener("click", async () => { await send("/api/logout", {}); location.reload(); });
try { setTheme(localStorage.getItem("theme")); } catch { /* a private window */ }
if (facts.login) document.getElementById("logout").hidden = false;
addEventListener("hashchange", () => show());
setInterval(() => { if (current && current.refresh && !document.hidden && !main.querySelector("form :focus, details[open] form")) show(true); }, 5000);
begin();
