
"use strict";
// Names given by clients arrive as text and are inserted as text: no code here reads or writes markup.
// Title of the line of silent servers.
const SERVERS = "Servers";
const REFRESH_MS = 2000, STALE_MS = 7000;
const byId = id => document.getElementById(id);

function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (tag === "button") node.type = "button";
  if (text !== undefined) node.textContent = text;
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Sets the text unless it is unchanged, so that a selection survives.
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

// Formats a rate per second.
function perSecond(n) {
  if (n === 0) return "0";
  const digits = n < 100 ? 1 : 0;
  return n.toLocaleString("en", n < 10 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const clock = (s, isShort) => new Date(s * 1000).toLocaleTimeString("en-GB", isShort ? { hour: "2-digit", minute: "2-digit" } : {});
const isHere = link => link && decodeURIComponent(link) === decodeURIComponent(location.pathname);

// Range of the counts: the last minute, five minutes or hour, or totals since the start.
const RANGES = [["1m", "1 min"], ["5m", "5 min"], ["1h", "1 h"], ["start", "since start"]];
let range = "1m";
// Path of the page about a name, on another server or this one. Escapes dots, which could look like the end ".json".
const linkTo = (path, name) => path === "http://" ? path + name + "/" : path + encodeURIComponent(name).replaceAll(".", "%2E");
const withRange = path => path + (range === "1m" ? "" : "?range=" + range);

const TONES = { none: "", work: "", caution: "amber", alarm: "red" };
// Cuts a long name in its middle.
const MOST_CHARACTERS = 64;
const cut = name => name.length <= MOST_CHARACTERS ? name : name.slice(0, 40) + "…" + name.slice(-20);
const text = className => value => [{ text: cut(value), className, title: cut(value) === value ? "" : value }];
const faint = show => (value, tone) => [{ text: show(value), className: value === 0 ? "none" : tone }];
const quantile = (value, isOver) => value === null ? "–" : (isOver ? "over " : "") + duration(value);

// Cells of a value by the unit of its column: one or two.
const CELLS = {
  name: text("text name"),
  address: text("text peer"),
  // Errors and reasons are whole, in several lines.
  text: value => [{ text: value, className: value.length > 24 ? "text prose" : "text" }],
  key: text("text"),
  number: faint(number),
  bytes: faint(bytes),
  seconds: faint(duration),
  times: value => [quantile(value.p50, value.p50_is_over), quantile(value.p99, value.p99_is_over)],
};

// Fills a table. Cells are texts or objects of text, className, share, curves, link, title and actions. Heads are texts, or objects
// of text, className, title, link and sort, which is called on a click.
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
    th.scope = "col";
    if (!sort) return write(th, text, link);
    const order = className.match(/\b(up|down)\b/);
    th.setAttribute("aria-sort", order ? order[0] === "up" ? "ascending" : "descending" : "none");
    if (!th.querySelector("button")) th.replaceChildren(el("button", "sort"));
    const button = th.firstChild;
    button.onclick = sort;
    say(button, text);
  });
  table.hidden = rows.length === 0;
  if (empty) empty.hidden = rows.length > 0;
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, y) => {
    const row = body.rows[y] || body.insertRow();
    cells.forEach((cell, x) => {
      const { text = "", className = "", share, curves, link, title = "", actions } = typeof cell === "object" ? cell : { text: cell };
      const td = row.cells[x] || row.insertCell();
      if (curves) drawCurves(td, curves);
      else write(td, text, link, actions);
      td.className = className;
      td.title = title;
      if (share !== undefined) td.style.setProperty("--share", share);
    });
    while (row.cells.length > cells.length) row.deleteCell(-1);
  });
}

// Draws a small plot of the work done and refused.
function drawCurves(td, [done, refused]) {
  if (!td.querySelector("svg")) {
    const plot = svg("svg", { class: "spark", preserveAspectRatio: "none", role: "img" });
    plot.append(svg("path", { class: "done" }), svg("path", { class: "refused" }));
    td.replaceChildren(plot);
    delete td.dataset.key;
  }
  // A server that has just started has no points yet.
  const now = values => perSecond(values.at(-1) ?? 0), peak = values => Math.max(0, ...values);
  const plot = td.firstChild, most = Math.max(peak(done), peak(refused));
  const path = values => values.map((value, x) => x + "," + (21 - (most ? value / most * 19 : 0)).toFixed(1)).join("L");
  plot.setAttribute("viewBox", "0 0 " + Math.max(done.length - 1, 1) + " 22");
  plot.firstChild.setAttribute("d", done.length > 1 ? "M" + path(done) : "");
  plot.lastChild.setAttribute("d", refused.length > 1 && peak(refused) ? "M" + path(refused) : "");
  plot.setAttribute("aria-label", "done: " + now(done) + " per second now, at most " + perSecond(peak(done))
    + "; refused: " + now(refused) + " now, at most " + perSecond(peak(refused)));
}

// Inserts a text, optionally as a link, and buttons beside it.
function write(node, text, link, actions = []) {
  const key = [link ? withRange(link) : "", ...actions.map(action => action.path)].join(" ");
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
  if (link) first.href = withRange(link);
  node.replaceChildren(first, ...actions.map(({ name, path, of }) => actionOf(name, of, [path])));
}

function actionOf(name, of, paths) {
  const button = el("button", "", paths.length > 1 ? name + " " + of : name);
  button.onclick = () => confirm(button, name, of, paths);
  return button;
}

// Offers the actions of a table on all rows that are shown, such as those that the filter leaves.
function actOnAll(root, service, column, rows) {
  const keys = rows.map(row => row[column.name]).filter(key => key !== null), name = "all-" + column.name;
  const bar = root.querySelector("." + name) || root.appendChild(el("p", "all " + name)), told = keys.join(" ");
  bar.hidden = keys.length < 2;
  if (bar.hidden || bar.dataset.told === told || bar.querySelector(".confirm, :disabled")) return;
  bar.dataset.told = told;
  bar.replaceChildren(...column.actions.map(name => actionOf(name, "all " + keys.length + " shown", keys.map(key => pathOf(service, name, key)))));
}

// Operations that cannot be undone.
const FINAL = ["delete", "delete-group", "takeback"];

// Asks in place of a button whether its operation is meant; the focus is on the button that does nothing.
function confirm(button, name, of, paths) {
  const row = el("span", "confirm", FINAL.includes(name) ? "This cannot be undone. " : "");
  const yes = el("button", FINAL.includes(name) ? "final" : "", name + " " + of), no = el("button", "", "cancel");
  yes.onclick = () => { no.remove(); act(yes, paths); };
  no.onclick = () => { row.replaceWith(button); button.focus(); };
  row.append(yes, no);
  button.replaceWith(row);
  no.focus();
}

// Runs an operation on one thing after the other, and says what the daemon says, or how many are done and the last failure.
async function act(button, paths) {
  button.disabled = true;
  let done = 0, said = "";
  try {
    for (const path of paths) {
      const response = await fetch(path, { method: "POST", signal: AbortSignal.timeout(STALE_MS) });
      const text = (await response.text()).trim() || response.statusText;
      if (response.ok) done += 1;
      if (!response.ok || paths.length === 1) said = text;
      button.textContent = paths.length === 1 ? said : done + " of " + paths.length + " done" + (said && ": " + said);
    }
    button.disabled = done === paths.length;
  } catch (error) {
    button.textContent = "no answer: it is not known whether this is done";
    button.disabled = false;
  }
}

// Numbers of rows shown before a click, tables shown in full, orders chosen by clicks, and tables that stay unchanged while the
// pointer is on them.
const FOLDED = 20, FOLDED_NARROW = 10, open = new Set(), orders = {}, frozen = new Set();
// Text that visible rows must contain.
let filter = "";
const isText = unit => ["name", "address", "text", "key"].includes(unit);
// True if all rows are needed, not only the first ones.
const wantsAll = () => open.size > 0 || filter !== "" || Object.keys(orders).length > 0 || location.search.includes("rows=");
const pathOf = (service, action, key) => ["", service.name, action, key].map(encodeURIComponent).join("/");

function ordered(rows, order) {
  if (!order) return rows;
  const value = row => row[order.name] !== null && typeof row[order.name] === "object" ? row[order.name].p50 : row[order.name];
  const compare = (one, other) => typeof one === "string" ? one.localeCompare(other) : one - other;
  const sorted = rows.filter(row => value(row) !== null).sort((one, other) => compare(value(one), value(other)));
  if (order.isDown) sorted.reverse();
  return [...sorted, ...rows.filter(row => value(row) === null)];
}

// Adds a button below a table that shows all of its rows, or the first ones again.
function unfold(id, all, most, again) {
  const root = byId(id).closest("section");
  let button = root.querySelector("button.fold");
  if (!button) {
    button = el("button", "fold");
    byId(id).closest(".scroll").after(button);
  }
  button.hidden = all <= most;
  say(button, open.has(id) ? "Show the first " + most : "Show all " + number(all));
  button.onclick = () => {
    if (!open.delete(id)) open.add(id);
    again();
    if (isPartial) refresh();
  };
}

// Keeps the rows of a part of the page in place while the pointer or the focus is on them.
function freezing(root, id, again) {
  const freeze = is => {
    if (is) frozen.add(id);
    else if (frozen.delete(id)) again();
    root.classList.toggle("frozen", is);
  };
  root.addEventListener("pointerenter", event => { if (event.pointerType === "mouse") freeze(true); });
  root.addEventListener("pointerleave", () => freeze(false));
  root.addEventListener("focusin", event => freeze(event.target.matches("td a, td button")));
  root.addEventListener("focusout", () => freeze(root.matches(":hover")));
}

// Creates the section of a service's table, with its heading and its note.
function section(service, heading) {
  const id = "table-" + service.name + "-" + heading.name;
  if (!byId(id)) {
    // Narrow tables are placed side by side.
    const root = el("section", heading.columns.some((it, x) => x > 5 || it.name === "error") ? "wide" : ""), scroll = el("div", "scroll"), table = el("table");
    table.id = id;
    root.id = "of-" + id;
    table.setAttribute("aria-label", heading.title);
    scroll.append(table);
    const title = el("h2", "", heading.title + " ");
    title.append(el("small"));
    root.append(title, el("p", "empty", heading.empty), scroll, el("p", "note"));
    byId("tables").append(root);
    freezing(root, id, () => drawAgain(service.name, heading.name));
  }
  return id;
}

// Draws a table again from the last status.
function drawAgain(serviceName, name) {
  const service = last.services.find(it => it.name === serviceName), heading = service && service.tables.find(it => it.name === name);
  if (heading) rowsOf(service, heading, true);
}

// Returns the period of a table's counts as text.
function timeOf(heading) {
  if (heading.recent) return "last " + duration(Math.round(heading.recent.seconds));
  return heading.columns.some(column => column.is_counter || column.unit === "times") ? "since the start" : "";
}

// Rates of the last minute, shown per second.
const isRate = name => name.endsWith("_rate"), LAST_MINUTE = { seconds: 60 };

// Returns the cell of a count, as a rate if it covers only some seconds; red only if it still happens.
function countCells(value, emphasis, recent, curves) {
  if (!recent) return faint(number)(value, "");
  const isNow = range === "1m" || !curves || Math.max(...curves[1].slice(-2)) > 0;
  const [cell] = faint(perSecond)(value / recent.seconds, emphasis === "alarm" && !isNow ? "amber" : TONES[emphasis]);
  return [{ ...cell, text: value ? cell.text : "0", title: number(value) + " in " + duration(Math.round(recent.seconds)) }];
}

// Names of a table's columns without room, with the width for which this is valid; tables that show all columns.
const tight = {}, uncut = new Set(), narrow = matchMedia("(max-width: 560px)");

// Returns the columns with content, without those that have no room.
function columnsOf(id, heading, width) {
  // A column with nothing but buttons is of use to those who may press them.
  const columns = heading.columns.filter(column => !column.is_zero && (last.is_admin || column.link || column.unit !== "key")), key = width + " " + columns.map(column => column.name).join(" ");
  if (tight[id]?.key !== key) tight[id] = { key, names: new Set() };
  return uncut.has(id) ? columns : columns.filter(column => !tight[id].names.has(column.name));
}

// Hides one more column if a table is too wide: the last of the least emphasised; columns of waits and refusals stay longer, those with buttons longest.
function tighten(id, columns) {
  const rank = ({ emphasis, unit, actions }) => actions && last.is_admin ? 5 : isText(unit) && emphasis === "none" ? 1 : { none: 0, work: 3, caution: 3, alarm: 4 }[emphasis] ?? 0;
  const scroll = byId(id).closest(".scroll"), rest = columns.slice(1);
  if (uncut.has(id) || scroll.scrollWidth <= scroll.clientWidth || !rest.length) return false;
  const least = Math.min(...rest.map(rank));
  tight[id].names.add(rest.findLast(column => rank(column) === least).name);
  return true;
}

function rowsOf(service, heading, isForced) {
  const { recent } = heading, id = section(service, heading), root = byId(id).closest("section");
  const columns = columnsOf(id, heading, byId(id).closest(".scroll").clientWidth);
  if (frozen.has(id) && !isForced) return;
  const told = last[service.name][heading.name], curves = new Map(recent ? told.map((row, n) => [row, recent.curves[n]]) : []);
  const has = row => columns.some(({ name, unit }) => isText(unit) && String(row[name] ?? "").toLowerCase().includes(filter));
  const all = ordered(filter ? told.filter(has) : told, orders[id]);
  const again = () => drawAgain(service.name, heading.name);
  const heads = columns.flatMap(({ name, title, help, unit, is_counter }) => {
    const order = orders[id], isSorting = order && order.name === name;
    const className = [isText(unit) ? "text" : "", isSorting ? order.isDown ? "down" : "up" : ""].join(" ").trim();
    const sort = () => {
      // Numbers start with the greatest, names with the first; the third click restores the order of the server.
      const first = !isText(unit);
      if (!isSorting) orders[id] = { name, isDown: first };
      else if (order.isDown === first) order.isDown = !first;
      else delete orders[id];
      again();
      if (isPartial) refresh();
    };
    return unit === "times"
      ? ["p50", "p99"].map(share => ({ text: title + " " + share, title: help, className, sort }))
      : [{ text: isRate(name) ? title.replace("/min", "/s") : title + (recent && is_counter ? "/s" : ""), title: help, className, sort }];
  });
  const hasTrend = curves.size > 0 && !narrow.matches;
  if (hasTrend) heads.push({ text: "trend", title: "Requests done per second, and in red those refused." });
  const folded = heading.columns.length > 6 ? FOLDED : FOLDED_NARROW, rows = open.has(id) ? all : all.slice(0, folded);
  const most = columns.map(({ name, emphasis }) => emphasis === "work" ? Math.max(1e-9, ...all.map(row => row[name])) : 0);
  const isCrowded = heads.length > 12;
  byId(id).classList.toggle("many", isCrowded);
  const told_at = last.started_at + last.uptime;
  fill(id, heads, rows.map(row => columns.flatMap(({ name, unit, emphasis, link, actions, is_counter }, x) => {
    const value = row[name];
    if (value === null) return unit === "times" ? ["–", "–"] : [{ text: "–", className: isText(unit) ? "text" : "" }];
    const cells = isRate(name) ? countCells(value, emphasis, LAST_MINUTE)
      : is_counter && unit === "number" ? countCells(value, emphasis, recent, curves.get(row)) : CELLS[unit](value, TONES[emphasis]);
    if (unit === "seconds" && !is_counter) cells[0].title = "since " + clock(told_at - value);
    if (link) cells[0].link = linkTo(link, row[name + "_key"] ?? value);
    if (!value && link) cells[0].text = "(no name)";
    // Between many figures the beginning of an error is enough; the page about the row has the whole.
    if (unit === "text" && isCrowded && value.length > MOST_CHARACTERS) Object.assign(cells[0], { text: value.slice(0, MOST_CHARACTERS) + "…", title: value });
    if (actions && last.is_admin) cells[0].actions = actions.map(name => ({ name, of: value, path: pathOf(service, name, value) }));
    if (unit === "key" && !link) cells[0].text = "";
    return most[x] ? [{ ...cells[0], className: "share", share: value / most[x] }] : cells;
  }).concat(hasTrend ? [{ curves: curves.get(row), className: "trend" }] : [])));
  if (!root.hidden && tighten(id, columns)) return rowsOf(service, heading, true);
  if (last.is_admin) columns.filter(column => column.actions).forEach(column => actOnAll(root, service, column, rows));
  unfold(id, all.length + (isPartial && !filter ? heading.more : 0), folded, again);
  root.hidden = all.length === 0 && heading.empty === "";
  say(root.querySelector("h2 small"), [timeOf(heading), filter ? "with “" + filter + "”: " + number(all.length) : ""].filter(Boolean).join(", "));
  const more = heading.more && !isPartial ? "There are " + number(heading.more) + " more." : "";
  const note = root.querySelector(".note");
  const titles = has => heading.columns.filter(has).map(column => column.title.replace("/min", "/s")).join(", ");
  const zero = titles(column => column.is_zero), cut = titles(column => tight[id].names.has(column.name));
  say(note, [heading.help, heading.note, more, zero && "Zero everywhere: " + zero + ".", cut && !uncut.has(id) && "No room for: " + cut + "."].filter(Boolean).join(" "));
  showCut(id, root, cut, again);
  note.hidden = rows.length === 0 || note.textContent === "";
}

// Adds a button that shows the columns without room, or hides them again.
function showCut(id, root, cut, again) {
  let button = root.querySelector("button.cut");
  if (!button && !cut) return;
  if (!button) {
    button = el("button", "cut");
    root.append(button);
    button.onclick = () => {
      if (!uncut.delete(id)) uncut.add(id);
      again();
      focusable();
    };
  }
  button.hidden = !cut;
  say(button, uncut.has(id) ? "Fewer columns" : "All columns");
}

// Ages in seconds from which a cell of a matrix has the next colour. Must equal the list in page.rs.
const HEAT = [10, 60, 600, 3600, 21600];
// Choices for the matrix, and the whole matrix, if it was requested.
const isTab = location.pathname.lastIndexOf("/") === 0;
const chosen = { isAll: !isTab, words: [], order: "server" };
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
  root.id = "of-matrix";
  table.setAttribute("aria-label", service.matrix.title);
  order.setAttribute("aria-label", "Order");
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
    // Keeps the current contents until the next refresh.
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
    ? { text: label(place), className: "turned", title: columnWord + " " + label(place), link: linkTo(columnPath, label(place)) }
    : { text: label(place), className: "turned", link: matrix.path });
  const lines = rows.map(row => line(row.name, row.values, linkTo(rowPath, row.name)));
  if (!isFound && matrix.more_rows) lines.push(line(number(matrix.more_rows) + " more", matrix.others, matrix.path));
  if (!isFound && matrix.rows.length) lines.push(line("all", matrix.all, matrix.path).map((cell, x) => x ? { ...cell, className: "heat sum" } : cell));
  fill("matrix", [{ text: rowWord, className: "text" }, ...heads], lines);
  byId("matrix").classList.toggle("dense", isDense);
  const all = [matrix.rows.length + matrix.more_rows, matrix.columns.length + matrix.more_columns];
  const isSmall = !service.matrix.more_rows && !service.matrix.more_columns;
  parts.bar.hidden = all[0] === 0;
  parts.search.placeholder = "search " + number(all[0]) + " " + rowWord + "s, " + number(all[1]) + " " + columnWord + "s";
  parts.search.setAttribute("aria-label", parts.search.placeholder);
  parts.button.hidden = isSmall || !isTab;
  say(parts.button, chosen.isAll ? "Show the worst" : "Show all");
  say(parts.note, isFound && !lines.length ? "No such name." : matrix.help);
  parts.note.hidden = all[0] === 0;
}

function matrixOf(service) {
  if (!isTab) whole = service.matrix;
  drawMatrix(service);
  if (isTab && (chosen.isAll || chosen.words.length)) fetchWhole(service);
}

const COLORS = { none: "blue", work: "green", caution: "amber", alarm: "red" };
const cards = new Map();
// Height of plots in their own coordinates, and the least number of samples shown.
const HEIGHT = 100, FEWEST = 20;
// Index of the sample pointed at in all plots, counted from the last one.
let pointed;

// Returns the least round number that is not less.
function roundUp(n) {
  if (n <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= n * .9999);
}

function makeCard(series) {
  const isTime = series.unit === "seconds";
  const card = { title: series.title, unit: series.unit, format: isTime ? duration : series.is_rate ? perSecond : number, tone: COLORS[series.emphasis] };
  card.root = el("div", "card");
  card.number = el("span", "", "0");
  const numberLine = el("div", "number");
  numberLine.append(card.number, el("small", "", isTime ? "" : series.unit));
  card.left = el("span");
  card.right = el("span", "peak");
  const sub = el("div", "sub"), chart = el("div", "chart"), axis = el("div", "axis");
  sub.append(card.left, card.right);
  card.plot = svg("svg", { preserveAspectRatio: "none", role: "slider", tabindex: 0, "aria-label": card.title, "aria-valuemax": 0 });
  const grid = [1, HEIGHT / 2, HEIGHT - 1].map(y => svg("line", { class: "grid", y1: y, y2: y, x1: 0, x2: 1e4 }));
  card.area = svg("path", { class: "area" });
  card.line = svg("path", { class: "line" });
  card.cursor = svg("line", { y1: 0, y2: HEIGHT, visibility: "hidden" });
  card.marks = svg("g", {});
  card.plot.append(...grid, card.area, card.line, card.marks, card.cursor);
  card.top = el("span", "top");
  card.mid = el("span", "mid");
  chart.append(card.plot, card.top, card.mid);
  card.times = [el("span"), el("span"), el("span", "", "now")];
  axis.append(...card.times);
  card.plot.addEventListener("pointermove", event => {
    const box = card.plot.getBoundingClientRect();
    pointAt(Math.round((box.right - event.clientX) / box.width * (card.most - 1)), card);
  });
  card.plot.addEventListener("pointerleave", () => pointAt());
  card.plot.addEventListener("blur", () => pointAt());
  card.plot.addEventListener("focus", () => pointAt(0, card));
  card.plot.addEventListener("keydown", event => {
    const step = { ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1, PageUp: -10, PageDown: 10 }[event.key];
    const to = event.key === "Home" ? card.values.length - 1 : event.key === "End" ? 0 : step && (pointed ?? 0) + step;
    if (to === undefined) return;
    event.preventDefault();
    pointAt(to, card);
  });
  card.root.append(el("h2", "", card.title), numberLine, sub, chart, axis);
  byId("cards").append(card.root);
  return card;
}

// Makes all plots show the values of that sample; without one, their mean and peak.
function pointAt(ago, card) {
  pointed = ago === undefined ? undefined : Math.min(Math.max(ago, 0), Math.max(card.values.length - 1, 0));
  cards.forEach(point);
}

// Returns the last reload, and the conditions that have begun: of the thing of the page, or of the service.
function marksOf(status, service) {
  const conditions = [...status.health.flatMap(line => line.conditions.map(it => ({ ...it, title: line.title }))), ...status.past];
  const shown = conditions.filter(it => status.title ? isHere(it.link) : service && it.title === service.title);
  const reloads = status.last_reload ? [{ level: "", since: status.last_reload.at, sentence: "reload" }] : [];
  return [...reloads, ...shown];
}

function plot(series, history, now, marks) {
  const key = series.service + " " + series.name;
  if (!cards.has(key)) cards.set(key, makeCard(series));
  const card = cards.get(key), { values } = series;
  const most = Math.max(values.length, FEWEST), peak = Math.max(0, ...values), top = roundUp(peak);
  Object.assign(card, { values, most, peak, interval: history.interval, now });
  const value = series.is_rate ? values.at(-1) || 0 : series.now;
  say(card.number, card.format(value));
  card.number.className = value ? "" : "zero";
  // Refusals are red only while they happen.
  const isNow = series.emphasis !== "alarm" || Math.max(0, ...values.slice(-samplesOf(60, history))) > 0;
  card.root.className = "card " + (isNow && peak > 0 ? card.tone : "calm");
  const x = n => most - values.length + n;
  const y = value => HEIGHT - 1 - value / top * (HEIGHT - 2);
  const points = values.map((value, n) => x(n) + "," + y(value).toFixed(1));
  card.plot.setAttribute("viewBox", "0 0 " + (most - 1) + " " + HEIGHT);
  card.line.setAttribute("d", points.length > 1 ? "M" + points.join("L") : "");
  card.area.setAttribute("d", points.length > 1 ? "M" + x(0) + "," + HEIGHT + "L" + points.join("L") + "V" + HEIGHT + "Z" : "");
  card.plot.setAttribute("aria-valuemin", 1 - Math.max(values.length, 1));
  const placeOf = since => most - 1 - (now - since) / history.interval;
  card.marks.replaceChildren(...marks.filter(it => placeOf(it.since) >= 0).slice(0, FOLDED).map(({ level, since, sentence }) => {
    const place = placeOf(since), mark = svg("line", { class: "mark " + level, x1: place, x2: place, y1: 0, y2: HEIGHT });
    mark.append(svg("title", {}));
    mark.firstChild.textContent = clock(since) + " " + sentence;
    return mark;
  }));
  const tick = card.format === duration ? duration : number;
  say(card.top, tick(top));
  say(card.mid, series.is_rate || top > 1 ? tick(top / 2) : "");
  const long = (most - 1) * card.interval;
  [long, long / 2].forEach((ago, n) => say(card.times[n], clock(now - ago, long > 1200)));
  point(card);
}

// Returns the number of samples in a number of seconds.
const samplesOf = (seconds, history) => Math.max(1, Math.round(seconds / history.interval));

// Shows the value pointed at, or else mean and peak.
function point(card) {
  const { values, most, interval, now } = card, index = values.length - 1 - pointed;
  const isThere = index >= 0 && index < values.length;
  card.cursor.setAttribute("visibility", isThere ? "visible" : "hidden");
  const mean = values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
  const about = ["mean " + card.format(mean), "peak " + card.format(card.peak)];
  if (isThere) {
    const x = most - 1 - pointed;
    card.cursor.setAttribute("x1", x);
    card.cursor.setAttribute("x2", x);
    about[0] = clock(now - pointed * interval);
    about[1] = card.format(values[index]);
  }
  say(card.left, about[0]);
  say(card.right, about[1]);
  card.plot.setAttribute("aria-valuenow", isThere ? -pointed : 0);
  card.plot.setAttribute("aria-valuetext", about.join(": ") + " " + card.unit);
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

// Creates the folded table of a service's figures.
function figures(service) {
  const id = "figures-" + service.name.replaceAll(" ", "-");
  if (!byId(id)) {
    const details = el("details"), table = el("table"), scroll = el("div", "scroll");
    table.id = id;
    table.setAttribute("aria-label", "All figures of " + service.name);
    scroll.append(table);
    details.append(el("summary", "", "All figures of " + service.name), scroll);
    byId("figures").append(details);
  }
  const value = figure => (figure.is_seconds ? duration : figure.is_bytes ? bytes : n => n.toLocaleString("en"))(figure.value);
  fill(id, [{ text: "figure", className: "text" }, "value", { text: "meaning", className: "text" }], service.figures.map(figure =>
    [{ text: figure.name, className: "text" }, value(figure), { text: figure.help, className: "text help" }]));
}

function reloaded(reload, now) {
  if (!reload) return [];
  return [["reloaded", `${duration(Math.max(now - reload.at, 0))} ago${reload.has_worked ? "" : ", not done"}`]];
}

// Last status, title for an alarm, and true if the status has only the first rows.
let last, alarm = "", isPartial = !location.search.includes("rows=");

// Returns the servers of a fleet that do not answer.
const silentOf = status => (status.http?.servers ?? []).filter(row => row.state !== "answers");

// Limit of conditions in the line of a service; levels and their colours.
const MOST_CONDITIONS = 6, COLOURS = { ok: "%232563c9", warning: "%23b7791f", critical: "%23c92a2a" }, LEVELS = Object.keys(COLOURS);

function linesOf(status) {
  const silent = silentOf(status).map(row => ({ level: "critical", sentence: "no answer from " + row.server + ": " + row.state }));
  const servers = silent.length ? [{ title: SERVERS, level: "critical", sentence: silent[0].sentence, conditions: silent, more: 0 }] : [];
  return [...servers, ...status.health].sort((one, other) => LEVELS.indexOf(other.level) - LEVELS.indexOf(one.level));
}

// Returns a condition, with its level unless its service has the same.
function sentenceOf({ level, sentence, since, until, link, command }, worst) {
  const root = el("li", until ? "over" : level), words = el(link ? "a" : "span", "", sentence);
  if (link) words.href = withRange(link);
  if (!until && level !== worst) root.append(el("span", "word", level), " ");
  root.append(words);
  if (since && !until) root.append(" ", el("small", "", "since " + clock(since)));
  if (command) root.append(" ", ...commandOf(command));
  return root;
}

// The lines with the conditions of the thing that the page is about, and of servers that do not answer.
function ofThing(lines) {
  return lines.flatMap(line => {
    const conditions = line.title === SERVERS ? line.conditions : line.conditions.filter(it => isHere(it.link));
    return conditions.length ? [{ ...line, level: conditions[0].level, conditions, more: 0 }] : [];
  });
}

function showHealth(status) {
  const lines = linesOf(status), root = byId("state"), shownLines = status.title ? ofThing(lines) : lines;
  const told = JSON.stringify(shownLines);
  // A tab shows all conditions of its own service, and the worst one of each other.
  const isWhole = line => !status.tab || status.tab === "overview" || status.tab === tabOf(line);
  const critical = lines.flatMap(line => line.conditions.filter(it => it.level === "critical")), worst = lines[0];
  if (root.dataset.told !== told) {
    const opened = [...root.querySelectorAll("details[open]")].map(it => it.className);
    root.dataset.told = told;
    root.hidden = !shownLines.length;
    root.replaceChildren(...shownLines.map(line => {
      const row = el("div", "level " + line.level), list = el("ul");
      row.append(el("i"), el("b", "", line.title), el("span", "word", line.level), list);
      if (line.level === "ok" && !status.title) list.append(el("li", "", line.sentence));
      const all = line.conditions.map(it => sentenceOf(it, line.level)), shown = isWhole(line) ? MOST_CONDITIONS : 1, more = line.more + all.length - shown;
      list.append(...all.slice(0, shown));
      if (more > 0) {
        const details = el("details", line.title), item = el("li"), rest = el("ul");
        details.open = opened.includes(line.title);
        rest.append(...all.slice(shown));
        details.append(el("summary", "", "and " + number(more) + " more"), rest);
        item.append(details);
        list.append(item);
      }
      return row;
    }));
  }
  const icon = byId("icon"), href = icon.href.replace(/%23[0-9a-f]{6}/, COLOURS[worst?.level ?? "ok"]);
  if (icon.href !== href) icon.href = href;
  return critical.length ? "(" + number(critical.length) + ") " + worst.title + ": " + worst.sentence : "";
}

function show(status, isPart) {
  // Rows requested by a click are drawn even while the pointer is on the table.
  const isForced = isPartial && !isPart;
  isPartial = isPart;
  const { services, process } = status, loop = status.loop;
  const passed = last ? status.uptime - last.uptime : 0;
  const busy = passed > 0 ? (loop.busy - last.loop.busy) / passed : loop.busy / Math.max(status.uptime, .001);
  last = status;
  alarm = showHealth(status);
  showTabs(status);
  byId("title").hidden = !status.title;
  byId("loop").hidden = status.tab !== "daemon";
  if (status.title && byId("title").textContent !== status.title) byId("title").replaceChildren(el("h2", "", status.title));
  const off = services.find(it => !it.is_enabled && tabOf(it) === status.tab);
  byId("off").hidden = !off;
  if (off) say(byId("off"), "This service is off. The option --" + off.option + " turns it on.");
  showCommands(status.commands ?? []);
  showBlocks(status.blocks ?? []);
  status.history.series.filter(series => isTab && status.tab !== "overview" || isUsed(services.find(it => it.name === series.service)))
    .forEach(series => plot(series, status.history, status.started_at + status.uptime, marksOf(status, services.find(it => it.name === series.service))));
  // Viewers of this page do not count as clients.
  const clients = services.filter(it => it.name !== "http").reduce((sum, it) => sum + it.connections, 0);
  const servers = status.http?.servers;
  facts(servers ? [
    ["servers", number(servers.length - silentOf(status).length) + " of " + number(servers.length)],
    ["clients", number(clients)],
    ["memory", bytes(servers.reduce((sum, row) => sum + row.memory, 0))],
    ["version", status.version],
  ] : [
    ["up", duration(status.uptime)],
    ...(status.title ? [] : [["clients", number(clients)]]),
    ["busy", (busy * 100).toLocaleString("en", { maximumFractionDigits: 1 }) + " %"],
    ["memory", bytes(process.resident_bytes)],
    ["version", status.version],
    ...reloaded(status.last_reload, status.started_at + status.uptime),
  ]);
  const used = services.filter(it => it.is_enabled);
  used.filter(service => service.matrix).forEach(matrixOf);
  used.forEach(service => service.tables.forEach(heading => rowsOf(service, heading, isForced)));
  const heads = ["connections", "so far", "read", "written", "connect errors", "failed sends"];
  fill("services", [{ text: "service", className: "text" }, ...heads], used.map(it => [
    { text: it.name, className: "text" }, ...faint(number)(it.connections, ""), number(it.connections_opened),
    bytes(it.received_bytes), bytes(it.sent_bytes), ...faint(number)(it.connect_errors, "red"),
    ...faint(number)(it.failed_sends, "red"),
  ]));
  showJumps();
  showPast(status);
  const told = used.filter(service => service.figures.length);
  byId("figures").hidden = !told.length && status.tab !== "daemon";
  told.forEach(figures);
  if (status.tab === "daemon") figures({ name: "the loop", figures: [
    { name: "ticks", value: loop.ticks, help: "Turns of the loop." },
    { name: "turns", value: loop.turns, help: "Turns of clients in these turns." },
    { name: "busy", value: loop.busy, is_seconds: true, help: "Time awake." },
    { name: "timers", value: loop.timers, help: "Armed timers." },
    ...loop.budgets_spent.map(it => ({ name: "budget " + it.budget, value: it.times, help: "Times that this bound on a turn was reached." })),
    { name: "processor time", value: process.cpu, is_seconds: true, help: "Processor time of the process, user and system together." },
    { name: "descriptors", value: process.open_fds, help: "Open files and connections, of " + number(process.max_fds) + " that there may be." },
  ] });
}

// Shows links to the tables of a long page.
function showJumps() {
  const root = byId("jump"), sections = [...document.querySelectorAll("#matrices > section, #tables > section")].filter(it => !it.hidden);
  const told = sections.map(it => it.id).join(" ");
  root.hidden = sections.length < 4;
  if (root.dataset.told === told) return;
  root.dataset.told = told;
  root.replaceChildren(...sections.map(section => {
    const link = el("a", "", section.querySelector("h2").firstChild.textContent);
    link.href = "#" + section.id;
    return link;
  }));
}

// Returns the word of a service in the path of its tab.
const tabOf = service => service.title.toLowerCase();

// Shows the links to the tabs, each with the worst level of its service.
function showTabs(status) {
  const root = byId("tabs"), isOff = it => it.title && !it.is_enabled;
  // A page about one thing has only the health of the other services.
  const titles = new Set([...status.health, ...status.services.filter(it => it.title && it.is_enabled)].map(it => it.title));
  const levelOf = title => status.health.find(line => line.title === title)?.level ?? "none";
  const tabs = [
    { text: "Overview", path: "/", word: "overview", className: "none" },
    ...[...titles].filter(title => title !== "Daemon").map(title => ({ text: title, word: tabOf({ title }), className: levelOf(title) })),
    ...status.services.filter(isOff).map(it => ({ text: it.title, word: tabOf(it), className: "none off", title: "off: --" + it.option })),
    { text: "Daemon", word: "daemon", className: levelOf("Daemon") },
  ];
  const told = JSON.stringify([tabs, range]);
  if (root.dataset.told === told) return;
  root.dataset.told = told;
  root.replaceChildren(...tabs.map(({ text, word, className, title, path = linkTo("/", word) }) => {
    const link = el("a", className, text);
    link.href = withRange(path);
    if (title) link.title = title;
    if (word === status.tab) link.setAttribute("aria-current", "page");
    return link;
  }));
}

// Shows the commands for the thing of the page.
function showCommands(commands) {
  const root = byId("acts"), list = root.querySelector("ul"), told = commands.join("\n");
  root.hidden = !commands.length;
  if (list.dataset.told === told) return;
  list.dataset.told = told;
  list.replaceChildren(...commands.map(command => {
    const line = el("li");
    line.append(...commandOf(command));
    return line;
  }));
}

// Texts about the thing, such as the body of a job. They come as text and are put in as text.
function showBlocks(blocks) {
  const root = byId("blocks"), told = JSON.stringify(blocks);
  if (root.dataset.told === told) return;
  root.dataset.told = told;
  root.replaceChildren(...blocks.map(({ title, text }) => {
    const section = el("section", "wide"), pre = el("pre", "", text);
    pre.tabIndex = 0;
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", title);
    section.append(el("h2", "", title), pre);
    return section;
  }));
}

// Returns a command as typed, and a button that copies it.
function commandOf(command) {
  const code = el("code", "", "poolcounter " + command), copy = el("button", "copy", "copy");
  copy.onclick = () => navigator.clipboard?.writeText(code.textContent).then(() => say(copy, "copied"), () => {});
  return navigator.clipboard ? [code, " ", copy] : [code];
}

// Shows the conditions that are over, on the overview.
function showPast(status) {
  const past = status.tab === "overview" ? status.past ?? [] : [];
  byId("past-section").hidden = !past.length;
  const text = text => ({ text, className: "text" });
  fill("past", [text("service"), text("level"), text("state"), "until", "for"], past.map(over => [
    text(over.title), text(over.level), { text: over.sentence, link: over.link, className: "text help" },
    clock(over.until, true), duration(over.until - over.since),
  ]));
}

// Returns true for services with connections so far; without any, for the first one.
function isUsed(service) {
  const isAny = last.services.some(it => it.name !== "http" && it.connections_opened > 0);
  return isAny ? service.connections_opened > 0 : service.name === last.services[0].name;
}

// Returns the path of this page's JSON.
const source = () => (location.pathname === "/" ? "/overview" : location.pathname) + ".json" + "?range=" + range + (wantsAll() ? "" : "&rows=" + FOLDED);

let heard = Date.now(), failing = false, timer;

function showRanges() {
  const root = byId("ranges");
  if (!root.firstChild) {
    root.append(...RANGES.map(([name, text]) => {
      const link = el("a", "", text);
      link.onclick = event => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        range = name;
        history.replaceState(null, "", withRange(location.pathname));
        showRanges();
        refresh();
      };
      return link;
    }));
  }
  RANGES.forEach(([name], n) => {
    const link = root.children[n];
    link.href = "?range=" + name;
    if (name === range) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
  say(byId("json"), source());
  byId("json").href = source();
}

async function refresh() {
  clearTimeout(timer);
  const asked = range, path = source();
  if (!document.hidden) {
    try {
      const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(STALE_MS) });
      if (!response.ok) throw new Error(response.statusText);
      const status = await response.json();
      if (asked === range) show(status, path.includes("&rows="));
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
  showTitle(isStale);
  focusable();
  clearTimeout(timer);
  timer = setTimeout(refresh, REFRESH_MS);
}

function showTitle(isStale) {
  const state = isStale ? "(stale) " : alarm ? alarm + " – " : "";
  const title = state + (last.title ? last.title + " – " : isTab && last.tab !== "overview" ? last.tab[0].toUpperCase() + last.tab.slice(1) + " – " : "") + location.host + " – poolcounter";
  if (document.title !== title) document.title = title;
}

// Makes scrollable tables reachable with the keyboard.
function focusable() {
  for (const scroll of document.querySelectorAll("#app .scroll")) {
    const isScrolling = scroll.scrollWidth > scroll.clientWidth, table = scroll.querySelector("table");
    if (isScrolling === (scroll.tabIndex === 0)) continue;
    if (isScrolling) {
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", (table.getAttribute("aria-label") || "table") + ", scrolls");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) scroll.removeAttribute(name);
    }
  }
}

byId("filter").oninput = event => {
  filter = event.target.value.trim().toLowerCase();
  last.services.filter(it => it.is_enabled).forEach(service => service.tables.forEach(heading => rowsOf(service, heading, true)));
  if (isPartial) refresh();
};
byId("filter").onkeydown = event => {
  const text = event.target.value.trim();
  if (event.key === "Enter" && text) location.href = withRange(linkTo("/find/", text));
};
say(byId("place"), location.host);
byId("app").hidden = false;
const first = JSON.parse(byId("status").textContent);
range = first.range || "start";
show(first, isPartial);
showRanges();
showTitle(false);
focusable();
timer = setTimeout(refresh, REFRESH_MS);
