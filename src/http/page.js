
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
  if (s === 0) return "0 s";
  if (s < .001) return digits(s * 1e6) + " µs";
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
  key: text("text"),
  number: faint(number),
  bytes: faint(bytes),
  seconds: faint(duration),
  times: value => [quantile(value.p50, value.p50_is_over), quantile(value.p99, value.p99_is_over)],
};

// A table of rows of cells, which are texts or objects of text, className, share, link, title and actions. Heads are texts, or
// objects of text, className, title, link and sort, which is called when the head is clicked.
function fill(id, heads, rows) {
  const table = byId(id), section = table.closest("section"), empty = section && section.querySelector(".empty");
  if (!table.tHead) {
    table.createTHead().insertRow();
    table.createTBody();
  }
  const headRow = table.tHead.rows[0];
  while (headRow.cells.length > heads.length) headRow.lastChild.remove();
  heads.forEach((head, x) => {
    const { text, className = "", title = "", link, sort } = typeof head === "object" ? head : { text: head };
    const th = headRow.cells[x] || headRow.appendChild(el("th"));
    th.className = className;
    th.title = title;
    th.onclick = sort || null;
    write(th, text, link);
  });
  table.hidden = rows.length === 0;
  if (empty) empty.hidden = rows.length > 0;
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, y) => {
    const row = body.rows[y] || body.insertRow();
    cells.forEach((cell, x) => {
      const { text, className = "", share, link, title = "", actions } = typeof cell === "object" ? cell : { text: cell };
      const td = row.cells[x] || row.insertCell();
      write(td, text, link, actions);
      td.className = className;
      td.title = title;
      if (share !== undefined) td.style.setProperty("--share", share);
    });
    while (row.cells.length > cells.length) row.deleteCell(-1);
  });
}

// Puts a text in, which may be a link, and buttons beside it.
function write(node, text, link, actions = []) {
  const key = [link || "", ...actions.map(action => action.path)].join(" ");
  if (key === " " || key === "") {
    if (node.dataset.key) {
      node.replaceChildren();
      delete node.dataset.key;
    }
    return say(node, text);
  }
  if (node.dataset.key === key && node.firstChild.textContent === text) return;
  node.dataset.key = key;
  const first = el(link ? "a" : "span", "", text);
  if (link) first.href = link;
  node.replaceChildren(first, ...actions.map(({ name, path }) => {
    const button = el("button", "", name);
    button.onclick = () => act(button, path);
    return button;
  }));
}

async function act(button, path) {
  button.disabled = true;
  try {
    const { ok, statusText } = await fetch(path, { method: "POST", signal: AbortSignal.timeout(STALE_MS) });
    if (!ok) button.textContent = statusText;
  } catch (error) {
    button.textContent = "no answer";
  }
}

// How many rows of a table are shown before a click, the tables of which all are, and the orders that were clicked for.
const FOLDED = 10, open = new Set(), orders = {};
const isText = unit => ["name", "address", "text", "key"].includes(unit);
const pathOf = (service, action, key) => ["", service.name, action, key].map(encodeURIComponent).join("/");

function ordered(rows, order) {
  if (!order) return rows;
  const value = row => row[order.name] !== null && typeof row[order.name] === "object" ? row[order.name].p50 : row[order.name];
  const compare = (one, other) => typeof one === "string" ? one.localeCompare(other) : one - other;
  const sorted = rows.filter(row => value(row) !== null).sort((one, other) => compare(value(one), value(other)));
  if (order.isDown) sorted.reverse();
  return [...sorted, ...rows.filter(row => value(row) === null)];
}

// A button below a table that shows all of its rows, or the first ones again.
function unfold(id, all, shown, again) {
  const root = byId(id).closest("section");
  let button = root.querySelector("button.fold");
  if (!button) {
    button = el("button", "fold");
    byId(id).closest(".scroll").after(button);
  }
  button.hidden = all <= FOLDED + 2;
  say(button, shown < all ? "Show all " + number(all) : "Show the first " + FOLDED);
  button.onclick = () => {
    if (!open.delete(id)) open.add(id);
    again();
  };
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
  const { columns } = heading, id = section(service, heading), all = ordered(last[service.name][heading.name], orders[id]);
  const heads = columns.flatMap(({ name, title, help, unit }) => {
    const order = orders[id], isSorting = order && order.name === name;
    const className = [isText(unit) ? "text" : "", isSorting ? order.isDown ? "down" : "up" : ""].join(" ").trim();
    const sort = () => {
      // Numbers begin with the greatest, names with the first; the third click has it as the server tells it.
      const first = !isText(unit);
      if (!isSorting) orders[id] = { name, isDown: first };
      else if (order.isDown === first) order.isDown = !first;
      else delete orders[id];
      rowsOf(service, heading);
    };
    return unit === "times"
      ? ["p50", "p99"].map(share => ({ text: title + " " + share, title: help, className, sort }))
      : [{ text: title, title: help, className, sort }];
  });
  const rows = open.has(id) || all.length <= FOLDED + 2 ? all : all.slice(0, FOLDED);
  const most = columns.map(({ name, emphasis }) => emphasis === "work" ? Math.max(1, ...all.map(row => row[name])) : 0);
  byId(id).classList.toggle("many", heads.length > 12);
  fill(id, heads, rows.map(row => columns.flatMap(({ name, unit, emphasis, link, actions }, x) => {
    const value = row[name];
    if (value === null) return unit === "times" ? ["–", "–"] : ["–"];
    const cells = CELLS[unit](value, TONES[emphasis]);
    if (link) cells[0].link = link + encodeURIComponent(value);
    if (!value && link) cells[0].text = "(no name)";
    if (actions && last.is_admin) cells[0].actions = actions.map(name => ({ name, path: pathOf(service, name, value) }));
    return most[x] ? [{ text: cells[0].text, className: "share", share: value / most[x] }] : cells;
  })));
  unfold(id, all.length, rows.length, () => rowsOf(service, heading));
  const more = heading.more ? "There are " + number(heading.more) + " more." : "";
  const note = byId(id).closest("section").querySelector(".note");
  say(note, [heading.help, heading.note, more].filter(Boolean).join(" "));
  note.hidden = rows.length === 0 || note.textContent === "";
}

// From how many seconds on a cell of a matrix is how hot. The same stands in page.rs.
const HEAT = [10, 60, 600, 3600, 21600];
// What is chosen for the matrix, and all of it, if it was asked for.
const chosen = { isAll: location.pathname !== "/", words: [], order: "server" };
let whole;

const ageOf = heat => heat ? heat[1] : 0, countOf = heat => heat ? heat[0] : 0;
const shortly = s => s < 60 ? Math.round(s) + " s" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
const compact = n => n < 10000 ? String(n) : n.toLocaleString("en", { notation: "compact", maximumFractionDigits: n < 1e5 ? 1 : 0 });
const BY = {
  server: () => 0,
  age: (one, other) => ageOf(other.heat) - ageOf(one.heat) || countOf(other.heat) - countOf(one.heat),
  count: (one, other) => countOf(other.heat) - countOf(one.heat),
  name: (one, other) => one.name.localeCompare(other.name),
};

function heatCell(heat, isDense, title) {
  if (!heat) return { text: "", className: "heat" };
  const [count, age] = heat, level = HEAT.findLastIndex(least => age >= least);
  const text = compact(count) + (isDense ? "" : "\n" + shortly(age));
  return { text, className: "heat" + (level < 0 ? "" : " h" + level), title: title + ": " + number(count) + " ready, oldest " + duration(age) };
}

function matrixSection(service) {
  const root = el("section", "wide"), bar = el("div", "bar"), scroll = el("div", "scroll"), table = el("table", "matrix");
  const search = el("input"), order = el("select"), button = el("button");
  table.id = "matrix";
  search.type = "search";
  search.oninput = () => {
    chosen.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    drawMatrix(service);
    if (chosen.words.length && !whole) fetchWhole(service);
  };
  for (const [value, text] of [["server", "worst first"], ["age", "oldest first"], ["count", "most first"], ["name", "by name"]]) {
    order.append(Object.assign(el("option", "", text), { value }));
  }
  order.onchange = () => { chosen.order = order.value; drawMatrix(service); };
  button.onclick = () => {
    chosen.isAll = !chosen.isAll;
    drawMatrix(service);
    if (chosen.isAll) fetchWhole(service);
  };
  bar.append(search, order, button);
  scroll.append(table);
  root.append(el("h2", "", service.matrix.title), el("p", "empty", service.matrix.empty), bar, scroll, el("p", "note"));
  byId("matrices").append(root);
  return { search, button, bar, note: root.querySelector(".note") };
}

let matrixParts;

async function fetchWhole(service) {
  try {
    const response = await fetch(service.matrix.path + ".json", { cache: "no-store", signal: AbortSignal.timeout(STALE_MS) });
    const status = await response.json();
    whole = status.services.find(it => it.name === service.name).matrix;
    drawMatrix(service);
  } catch (error) {
    // What is there stays until the next time.
  }
}

function drawMatrix(service) {
  const parts = matrixParts ||= matrixSection(service), wantsAll = chosen.isAll || chosen.words.length > 0;
  const matrix = wantsAll && whole ? whole : service.matrix, [rowWord, rowPath] = matrix.row, [columnWord, columnPath] = matrix.column;
  let columns = matrix.columns.map((name, at) => ({ name, at, heat: matrix.all[at] }));
  let rows = matrix.rows.map(({ name, values }) => ({ name, values, heat: values.at(-1) }));
  for (const word of chosen.words) {
    const has = it => it.name.toLowerCase().includes(word);
    if (columns.some(has) && !rows.some(has)) columns = columns.filter(has);
    else rows = rows.filter(has);
  }
  columns.sort(BY[chosen.order]);
  rows.sort(BY[chosen.order]);
  const isFound = chosen.words.length > 0, isDense = columns.length > 16;
  const rest = matrix.columns.length, places = columns.map(column => column.at);
  if (matrix.more_columns && !isFound) places.push(rest);
  places.push(rest + 1);
  const label = place => place < rest ? matrix.columns[place] : place === rest ? number(matrix.more_columns) + " more" : "all";
  const line = (name, values, link) => [
    { text: name, className: "text name", link },
    ...places.map(place => ({ ...heatCell(values[place], isDense, name + ", " + label(place)), ...(place > rest ? { className: "heat sum" } : {}) })),
  ];
  const heads = places.map(place => place < rest
    ? { text: label(place), className: "turned", title: columnWord + " " + label(place), link: columnPath + encodeURIComponent(label(place)) }
    : { text: label(place), className: "turned", link: matrix.path });
  const lines = rows.map(row => line(row.name, row.values, rowPath + encodeURIComponent(row.name)));
  if (!isFound && matrix.more_rows) lines.push(line(number(matrix.more_rows) + " more", matrix.others, matrix.path));
  if (!isFound && matrix.rows.length) lines.push(line("all", matrix.all, matrix.path).map((cell, x) => x ? { ...cell, className: "heat sum" } : cell));
  fill("matrix", [{ text: rowWord, className: "text" }, ...heads], lines);
  byId("matrix").classList.toggle("dense", isDense);
  const all = [matrix.rows.length + matrix.more_rows, matrix.columns.length + matrix.more_columns];
  const isSmall = !service.matrix.more_rows && !service.matrix.more_columns;
  parts.bar.hidden = all[0] === 0;
  parts.search.placeholder = "search " + number(all[0]) + " " + rowWord + "s, " + number(all[1]) + " " + columnWord + "s";
  parts.search.setAttribute("aria-label", parts.search.placeholder);
  parts.button.hidden = isSmall || location.pathname !== "/";
  say(parts.button, chosen.isAll ? "Show the worst" : "Show all");
  say(parts.note, isFound && !lines.length ? "Nothing has that name." : matrix.help);
  parts.note.hidden = all[0] === 0;
}

function matrixOf(service) {
  if (location.pathname !== "/") whole = service.matrix;
  drawMatrix(service);
  if (location.pathname === "/" && (chosen.isAll || chosen.words.length)) fetchWhole(service);
}

const COLORS = { none: "blue", work: "green", caution: "amber", alarm: "red" };
const cards = new Map();
// The plots' own coordinates: one from sample to sample, and so high, with room for the line at the top. The plot of a
// young server is not all empty.
const HEIGHT = 100, TOP = 6, FEWEST = 20;

function makeCard(series) {
  const card = { title: series.title, format: series.unit === "seconds" ? duration : number };
  const root = el("div", "card " + COLORS[series.emphasis]);
  card.number = el("span", "", "0");
  const numberLine = el("div", "number");
  numberLine.append(card.number, el("small", "", series.unit === "seconds" ? "" : series.unit));
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
  say(card.number, card.format(series.is_rate ? values.at(-1) || 0 : series.now));
  const x = n => most - values.length + n;
  const y = value => HEIGHT - (peak ? value / peak * (HEIGHT - TOP) : 0) - 1;
  const points = values.map((value, n) => x(n) + "," + y(value).toFixed(1));
  card.plot.setAttribute("viewBox", "0 0 " + (most - 1) + " " + HEIGHT);
  card.line.setAttribute("d", points.length > 1 ? "M" + points.join("L") : "");
  card.area.setAttribute("d", points.length > 1 ? "M" + x(0) + "," + HEIGHT + "L" + points.join("L") + "V" + HEIGHT + "Z" : "");
  card.plot.setAttribute("aria-label", card.title + " in the " + lastOf(card, card.full) + ", at most " + card.format(peak));
  point(card);
}

function lastOf(card, points) {
  return "last " + duration(points * card.interval);
}

// What the pointer points at, or else what the plot is about.
function point(card) {
  const { values, most, full } = card;
  const index = card.at === undefined ? -1 : Math.round(card.at * (most - 1)) - most + values.length;
  if (index < 0 || index >= values.length) {
    card.cursor.setAttribute("visibility", "hidden");
    say(card.left, lastOf(card, Math.max(Math.min(values.length, full), 1)));
    say(card.right, "peak " + card.format(card.peak));
    return;
  }
  const x = most - values.length + index;
  card.cursor.setAttribute("x1", x);
  card.cursor.setAttribute("x2", x);
  card.cursor.setAttribute("visibility", "visible");
  const ago = (values.length - 1 - index) * card.interval;
  say(card.left, ago ? duration(ago) + " ago" : "just now");
  say(card.right, card.format(values[index]));
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
  byId("title").hidden = !status.title;
  byId("loop").hidden = Boolean(status.title);
  say(byId("title"), status.title || "");
  status.history.series.filter(series => isUsed(services.find(it => it.name === series.service)))
    .forEach(series => plot(series, status.history));
  // Those who look at this page are none of them.
  const clients = services.filter(it => it.name !== "http").reduce((sum, it) => sum + it.connections, 0);
  facts([
    ["up", duration(status.uptime)],
    [status.title ? "its clients" : "clients", number(clients)],
    ["busy", (busy * 100).toLocaleString("en", { maximumFractionDigits: 1 }) + " %"],
    ["memory", bytes(process.resident_bytes)],
    ["version", status.version],
    ...reloaded(status.last_reload, status.started_at + status.uptime),
  ]);
  const used = services.filter(isUsed);
  used.filter(service => service.matrix).forEach(matrixOf);
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

// Those that a client has connected to; the first if there is none.
function isUsed(service) {
  const isAny = last.services.some(it => it.name !== "http" && it.connections_opened > 0);
  return isAny ? service.connections_opened > 0 : service.name === last.services[0].name;
}

// Where what this page shows is as JSON.
const source = location.pathname === "/" ? "/status.json" : location.pathname + ".json";

let heard = Date.now(), failing = false;

async function refresh() {
  if (!document.hidden) {
    try {
      const response = await fetch(source, { cache: "no-store", signal: AbortSignal.timeout(STALE_MS) });
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
byId("app").hidden = false;
show(JSON.parse(byId("status").textContent));
document.title = (last.title ? last.title + " – " : "") + location.host + " – poolcounter";
say(byId("json"), source);
byId("json").href = source;
setTimeout(refresh, REFRESH_MS);
