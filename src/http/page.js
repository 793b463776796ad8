
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
  if (s > 0 && s < .001) return digits(s * 1e6) + " µs";
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

const TONES = { none: "", work: "", caution: "amber", alarm: "red" };
const text = className => value => [{ text: value, className }];
const faint = show => (value, tone) => [{ text: show(value), className: value === 0 ? "none" : tone }];
const quantile = (value, isOver) => value === null ? "–" : (isOver ? "over " : "") + duration(value);

// What stands in a column, by its unit: one cell, or two.
const CELLS = {
  name: text("text name"),
  address: text("text peer"),
  text: text("text"),
  number: faint(number),
  bytes: faint(bytes),
  seconds: (value, tone) => [{ text: duration(value), className: tone }],
  times: value => [quantile(value.p50, value.p50_is_over), quantile(value.p99, value.p99_is_over)],
};

// A table of rows of cells, which are texts or objects of text, className and share. Heads are texts, or objects of text, className
// and title.
function fill(id, heads, rows) {
  const table = byId(id), section = table.closest("section"), empty = section && section.querySelector(".empty");
  if (!table.tHead) {
    const row = table.createTHead().insertRow();
    heads.forEach(head => {
      const { text, className = "", title } = typeof head === "object" ? head : { text: head };
      const th = el("th", className, text);
      if (title) th.title = title;
      row.append(th);
    });
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

// A table of a service, with its heading and what is to be said of it.
function section(service, heading) {
  const id = "table-" + service.name + "-" + heading.name;
  if (!byId(id)) {
    // Narrow ones stand in pairs.
    const narrow = service.tables.filter(it => it.columns.length <= 6);
    const isWide = heading.columns.length > 6 || narrow.length % 2 && heading === narrow.at(-1);
    const root = el("section", isWide ? "wide" : ""), scroll = el("div", "scroll"), table = el("table");
    table.id = id;
    scroll.append(table);
    root.append(el("h2", "", heading.title), el("p", "empty", heading.empty), scroll, el("p", "note"));
    byId("tables").append(root);
  }
  return id;
}

function rowsOf(service, heading) {
  const { columns } = heading, rows = last[service.name][heading.name];
  const id = section(service, heading);
  const heads = columns.flatMap(({ title, help, unit }) => unit === "times"
    ? ["p50", "p99"].map(share => ({ text: title + " " + share, title: help }))
    : [{ text: title, title: help, className: ["name", "address", "text"].includes(unit) ? "text" : "" }]);
  const most = columns.map(({ name, emphasis }) => emphasis === "work" ? Math.max(1, ...rows.map(row => row[name])) : 0);
  fill(id, heads, rows.map(row => columns.flatMap(({ name, unit, emphasis }, x) => {
    const value = row[name];
    if (value === null) return unit === "times" ? ["–", "–"] : ["–"];
    const cells = CELLS[unit](value, TONES[emphasis]);
    return most[x] ? [{ text: cells[0].text, className: "share", share: value / most[x] }] : cells;
  })));
  const more = heading.more ? "There are " + number(heading.more) + " more." : "";
  const note = byId(id).closest("section").querySelector(".note");
  say(note, [heading.help, heading.note, more].filter(Boolean).join(" "));
  note.hidden = rows.length === 0 || note.textContent === "";
}

const COLORS = { none: "blue", work: "green", caution: "amber", alarm: "red" };
const cards = new Map();
// The plots' own coordinates: one from sample to sample, and so high, with room for the line at the top. The plot of a
// young server is not all empty.
const HEIGHT = 100, TOP = 6, FEWEST = 20;

function makeCard(series) {
  const card = { title: series.title };
  const root = el("div", "card " + COLORS[series.emphasis]);
  card.number = el("span", "", "0");
  const numberLine = el("div", "number");
  numberLine.append(card.number, el("small", "", series.unit));
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
  return card;
}

function plot(series, history) {
  const key = series.service + " " + series.name;
  if (!cards.has(key)) cards.set(key, makeCard(series));
  const card = cards.get(key), { values } = series;
  const most = Math.max(values.length, FEWEST), peak = Math.max(0, ...values);
  Object.assign(card, { values, most, peak, full: history.most, interval: history.interval });
  say(card.number, number(series.is_rate ? values.at(-1) || 0 : series.now));
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
  const value = figure => (figure.is_seconds ? duration : figure.is_bytes ? bytes : n => n.toLocaleString("en"))(figure.value);
  fill(id, [{ text: "figure", className: "text" }, "value", ""], service.figures.map(figure =>
    [{ text: figure.name, className: "text" }, value(figure), { text: figure.help, className: "text help" }]));
}

function reloaded(reload, now) {
  if (!reload) return [];
  return [["reloaded", `${duration(Math.max(now - reload.at, 0))} ago${reload.has_worked ? "" : ", not done"}`]];
}

let last;

function show(status) {
  const { services, process } = status, loop = status.loop;
  const passed = last ? status.uptime - last.uptime : 0;
  const busy = passed > 0 ? (loop.busy - last.loop.busy) / passed : loop.busy / Math.max(status.uptime, .001);
  last = status;
  status.history.series.filter(series => isUsed(services.find(it => it.name === series.service)))
    .forEach(series => plot(series, status.history));
  // Those who look at this page are none of them.
  const clients = services.filter(it => it.name !== "http").reduce((sum, it) => sum + it.connections, 0);
  facts([
    ["up", duration(status.uptime)],
    ["clients", number(clients)],
    ["busy", (busy * 100).toLocaleString("en", { maximumFractionDigits: 1 }) + " %"],
    ["memory", bytes(process.resident_bytes)],
    ["version", status.version],
    ...reloaded(status.last_reload, status.started_at + status.uptime),
  ]);
  const used = services.filter(isUsed);
  used.forEach(service => service.tables.forEach(heading => rowsOf(service, heading)));
  const heads = ["connections", "so far", "read", "written", "connect errors", "failed sends"];
  fill("services", [{ text: "service", className: "text" }, ...heads], used.map(it => [
    { text: it.name, className: "text" }, ...faint(number)(it.connections, ""), number(it.connections_opened),
    bytes(it.received_bytes), bytes(it.sent_bytes), ...faint(number)(it.connect_errors, "red"),
    ...faint(number)(it.failed_sends, "red"),
  ]));
  used.filter(service => service.figures.length).forEach(figures);
  figures({ name: "the loop", figures: [
    { name: "ticks", value: loop.ticks, help: "Turns of the loop." },
    { name: "turns", value: loop.turns, help: "Turns of clients in them." },
    { name: "busy", value: loop.busy, is_seconds: true, help: "Time awake." },
    { name: "timers", value: loop.timers, help: "Timers that are armed." },
    ...loop.budgets_spent.map(it => ({ name: "budget " + it.budget, value: it.times, help: "How often this bound on a turn was reached." })),
    { name: "processor time", value: process.cpu, is_seconds: true, help: "Time that the process has used, of user and system together." },
    { name: "descriptors", value: process.open_fds, help: "Open files and connections, of " + number(process.max_fds) + " that there may be." },
  ] });
}

// The first service is always there; of the others, those that a client has connected to.
function isUsed(service) {
  return service.name === last.services[0].name || service.connections_opened > 0;
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
byId("app").hidden = false;
show(JSON.parse(byId("status").textContent));
setTimeout(refresh, REFRESH_MS);
