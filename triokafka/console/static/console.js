// Starts the console: login, keyboard, theme. The pages are in views.js.

import { h, problem } from "./drawing.js";
import { ask, facts, onRefusal, send } from "./requests.js";
import { go, main, refresh, sections, show, usePages } from "./shown_page.js";
import { pages } from "./views.js";

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
setInterval(refresh, 5000);
onRefusal(showLogin);
usePages(pages);
begin();
