
"use strict";
// Everything that clients named comes in as text and is put in as text: nothing here reads or writes markup.
const REFRESH_MS = 2000, STALE_MS = 7000;
const byId = id => document.getElementById(id);

function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Leaves alone what is as it should be, so that a selection survives.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function number(n) {
  if (n >= 1e6) return n.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 });
  return n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
}

function duration(s) {
  const digits = n => n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
  if (s < 1) return digits(s * 1000) + " ms";
  if (s < 60) return digits(s) + " s";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = units.findIndex(([length]) => s >= length);
  const [[large, name], [small, smaller]] = [units[at], units[at + 1]];
  const rest = Math.floor(s % large / small);
  return Math.floor(s / large) + " " + name + (rest ? " " + rest + " " + smaller : "");
}

function bytes(n) {
  const at = n < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(n) / 10));
  return (n / 1024 ** at).toLocaleString("en", { maximumSignificantDigits: 3 }) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][at];
}

const maybe = (value, show) => value === null ? "–" : show(value);
const count = (value, alarm) => ({ text: number(value), className: value === 0 ? "none" : alarm || "" });
const name = text => ({ text, className: "text name" });

// A table of rows of cells, which are texts or objects of text, className and share.
function fill(id, heads, rows) {
  const table = byId(id), section = table.closest("section"), empty = section && section.querySelector(".empty");
  if (!table.tHead) {
    const row = table.createTHead().insertRow();
    heads.forEach(head => row.append(el("th", head.startsWith("<") ? "text" : "", head.replace("<", ""))));
    table.createTBody();
  }
  table.hidden = rows.length === 0;
  if (empty) empty.hidden = rows.length > 0;
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, y) => {
    const row = body.rows[y] || body.insertRow();
    cells.forEach((cell, x) => {
      const { text, className = "", share } = typeof cell === "object" ? cell : { text: cell };
      const td = row.cells[x] || row.insertCell();
      say(td, text);
      td.className = className;
      if (share !== undefined) td.style.setProperty("--share", share);
    });
  });
}

const CARDS = [
  { title: "Locks granted", unit: "per second", color: "blue", of: h => h.acquired_per_second },
  { title: "Working", unit: "locks held", color: "green", of: h => h.working, now: n => n.working },
  { title: "Waiting", unit: "requests", color: "amber", of: h => h.waiting, now: n => n.waiting },
  { title: "Refused, queue full", unit: "per second", color: "red", of: h => h.refused_per_second },
];
// The plots' own coordinates: one from sample to sample, and so high, with room for the line at the top. The plot of a
// young server is not all empty.
const HEIGHT = 100, TOP = 6, FEWEST = 20;

function makeCard(card) {
  const root = el("div", "card " + card.color);
  card.number = el("span", "", "0");
  const numberLine = el("div", "number");
  numberLine.append(card.number, el("small", "", card.unit));
  card.left = el("span");
  card.right = el("span", "peak");
  const sub = el("div", "sub");
  sub.append(card.left, card.right);
  card.plot = svg("svg", { preserveAspectRatio: "none", role: "img" });
  card.area = svg("path", { class: "area" });
  card.line = svg("path", { class: "line" });
  card.cursor = svg("line", { y1: 0, y2: HEIGHT, visibility: "hidden" });
  card.plot.append(card.area, card.line, card.cursor);
  card.plot.addEventListener("pointermove", event => {
    const box = card.plot.getBoundingClientRect();
    card.at = (event.clientX - box.left) / box.width;
    point(card);
  });
  card.plot.addEventListener("pointerleave", () => { card.at = undefined; point(card); });
  root.append(el("h2", "", card.title), numberLine, sub, card.plot);
  byId("cards").append(root);
}

function plot(card, history, now) {
  const values = card.of(history), most = Math.max(values.length, FEWEST), peak = Math.max(0, ...values);
  Object.assign(card, { values, most, peak, full: history.most, interval: history.interval });
  say(card.number, number(card.now ? card.now(now) : values.length ? values[values.length - 1] : 0));
  const x = n => most - values.length + n;
  const y = value => HEIGHT - (peak ? value / peak * (HEIGHT - TOP) : 0) - 1;
  const points = values.map((value, n) => x(n) + "," + y(value).toFixed(1));
  card.plot.setAttribute("viewBox", "0 0 " + (most - 1) + " " + HEIGHT);
  card.line.setAttribute("d", points.length > 1 ? "M" + points.join("L") : "");
  card.area.setAttribute("d", points.length > 1 ? "M" + x(0) + "," + HEIGHT + "L" + points.join("L") + "V" + HEIGHT + "Z" : "");
  card.plot.setAttribute("aria-label", card.title + " in the last ten minutes, at most " + number(peak));
  point(card);
}

// What the pointer points at, or else what the plot is about.
function point(card) {
  const { values, most, full } = card;
  const index = card.at === undefined ? -1 : Math.round(card.at * (most - 1)) - most + values.length;
  if (index < 0 || index >= values.length) {
    card.cursor.setAttribute("visibility", "hidden");
    say(card.left, values.length < full ? "last " + duration(Math.max(values.length, 1) * card.interval) : "last 10 min");
    say(card.right, "peak " + number(card.peak));
    return;
  }
  const x = most - values.length + index;
  card.cursor.setAttribute("x1", x);
  card.cursor.setAttribute("x2", x);
  card.cursor.setAttribute("visibility", "visible");
  const ago = (values.length - 1 - index) * card.interval;
  say(card.left, ago ? duration(ago) + " ago" : "just now");
  say(card.right, number(values[index]));
}

function facts(pairs) {
  const list = byId("facts");
  pairs.forEach(([term, value], n) => {
    let pair = list.children[n];
    if (!pair) {
      pair = el("div");
      pair.append(el("dt"), el("dd"));
      list.append(pair);
    }
    say(pair.children[0], term);
    say(pair.children[1], value);
  });
}

// A service's table, folded up.
function figures(service) {
  const id = "figures-" + service.name;
  if (!byId(id)) {
    const details = el("details"), table = el("table"), scroll = el("div", "scroll");
    table.id = id;
    scroll.append(table);
    details.append(el("summary", "", "All figures of " + service.name), scroll);
    byId("figures").append(details);
  }
  const value = figure => figure.is_seconds ? duration(figure.value) : figure.value.toLocaleString("en");
  fill(id, ["<figure", "value", "<"], service.figures.map(figure =>
    [{ text: figure.name, className: "text" }, value(figure), { text: figure.help, className: "text help" }]));
}

function reloaded(reload, now) {
  if (!reload) return [];
  return [["reloaded", `${duration(Math.max(now - reload.at, 0))} ago${reload.has_worked ? "" : ", not done"}`]];
}

let last;

function show(status) {
  const { pools, services } = status, loop = status.loop;
  const passed = last ? status.uptime - last.uptime : 0;
  const busy = passed > 0 ? (loop.busy - last.loop.busy) / passed : loop.busy / Math.max(status.uptime, .001);
  const now = { working: 0, waiting: 0 };
  for (const figure of services[0].figures) {
    if (figure.name === "processing_workers") now.working = figure.value;
    if (figure.name === "waiting_workers") now.waiting = figure.value;
  }
  CARDS.forEach(card => plot(card, status.history, now));
  facts([
    ["up", duration(status.uptime)],
    ["clients", number(services[0].connections)],
    ["busy", (busy * 100).toLocaleString("en", { maximumFractionDigits: 1 }) + " %"],
    ["memory", bytes(loop.memory_bytes)],
    ["version", status.version],
    ...reloaded(status.last_reload, status.started_at + status.uptime),
  ]);
  const most = Math.max(1, ...pools.types.map(type => type.acquired));
  fill("types",
    ["<type", "acquired", "working", "waiting", "done", "full", "timeouts", "wait p50", "wait p99", "hold p50", "hold p99"],
    pools.types.map(type => [
      name(type.name), { text: number(type.acquired), className: "share", share: type.acquired / most },
      count(type.working), count(type.waiting, "amber"), count(type.done), count(type.full, "red"),
      count(type.timeouts, "amber"), maybe(type.wait.p50, duration), maybe(type.wait.p99, duration),
      maybe(type.hold.p50, duration), maybe(type.hold.p99, duration),
    ]));
  fill("busiest", ["<key", "working", "waiting", "oldest"], pools.busiest.map(it =>
    [name(it.key), count(it.working), count(it.waiting, "amber"), duration(it.oldest)]));
  fill("hottest", ["<key", "refused", "waited"], pools.hottest.map(it =>
    [name(it.key), count(it.refusals, "red"), count(it.waits, "amber")]));
  const note = byId("hottest-note");
  note.hidden = pools.hottest.length === 0;
  const error = pools.hottest_error ? " A key may have had up to " + number(pools.hottest_error) + " more." : "";
  say(note, "What is old fades: after half an hour, an event counts half." + error);
  fill("holders", ["<key", "<client", "for"], pools.holders.map(it =>
    [name(it.key), { text: it.peer, className: "text peer" }, duration(it.age)]));
  const used = services.filter((it, n) => n === 0 || it.connections_opened);
  fill("services", ["<service", "connections", "so far", "read", "written", "connect errors", "failed sends"],
    used.map(it => [
      { text: it.name, className: "text" }, count(it.connections), number(it.connections_opened), bytes(it.received_bytes),
      bytes(it.sent_bytes), count(it.connect_errors, "red"), count(it.failed_sends, "red"),
    ]));
  used.filter(service => service.figures.length).forEach(figures);
  figures({ name: "the loop", figures: [
    { name: "ticks", value: loop.ticks, help: "Turns of the loop." },
    { name: "turns", value: loop.turns, help: "Turns of clients in them." },
    { name: "busy", value: loop.busy, is_seconds: true, help: "Time awake." },
    { name: "timers", value: loop.timers, help: "Timers that are armed." },
    ...loop.budgets_spent.map(it => ({ name: "budget " + it.budget, value: it.times, help: "How often this bound on a turn was reached." })),
  ] });
  last = status;
}

let heard = Date.now(), failing = false;

async function refresh() {
  if (!document.hidden) {
    try {
      const response = await fetch("/status.json", { cache: "no-store", signal: AbortSignal.timeout(STALE_MS) });
      if (!response.ok) throw new Error(response.statusText);
      show(await response.json());
      heard = Date.now();
      failing = false;
    } catch (error) {
      failing = true;
    }
  } else {
    heard = Date.now();
  }
  const silence = Date.now() - heard, isStale = failing && silence >= REFRESH_MS;
  byId("app").classList.toggle("stale", isStale);
  say(byId("health-text"), isStale ? "no answer for " + duration(Math.round(silence / 1000)) : "live");
  setTimeout(refresh, REFRESH_MS);
}

say(byId("place"), location.host);
document.title = location.host + " – poolcounter";
CARDS.forEach(makeCard);
byId("app").hidden = false;
show(JSON.parse(byId("status").textContent));
setTimeout(refresh, REFRESH_MS);
