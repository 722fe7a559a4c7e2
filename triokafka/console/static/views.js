// The pages. Each returns {title, content, refresh: whether it is loaded again every five seconds, leave}.

import { metrics } from "./charts.js";
import { count, h, lineChart, preview, problem, shownValue, size, table, tile, time } from "./drawing.js";
import { faults } from "./faults.js";
import { ask, facts } from "./requests.js";
import { change, go } from "./shown_page.js";

const named = (section, name) => h("a", { href: `#/${section}/${encodeURIComponent(name)}`, class: name.length > 50 ? "long" : null }, name);
const topicLink = (name) => named("topics", name);
const groupLink = (name) => named("groups", name);
const broker = (isController, inService) => (inService ? (isController ? "controller" : "") : h("span", { class: "bad" }, "not in service"));
const ids = (nodes) => nodes.join(", ") || "–";

async function overview() {
  const found = await ask("/api/overview");
  return {
    title: "Overview", refresh: true,
    content: [
      h("h1", {}, "Overview"),
      h("div", { class: "tiles" },
        tile("brokers", found.cluster.nodes.length - found.cluster.fenced.length),
        found.cluster.fenced.length ? tile("not in service", found.cluster.fenced.length, true) : null, tile("topics", found.topics), tile("partitions", found.partitions),
        tile("groups", found.groups), tile("under-replicated", found.under_replicated, found.under_replicated > 0),
        tile("without leader", found.offline, found.offline > 0)),
      (found.under_replicated || found.offline) ? h("p", {}, h("a", { href: "#/topics?problems=1" }, "Topics with problems")) : null,
      h("h2", {}, "Brokers"),
      table([["Id", (one) => one.node_id, "number"], ["Address", (one) => `${one.host}:${one.port}`], ["Rack", (one) => one.rack || "–"],
        ["", (one) => broker(found.cluster.controller && found.cluster.controller.node_id === one.node_id, !found.cluster.fenced.includes(one.node_id))]],
      found.cluster.nodes),
    ],
  };
}

function pager(found, path, query) {
  if (found.pages < 2) return null;
  const to = (page, words, off) => h("button", { type: "button", disabled: off, onclick: () => go(path, { ...query, page }) }, words);
  return h("div", { class: "row" }, to(found.page - 1, "← Previous", found.page === 0),
    h("span", {}, `page ${found.page + 1} of ${found.pages}, ${count(found.count)} in all`),
    to(found.page + 1, "Next →", found.page + 1 >= found.pages));
}

function filter(path, given, boxes = []) {
  const apply = (form) => go(path, Object.fromEntries(new FormData(form)));
  let timer;
  return h("form", { class: "row", role: "search", onsubmit: (event) => { event.preventDefault(); apply(event.target); },
    oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => apply(event.target.form), event.target.type === "checkbox" ? 0 : 250); } },
  h("label", {}, "Name contains", h("input", { type: "search", name: "text", value: given.text || "", autocomplete: "off" })),
  boxes.map(([name, words]) => h("label", { class: "inline" }, h("input", { type: "checkbox", name, value: "1", checked: given[name] === "1" }), words)));
}

async function topics(parts, query) {
  if (parts.length) return topic(parts[0], parts[1] || "messages", query);
  const given = Object.fromEntries(query);
  const found = await ask(`/api/topics?${query}`);
  return {
    title: "Topics", refresh: true,
    content: [
      h("h1", {}, "Topics"),
      filter("topics", given, [["internal", "internal"], ["problems", "only with problems"]]),
      table([["Topic", (one) => topicLink(one.name)], ["Partitions", (one) => count(one.partitions), "number"],
        ["Replicas", (one) => one.replication_factor, "number"],
        ["State", (one) => (one.offline ? h("span", { class: "bad" }, `${one.offline} without leader`)
          : one.under_replicated ? h("span", { class: "warn" }, `${one.under_replicated} under-replicated`) : h("span", { class: "good" }, "in sync"))]],
      found.topics, "No topic matches."),
      pager(found, "topics", given),
      facts.changes ? createTopic() : null,
    ],
  };
}

function createTopic() {
  return h("details", { class: "card" }, h("summary", {}, "Create a topic"),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(event.target));
      change("create-topic", { name: given.name, partitions: Number(given.partitions), replication_factor: Number(given.replicas) },
        () => `Topic ${given.name} was created.`);
    } },
    h("label", {}, "Name", h("input", { name: "name", required: true, pattern: "[a-zA-Z0-9._\\-]+", maxlength: 249 })),
    h("label", {}, "Partitions", h("input", { name: "partitions", type: "number", min: 1, value: "1" })),
    h("label", {}, "Replicas (-1: default)", h("input", { name: "replicas", type: "number", min: -1, value: "-1" })),
    h("button", { class: "primary" }, "Create")));
}

async function topic(name, tab, query) {
  const path = `topics/${encodeURIComponent(name)}`;
  const tabs = [["messages", "Messages"], ["partitions", "Partitions"], ["configuration", "Configuration"], ["producers", "Producers"]];
  const head = [
    h("h1", {}, topicLinkBack(), " / ", name),
    h("div", { class: "tabs" }, tabs.map(([key, words]) => h("a", { href: `#/${path}/${key}`, "aria-current": key === tab ? "page" : null }, words))),
  ];
  if (tab === "messages") return messages(name, path, query, head);
  if (tab === "producers") {
    const found = await ask(`/api/topics/${encodeURIComponent(name)}/producers`);
    const rows = Object.entries(found.producers).flatMap(([partition, all]) => all.map((one) => ({ partition, ...one })));
    return { title: name, refresh: true, content: [...head, table(
      [["Partition", (one) => one.partition], ["Producer id", (one) => count(one.producer_id), "number"], ["Epoch", (one) => one.producer_epoch, "number"],
        ["Last sequence", (one) => count(one.last_sequence), "number"],
        ["Open transaction from", (one) => (one.transaction_start_offset ?? -1) < 0 ? "–" : count(one.transaction_start_offset), "number"]],
      rows, "The leaders remember no producer.")] };
  }
  const found = await ask(`/api/topics/${encodeURIComponent(name)}`);
  if (tab === "configuration") return { title: name, content: [...head, configs("topic", name, found.configs, found.configs_error)] };
  const most = Math.max(1, ...found.partitions.map((one) => one.size || 0));
  return {
    title: name, refresh: true,
    content: [...head,
      table([["Partition", (one) => one.partition, "number"], ["Leader", (one) => (one.leader ? one.leader.node_id : h("span", { class: "bad" }, "none"))],
        ["Replicas", (one) => ids(one.replicas)],
        ["In sync", (one) => h("span", { class: one.isr.length < one.replicas.length ? "warn" : "" }, ids(one.isr))],
        ["First offset", (one) => count(one.start), "number"], ["End offset", (one) => count(one.end), "number"],
        ["Size", (one) => h("span", { class: "bars" }, bar(one.size, most), size(one.size))]],
      found.partitions),
      h("p", { class: "muted" }, "Topic id ", h("code", {}, found.id)),
      facts.changes ? topicChanges(name, found) : null],
  };
}

const topicLinkBack = () => h("a", { href: "#/topics" }, "Topics");

function bar(value, most) {
  const made = h("span", { class: "bar", "aria-hidden": "true" });
  made.style.width = `${Math.round(((value || 0) / most) * 80)}px`;
  return made;
}

function topicChanges(name, found) {
  return h("details", { class: "card" }, h("summary", {}, "Change this topic"),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      change("add-partitions", { name, total: Number(new FormData(event.target).get("total")) }, () => `Topic ${name} has more partitions.`);
    } }, h("label", {}, "Partitions in all", h("input", { name: "total", type: "number", min: found.partitions.length + 1, value: String(found.partitions.length + 1) })),
    h("button", {}, "Add partitions")),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      change("delete-topic", { name, confirmed: new FormData(event.target).get("confirmed") }, () => { go("topics"); return `Topic ${name} was deleted.`; });
    } }, h("label", {}, "Type its name to delete it", h("input", { name: "confirmed", autocomplete: "off" })), h("button", { class: "danger" }, "Delete topic")));
}

function configs(type, name, entries, error) {
  if (error) return problem(error);
  const rows = entries.slice().sort((a, b) => (a.source === "DEFAULT") - (b.source === "DEFAULT") || a.name.localeCompare(b.name));
  return table([["Name", (one) => h("span", { title: one.documentation || "" }, one.source === "DEFAULT" ? one.name : h("b", {}, one.name))],
    ["Value", (one) => (one.is_sensitive ? h("span", { class: "muted" }, "hidden") : h("code", {}, one.value === null ? "null" : one.value))],
    ["Source", (one) => one.source.toLowerCase().replaceAll("_", " ")],
    ["", (one) => (facts.changes && !one.is_read_only ? editConfig(type, name, one) : "")]], rows);
}

function editConfig(type, name, one) {
  return h("details", {}, h("summary", {}, "change"), h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const value = event.submitter.value === "reset" ? null : new FormData(event.target).get("value");
    change("set-config", { type, name, key: one.name, value }, () => `${one.name} is now ${value === null ? "the default" : value}.`);
  } }, h("input", { name: "value", "aria-label": `New value of ${one.name}`, value: one.value ?? "" }),
  h("button", { value: "set" }, "Set"), h("button", { value: "reset" }, "Default")));
}

// ------------------------------------------------------------------------------------------------ messages

const MOST_TAILED = 200;

async function messages(name, path, query, head) {
  const given = Object.fromEntries(query);
  const list = h("div", {});
  const status = h("p", { class: "muted", role: "status" });
  let source = null;
  let drawing = 0, pause = 0;
  const fresh = []; // records of the live tail that are not drawn yet
  // Adds rows, so that messages that are open stay open; waits long enough for the page to stay responsive.
  const draw = () => {
    const began = performance.now(), made = recordTable(fresh.splice(0).reverse());
    const body = list.querySelector("tbody");
    if (body) body.prepend(...made.querySelector("tbody").children); else list.replaceChildren(made);
    while (body && body.children.length > MOST_TAILED) body.lastElementChild.remove();
    pause = Math.max(250, 4 * (performance.now() - began));
    drawing = 0;
  };
  const request = () => {
    const wanted = { ...given };
    if (wanted.start === "time") wanted.start = `@${Date.parse(`${wanted.at}Z`)}`;
    if (wanted.start === "offset") wanted.start = wanted.at;
    delete wanted.at; delete wanted.live;
    return new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
  };
  const apply = (form) => go(`${path}/messages`, Object.fromEntries(new FormData(form)));
  const start = given.start || "newest";
  const form = h("form", { class: "row", role: "search", onsubmit: (event) => { event.preventDefault(); apply(event.target); } },
    h("label", {}, "From", h("select", { name: "start", onchange: (event) => {
      const at = form.querySelector("[name=at]");
      at.parentElement.hidden = !["time", "offset"].includes(event.target.value);
      at.type = event.target.value === "time" ? "datetime-local" : "number";
    } }, [["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset"], ["time", "a time (UTC)"]].map(([value, words]) =>
      h("option", { value, selected: value === start }, words)))),
    h("label", { hidden: !["time", "offset"].includes(start) }, "At", h("input", { name: "at", type: start === "time" ? "datetime-local" : "number", step: start === "time" ? "1" : null, value: given.at || "" })),
    h("label", {}, "Partition", h("input", { name: "partition", type: "number", min: 0, placeholder: "all", value: given.partition || "", size: 5 })),
    h("label", {}, "Key contains", h("input", { name: "key", value: given.key || "" })),
    h("label", {}, "Value or header contains", h("input", { type: "search", name: "text", value: given.text || "" })),
    h("label", {}, "Most", h("select", { name: "limit" }, ["20", "50", "200", "500"].map((one) => h("option", { selected: one === (given.limit || "50") }, one)))),
    h("button", { class: "primary" }, "Search"),
    h("button", { type: "button", "aria-pressed": String(Boolean(given.live)), onclick: () => go(`${path}/messages`, { ...given, live: given.live ? "" : "1" }) },
      given.live ? "Stop live tail" : "Live tail"));
  const api = `/api/topics/${encodeURIComponent(name)}`;
  if (given.live) {
    status.textContent = "Connecting …";
    source = new EventSource(`${api}/tail?${request()}`);
    source.onmessage = (event) => {
      const one = JSON.parse(event.data);
      if (one.error) { status.replaceChildren(problem(one)); source.close(); return; }
      if (one.skipped) { status.textContent = `More messages come than can be shown: ${count(one.skipped)} skipped.`; return; }
      if (one.ready) { status.textContent = "Waiting for new messages …"; return; }
      fresh.push(one);
      if (fresh.length > MOST_TAILED) fresh.shift();
      drawing = drawing || setTimeout(draw, pause);
    };
    source.onerror = () => { status.textContent = "The connection is lost; trying again …"; };
  } else {
    try {
      const found = await ask(`${api}/messages?${request()}`);
      list.append(recordTable(found.records));
      status.textContent = `${count(found.records.length)} shown, ${count(found.read)} read${found.complete ? "." : "; the search stopped at its limit of time."}`;
      if (found.left_out.length) status.append(" ", h("span", { class: "bad" }, `Without partition ${found.left_out.join(", ")}, whose leader is missing or does not answer.`));
    } catch (error) { if (error.quiet) throw error; list.append(problem(error)); }
  }
  return { title: name, leave: () => { clearTimeout(drawing); if (source) source.close(); }, content: [...head, form, status, list, facts.changes ? sendRecord(name) : null] };
}

function recordTable(records) {
  return table([["Time (UTC)", (one) => time(one.timestamp)], ["Partition", (one) => one.partition, "number"], ["Offset", (one) => count(one.offset), "number"],
    ["Key", (one) => preview(one.key, 40)],
    ["Value", (one) => h("details", {}, h("summary", {}, preview(one.value)), shownValue(one.value),
      one.headers.length ? table([["Header", (each) => each.name], ["Value", (each) => preview(each.value)]], one.headers) : null)]],
  records, "No message.");
}

function sendRecord(topicName) {
  return h("details", { class: "card" }, h("summary", {}, "Send a message"), h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    change("send-record", { topic: topicName, key: given.key || null, value: given.value, partition: given.partition === "" ? null : Number(given.partition) },
      (found) => `Written to partition ${found.partition} at offset ${found.offset}.`);
  } }, h("label", {}, "Key", h("input", { name: "key" })), h("label", {}, "Partition", h("input", { name: "partition", type: "number", min: 0, placeholder: "by key" })),
  h("label", {}, "Value", h("textarea", { name: "value", rows: 3, cols: 40 })), h("button", { class: "primary" }, "Send")));
}

// ------------------------------------------------------------------------------------------------ groups

async function groups(parts, query) {
  if (parts.length) return group(parts[0]);
  const given = Object.fromEntries(query);
  const found = await ask(`/api/groups?${query}`);
  return {
    title: "Groups", refresh: true,
    content: [h("h1", {}, "Groups"), filter("groups", given),
      found.silent.length ? h("p", { class: "bad" }, `Without the groups of broker ${found.silent.join(", ")}, which does not answer.`) : null,
      table([["Group", (one) => groupLink(one.group_id)], ["State", (one) => one.state || "–"], ["Type", (one) => one.group_type || one.protocol_type || "–"],
        ["Lag", (one) => count(one.lag), "number"]], found.groups, "No group matches."), pager(found, "groups", given)],
  };
}

let replayAt = {}; // the rebalance that is looked at, by group

async function group(id) {
  const found = await ask(`/api/group?id=${encodeURIComponent(id)}`);
  const lag = found.positions.reduce((sum, one) => sum + (one.lag || 0), 0);
  return {
    title: id, refresh: true,
    content: [
      h("h1", {}, h("a", { href: "#/groups" }, "Groups"), " / ", id),
      h("div", { class: "tiles" }, tile("members", found.group.members.length), tile("lag", lag, false),
        h("div", { class: "tile" }, h("b", {}, found.group.state), h("span", { class: "muted" }, `${found.group.group_type}, ${found.group.assignor || "no assignor"}`))),
      h("h2", {}, "Lag"), lineChart(found.lag, "Lag"),
      h("h2", {}, "Positions"),
      table([["Topic", (one) => topicLink(one.topic)], ["Partition", (one) => one.partition, "number"], ["Position", (one) => count(one.offset), "number"],
        ["End", (one) => count(one.end), "number"], ["Lag", (one) => h("span", { class: one.lag ? "warn" : "" }, count(one.lag)), "number"],
        ["Member", (one) => (one.member ? h("code", {}, one.member) : "–")]], found.positions, "The group has committed nothing."),
      h("h2", {}, "Members"),
      table([["Member", (one) => h("code", {}, one.member_id)], ["Client", (one) => `${one.client_id} at ${one.client_host}`],
        ["Partitions", (one) => one.assignment.map((each) => h("span", { class: "member" }, `${each.topic}-${each.partition}`))]],
      found.group.members, "The group has no members."),
      h("h2", {}, "Rebalances"), replay(id, found.rebalances),
      facts.changes ? groupChanges(id, found) : null,
    ],
  };
}

function replay(id, events) {
  if (events.length < 2) return h("p", { class: "card muted" }, "No rebalance was seen since this page watches the group.");
  const shown = h("div", {});
  const draw = (number) => {
    const one = events[number], before = number ? events[number - 1].assignment : {};
    shown.replaceChildren(h("p", {}, `${time(one.time)} · ${one.state} · ${number + 1} of ${events.length}`),
      table([["Member", ([member]) => h("code", {}, member)], ["Partitions", ([member, all]) => all.map((each) =>
        h("span", { class: (before[member] || []).includes(each) ? "member" : "member good" }, each))]], Object.entries(one.assignment), "No members."));
  };
  const at = Math.min(replayAt[id] ?? events.length - 1, events.length - 1);
  draw(at);
  return h("div", { class: "card" }, h("label", {}, "Step through the rebalances; what a member gained is green",
    h("input", { type: "range", name: "replay", min: 0, max: events.length - 1, value: String(at), oninput: (event) => {
      const number = Number(event.target.value);
      if (number === events.length - 1) delete replayAt[id]; else replayAt[id] = number;
      draw(number);
    } })), shown);
}

function groupChanges(id, found) {
  const all = [...new Set(found.positions.map((one) => one.topic))];
  return h("details", { class: "card" }, h("summary", {}, "Change this group"),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(event.target));
      change("reset-group", { group: id, topic: given.topic, to: given.to }, () => `Positions in ${given.topic} were moved.`);
    } }, h("label", {}, "Topic", h("input", { name: "topic", required: true, list: "topics", value: all[0] || "" })),
    h("datalist", { id: "topics" }, all.map((one) => h("option", { value: one }))),
    h("label", {}, "To (earliest, latest, offset, @ms)", h("input", { name: "to", required: true, value: "earliest" })), h("button", {}, "Move positions")),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      change("delete-group", { group: id, confirmed: new FormData(event.target).get("confirmed") }, () => { go("groups"); return `Group ${id} was deleted.`; });
    } }, h("label", {}, "Type its id to delete it", h("input", { name: "confirmed", autocomplete: "off" })), h("button", { class: "danger" }, "Delete group")));
}

// ------------------------------------------------------------------------------------------------ the rest

async function brokers(parts) {
  if (parts.length) {
    const found = await ask(`/api/brokers/${encodeURIComponent(parts[0])}/configs`);
    const { broker: one, error } = found;
    return { title: `Broker ${parts[0]}`, content: [h("h1", {}, h("a", { href: "#/brokers" }, "Brokers"), ` / ${parts[0]}`),
      h("p", {}, `${one.host}:${one.port}${one.rack ? `, rack ${one.rack}` : ""} `, broker(one.is_controller, one.in_service)),
      configs("broker", parts[0], found.configs, error)] };
  }
  const found = await ask("/api/brokers");
  const most = Math.max(1, ...found.brokers.map((one) => one.leaders));
  const dirs = found.brokers.flatMap((one) => Object.entries(one.log_dirs).map(([path, dir]) => ({ node: one.node_id, path, ...dir })));
  return {
    title: "Brokers", refresh: true,
    content: [
      h("h1", {}, "Brokers"),
      table([["Id", (one) => h("a", { href: `#/brokers/${one.node_id}` }, one.node_id), "number"], ["Address", (one) => `${one.host}:${one.port}`],
        ["Rack", (one) => one.rack || "–"], ["Leader of", (one) => h("span", { class: "bars" }, bar(one.leaders, most), count(one.leaders))],
        ["Replicas", (one) => count(one.replicas), "number"], ["", (one) => broker(one.is_controller, one.in_service)]], found.brokers),
      h("h2", {}, "Data directories"),
      table([["Broker", (one) => one.node, "number"], ["Path", (one) => h("code", {}, one.path)], ["Replicas", (one) => count(one.replicas), "number"],
        ["Size", (one) => size(one.bytes), "number"], ["State", (one) => (one.error ? h("span", { class: "bad" }, one.error.message) : h("span", { class: "good" }, "online"))]],
      dirs, "The brokers do not tell."),
      h("h2", {}, "Metadata quorum"), quorum(found.quorum),
      h("h2", {}, "Features"),
      found.features.error ? problem(found.features) : table([["Feature", ([name]) => name], ["Level", ([, one]) => one.max_version, "number"]], Object.entries(found.features.finalized || {})),
    ],
  };
}

function quorum(found) {
  if (found.error) return problem(found);
  const rows = [...found.voters.map((one) => ({ ...one, role: one.replica_id === found.leader_id ? "leader" : "voter" })),
    ...found.observers.map((one) => ({ ...one, role: "observer" }))];
  const end = Math.max(...rows.map((one) => one.log_end_offset));
  return h("div", {}, h("p", {}, `Leader ${found.leader_id}, epoch ${found.leader_epoch}, high watermark ${count(found.high_watermark)}`),
    table([["Node", (one) => one.replica_id, "number"], ["Role", (one) => one.role], ["End offset", (one) => (one.log_end_offset < 0 ? "–" : count(one.log_end_offset)), "number"],
      ["Behind", (one) => (one.log_end_offset < 0 ? h("span", { class: "warn" }, "unknown") : count(end - one.log_end_offset)), "number"]], rows));
}

async function transactions() {
  const found = await ask("/api/transactions");
  return { title: "Transactions", refresh: true, content: [h("h1", {}, "Transactions"), ...found.errors.map(problem),
    table([["Transactional id", (one) => one.transactional_id], ["State", (one) => one.state], ["Producer id", (one) => count(one.producer_id), "number"],
      ["Coordinator", (one) => one.coordinator, "number"]], found.transactions, "No transactional producer has been here.")] };
}

async function access() {
  const found = await ask("/api/access");
  const part = (title, value, draw) => [h("h2", {}, title), value && value.error ? problem(value) : draw(value)];
  return { title: "Access", content: [h("h1", {}, "Access"),
    ...part("Access control lists", found.acls, (rows) => table([["Principal", (one) => one.principal], ["Host", (one) => one.host],
      ["Resource", (one) => `${one.resource_type.toLowerCase()} ${one.resource_name}${one.pattern_type === "PREFIXED" ? "*" : ""}`],
      ["Operation", (one) => one.operation.toLowerCase()],
      ["Permission", (one) => h("span", { class: one.permission_type === "DENY" ? "bad" : "good" }, one.permission_type.toLowerCase())]],
    rows, "There are no ACLs.")),
    ...part("Users", found.users, (users) => table([["User", ([name]) => name], ["Mechanisms", ([, one]) => Object.keys(one).join(", ")]], Object.entries(users), "There are no SCRAM users.")),
    ...part("Quotas", found.quotas, (rows) => table([["Entity", (one) => h("code", {}, JSON.stringify(one.entity))], ["Limits", (one) => h("code", {}, JSON.stringify(one.values))]], rows, "There are no quotas."))] };
}

export const pages = { "": overview, topics, groups, brokers, metrics, transactions, access, faults };
