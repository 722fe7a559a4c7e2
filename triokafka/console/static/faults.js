// The page of fault switches, in test clusters.

import { h, table } from "./drawing.js";
import { ask, send } from "./requests.js";
import { notice, show } from "./shown_page.js";

async function call(name, values, done) {
  try {
    await send(`/api/faults/${name}`, values);
    notice(done);
    await show(true);
  } catch (error) { notice(`${error.error}: ${error.message}`, true); }
}

const state = (one) => (!one.running ? h("span", { class: "bad" }, "stopped") : one.frozen ? h("span", { class: "warn" }, "frozen") : h("span", { class: "good" }, "running"));

function switches(one, calls) {
  const button = (name, words, done, kind) => calls.has(name) && h("button", { type: "button", class: kind || null,
    "aria-label": `${words} broker ${one.broker}`, onclick: () => call(name, { broker: one.broker }, `Broker ${one.broker} ${done}.`) }, words);
  return h("div", { class: "row tight" }, one.running
    ? [one.frozen ? button("thaw", "Thaw", "goes on") : button("freeze", "Freeze", "is frozen"), button("stop", "Stop", "was stopped"),
      button("restart", "Restart", "was restarted"), button("kill", "Kill", "was killed", "danger")]
    : button("start", "Start", "was started", "primary"));
}

function network(brokers) {
  return h("section", { class: "card" }, h("h2", {}, "Network between brokers"),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      const apart = new FormData(event.target).getAll("apart").map(Number);
      call("partition-network", { groups: [apart] }, `Cut off: ${apart.join(", ") || "nobody"}.`);
    } },
    h("fieldset", {}, h("legend", {}, "Cut off from the others"), brokers.map((one) => h("label", { class: "inline" },
      h("input", { type: "checkbox", name: "apart", value: String(one.broker) }), `broker ${one.broker}`))),
    h("button", {}, "Partition"),
    h("button", { type: "button", onclick: () => call("heal", {}, "The network is whole.") }, "Heal")),
    h("p", { class: "muted" }, "Clients reach all brokers; brokers reach only those on their own side."));
}

function disk() {
  return h("section", { class: "card" }, h("h2", {}, "Disk and connections"), h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    call("fill-disk", { free_bytes: Number(new FormData(event.target).get("free")) }, "The disks are full.");
  } },
  h("label", {}, "Free bytes", h("input", { name: "free", type: "number", min: 0, value: "0", required: true })),
  h("button", {}, "Fill disks"),
  h("button", { type: "button", onclick: () => call("free-disk", {}, "The disks have room.") }, "Free disks"),
  h("button", { type: "button", onclick: () => call("cut-connections", {}, "All connections were cut.") }, "Cut all connections")));
}

function arm() {
  const form = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    const fault = { times: Number(given.times) };
    if (given.api) fault.api = given.api;
    if (given.kind === "error") { fault.error = given.error; if (given.topic) fault.topic = given.topic; }
    else if (given.kind === "delay") fault.delay_ms = Number(given.ms);
    else if (given.kind === "lose") fault.lose_answer = true;
    else fault.close = "after";
    call("faults", fault, "The fault is armed.");
  } },
  h("label", {}, "Requests", h("input", { name: "api", placeholder: "all, or Produce", list: "apis", autocomplete: "off" })),
  h("datalist", { id: "apis" }, ["Produce", "Fetch", "Metadata", "JoinGroup", "Heartbeat", "OffsetCommit", "ListOffsets", "FindCoordinator"].map((one) => h("option", { value: one }))),
  h("label", {}, "What happens", h("select", { name: "kind", onchange: (event) => choose(event.target.value) },
    [["delay", "wait before they are handled"], ["error", "an error is returned"], ["lose", "the answer is lost"], ["close", "the connection ends after the answer"]]
      .map(([value, words]) => h("option", { value }, words)))),
  h("label", { "data-for": "delay" }, "Milliseconds", h("input", { name: "ms", type: "number", min: 1, value: "1000" })),
  h("label", { "data-for": "error", hidden: true }, "Error", h("input", { name: "error", value: "NOT_LEADER_OR_FOLLOWER" })),
  h("label", { "data-for": "error", hidden: true }, "Topic", h("input", { name: "topic", placeholder: "all" })),
  h("label", {}, "Times", h("input", { name: "times", type: "number", min: 1, value: "1", required: true })),
  h("button", {}, "Arm"));
  const choose = (kind) => { for (const label of form.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== kind; };
  return form;
}

const words = (fault) => Object.entries(fault).filter(([, value]) => value !== 0 && value !== 1).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ");

export async function faults() {
  const found = await ask("/api/faults");
  const calls = new Set(found.calls);
  return {
    title: "Faults", refresh: true,
    content: [
      h("h1", {}, "Faults"),
      h("p", { class: "muted" }, "This is a test cluster: these switches break it, so that you see how it and its clients go on."),
      table([["Broker", (one) => one.broker], ["Address", (one) => one.bootstrap_servers], ["State", state], ["", (one) => switches(one, calls)]], found.brokers),
      calls.has("partition-network") && found.brokers.length > 1 ? network(found.brokers) : null,
      calls.has("fill-disk") ? disk() : null,
      calls.has("faults") ? h("section", { class: "card" }, h("h2", {}, "Faulty answers"), arm(),
        table([["Armed", (one) => words(one)], ["Times", (one) => one.times, "number"]], found.faults, "No fault is armed.")) : null,
      calls.has("reset") ? h("div", { class: "row" }, h("button", { type: "button", onclick: () => call("reset", {}, "All faults are over.") }, "End all faults")) : null,
    ],
  };
}
