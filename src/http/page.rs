//! Status page: one self-contained document. Its script shows the content of `/status.json` and fetches it repeatedly;
//! without scripts it consists of plain tables.

use super::recent::RANGES;
use super::tabs;
use super::text::html;
use poolcounter_service::report::matrix::Matrix;
use poolcounter_service::report::tables::Client;
use poolcounter_service::report::{
    Cell, Column, ColumnUnit, Emphasis, Heat, Level, MOST_ROWS, ShownCurve, ShownFigure, ShownPast, Snapshot, Table,
};
use poolcounter_service::shown::{duration, grouped, path_to};
use std::borrow::Cow;
use std::fmt::Write;

/// Only the page's own style and script are allowed, and the script connects only to this server: even if a client's
/// name were ever interpreted as markup, it could do nothing. The hashes are those of `page.js` and `page.css`.
macro_rules! policy {
    ($forms:literal) => {
        concat!(
            "default-src 'none'; ",
            "script-src 'sha256-ixH3qUFoLqzcXL6d+mAS+a1pCi0531FU0YSfCPoDMC0='; ",
            "style-src 'sha256-vjkuqmgOKjtyZ59F+P2qeUA1Kvgpdk3ctoTuEilAwZE='; ",
            "img-src data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action ",
            $forms
        )
    };
}

/// Content security policy of a page.
pub const POLICY: &str = policy!("'none'");
/// Content security policy of a page with buttons, which are forms for viewers without scripts.
pub const ADMIN_POLICY: &str = policy!("'self'");

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Ages in seconds from which a cell of a matrix has the next colour. Must equal the list in `page.js`.
const HEAT: [f64; 5] = [10.0, 60.0, 600.0, 3600.0, 21_600.0];

/// Returns the document.
pub fn render(status: &Snapshot) -> String {
    // Only this character can end a data block, and JSON can escape it.
    let json = status.to_json().replace('<', "\\u003c");
    format!(include_str!("page.html"), style = STYLE, script = SCRIPT, basic = basic(status), status = json)
}

/// Returns the content for viewers without scripts.
fn basic(status: &Snapshot) -> String {
    let mut page = format!(
        "<h1><a href=\"/\">poolcounter</a> {}</h1>\n<p>This page refreshes itself every five seconds. With JavaScript it has plots, too.</p>\n",
        status.version
    );
    write_tabs(&mut page, status);
    write_ranges(&mut page, status.range.as_deref());
    if let Some(title) = &status.title {
        page.extend(["<h2>", &html(title), "</h2>\n"]);
    }
    write_health(&mut page, status);
    for command in &status.commands {
        page.extend(["<p><code>poolcounter ", &html(command), "</code></p>\n"]);
    }
    for block in &status.blocks {
        page.extend(["<h3>", &html(&block.title), "</h3>\n<pre>", &html(&block.text), "</pre>\n"]);
    }
    write_series(&mut page, status);
    if let Some(reload) = &status.last_reload {
        let age = duration((status.started_at + status.uptime - reload.at).max(0.0));
        let outcome = if reload.has_worked { "worked" } else { "failed: the log has the reason" };
        writeln!(page, "<p>The last reload was {age} ago and {outcome}.</p>").expect("a string takes every character");
    }
    for service in status.services.iter().filter(|service| service.is_enabled) {
        if let Some(matrix) = &service.matrix {
            write_matrix(&mut page, matrix);
        }
        let range = status.range.as_deref();
        service.tables.iter().for_each(|table| write_table(&mut page, &service.name, table, range, status.is_admin));
    }
    for service in status.services.iter().filter(|service| !service.figures.is_empty()) {
        let value = |it: &ShownFigure| match it.is_seconds {
            true => duration(it.value),
            // Lossless: figures other than times are whole numbers.
            false => grouped(it.value as u64),
        };
        let row = |it: &ShownFigure| {
            [(html(&it.name).into_owned(), ""), (value(it), NUMBER), (html(&it.help).into_owned(), "")]
        };
        let title = format!("The {} service: {} connections", service.name, service.traffic.open);
        let heads = [("figure", ""), ("value", NUMBER), ("meaning", "")];
        write_rows(&mut page, &title, heads, service.figures.iter().map(row));
    }
    page
}

/// Writes the links to the tabs. For a disabled service, it names the option that enables it.
fn write_tabs(page: &mut String, status: &Snapshot) {
    page.push_str("<nav aria-label=\"Services\"><a href=\"/\">Overview</a>");
    // A page about one thing has only the health of the other services.
    for title in status.health.iter().map(|line| &*line.title) {
        page.extend([" <a href=\"", &path_to("/", &title.to_lowercase()), "\">", &html(title), "</a>"]);
    }
    for service in status.services.iter().filter(|service| !service.title.is_empty() && !service.is_enabled) {
        page.extend([" ", &html(&service.title), " (off: --", &html(&service.option), ")"]);
    }
    page.push_str("</nav>\n");
}

/// Writes the links to the ranges of time.
fn write_ranges(page: &mut String, shown: Option<&str>) {
    let ranges = RANGES.iter().map(|range| (range.name, format!("the last {}", range.title)));
    page.push_str("<nav aria-label=\"Ranges\">Counts are of");
    for (name, title) in ranges.chain([("start", "all since the start".to_string())]) {
        match name == shown.unwrap_or("start") {
            true => page.extend([" <strong>", &title, "</strong>"]),
            false => page.extend([" <a href=\"?range=", name, "\">", &title, "</a>"]),
        }
    }
    page.push_str("</nav>\n");
}

/// Writes the health of each service: its level, and its conditions or state.
fn write_health(page: &mut String, status: &Snapshot) {
    let at = |since: f64| duration((status.started_at + status.uptime - since).max(0.0));
    let rows = status.health.iter().flat_map(|line| {
        let row = |word: &str, text: String, since: String, command: &str| {
            let class = if word == Level::Critical.word() { "red" } else { "" };
            let word = (word.into(), class);
            [(html(&line.title).into_owned(), ""), word, (text, ""), (since, NUMBER), (html(command).into_owned(), "")]
        };
        let on = line.conditions.iter().map(|on| {
            let text = format!("<a href=\"{}\">{}</a>", on.link, html(&on.sentence));
            match on.until {
                None => row(on.level.word(), text, at(on.since), &on.command),
                Some(_) => row("over", text, String::new(), ""),
            }
        });
        let well = || row(line.level.word(), html(&line.sentence).into_owned(), String::new(), "");
        let more = || row("", format!("and {} more", line.more), String::new(), "");
        let well = (line.level == Level::Ok).then(well);
        well.into_iter().chain(on).chain((line.more > 0).then(more)).collect::<Vec<_>>()
    });
    if !status.health.is_empty() {
        let heads = [("service", ""), ("level", ""), ("state", ""), ("for", NUMBER), ("poolcounter ...", "")];
        write_rows(page, "Health", heads, rows);
    }
    if !status.past.is_empty() && status.tab.as_deref() == Some(tabs::OVERVIEW) {
        let row = |over: &ShownPast| {
            let text = format!("<a href=\"{}\">{}</a>", over.link, html(&over.sentence));
            let times = [at(over.until), duration(over.until - over.since)].map(|time| (time, NUMBER));
            let [ago, span] = times;
            [(html(&over.title).into_owned(), ""), (over.level.word().into(), ""), (text, ""), ago, span]
        };
        let heads = [("service", ""), ("level", ""), ("state", ""), ("ago", NUMBER), ("for", NUMBER)];
        write_rows(page, "Recently resolved", heads, status.past.iter().map(row));
    }
}

/// Writes the curves as numbers.
fn write_series(page: &mut String, status: &Snapshot) {
    let row = |curve: &ShownCurve| {
        let values = curve.values.numbers();
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let now = if curve.is_rate { values.last().copied().unwrap_or(0.0) } else { curve.now as f64 };
        let numbers = [now, mean, values.into_iter().fold(0.0, f64::max)].map(|value| (rate(value), NUMBER));
        let [now, mean, peak] = numbers;
        [(html(&curve.title).into_owned(), ""), now, mean, peak, (html(&curve.unit).into_owned(), "")]
    };
    if !status.history.series.is_empty() {
        let heads = [("what", ""), ("now", NUMBER), ("mean", NUMBER), ("peak", NUMBER), ("unit", "")];
        write_rows(page, "History", heads, status.history.series.iter().map(row));
    }
}

fn write_table(page: &mut String, service: &str, table: &Table, range: Option<&str>, is_admin: bool) {
    if table.rows.is_empty() && table.empty.is_empty() {
        return;
    }
    if table.rows.is_empty() {
        return page.extend(["<h2>", &html(&table.title), "</h2>\n<p>", &html(&table.empty), "</p>\n"]);
    }
    let class_of = |column: &Column| if column.is_text() { "" } else { NUMBER };
    // A column with nothing but buttons is of use to those who may press them.
    let is_seen =
        |column: &Column| !column.is_zero && (is_admin || column.link.is_some() || column.unit != ColumnUnit::Key);
    let flat = table.clone().flat();
    let is_rate = |column: &Column| column.is_counter && column.unit == ColumnUnit::Number && table.recent.is_some();
    let heads = flat.columns.iter().filter(|column| is_seen(column)).map(|column| match is_rate(column) {
        true => (format!("{}/s", column.title), NUMBER),
        false => (column.title.to_string(), class_of(column)),
    });
    let markup = |(cell, column): (&Cell, &Column)| match (cell, &table.recent) {
        (Cell::Text(text), _) => (markup_of(text, column, service, is_admin), class_of(column)),
        (Cell::Client(Client { address, key }), _) => {
            let path = path_to(column.link.as_deref().unwrap_or_default(), key);
            (format!("<a href=\"{path}\">{}</a>", html(address)), "")
        }
        (Cell::Number(count), Some(recent)) if column.is_counter => {
            let class = if column.emphasis == Emphasis::Alarm && *count > 0 { ALARM } else { NUMBER };
            (rate(*count as f64 / recent.seconds.max(1.0)), class)
        }
        (other, _) => {
            let is_alarm = column.emphasis == Emphasis::Alarm && !column.is_counter && !other.is_zero();
            (text_of(other), if is_alarm { ALARM } else { class_of(column) })
        }
    };
    let is_shown = |(_, column): &(&Cell, &Column)| is_seen(column);
    let rows_of = flat.rows.iter().map(|row| row.iter().zip(&flat.columns).filter(is_shown).map(markup));
    let title = match &table.recent {
        Some(recent) => format!("{}, last {}", table.title, duration(recent.seconds)),
        None => table.title.clone().into_owned(),
    };
    write_rows(page, &title, heads, rows_of);
    let zero = table.columns.iter().filter(|column| column.is_zero).map(|column| &*column.title);
    let zero = zero.collect::<Vec<_>>().join(", ");
    let zero = (!zero.is_empty()).then(|| format!("Zero everywhere: {zero}."));
    for sentence in [Some(&*table.help), table.note.as_deref(), zero.as_deref()].into_iter().flatten() {
        if !sentence.is_empty() {
            writeln!(page, "<p>{}</p>", html(sentence)).expect("a string takes every character");
        }
    }
    if table.more > 0 {
        let all = match table.rows.len() {
            MOST_ROWS.. => String::new(),
            _ => format!(" <a href=\"?range={}&amp;rows={MOST_ROWS}\">Show all.</a>", range.unwrap_or("start")),
        };
        writeln!(page, "<p>There are {} more.{all}</p>", table.more).expect("a string takes every character");
    }
}

/// Returns the markup of a text: with a link to its page, or with buttons for its actions.
fn markup_of(text: &str, column: &Column, service: &str, is_admin: bool) -> String {
    let mut markup = column.link.as_deref().map_or_else(|| html(text).into_owned(), |path| link(path, text));
    for action in column.actions.iter().filter(|_| is_admin) {
        let target = path_to(&format!("/{service}/{action}/"), text);
        let form =
            format!(" <form method=\"post\" action=\"{target}\"><button type=\"submit\">{action}</button></form>");
        markup.push_str(&form);
    }
    markup
}

fn write_matrix(page: &mut String, matrix: &Matrix) {
    let Matrix { title, columns, rows, others, all, more_rows, more_columns, path, .. } = matrix;
    let (row_word, row_path) = &matrix.row;
    let rest = |more: &usize| format!("{more} more");
    let names = columns.iter().map(|name| link(&matrix.column.1, name)).chain([rest(more_columns), "all".into()]);
    let heads: Vec<String> = [html(row_word).into_owned()].into_iter().chain(names).collect();
    page.extend(["<h2>", &html(title), "</h2>\n"]);
    if rows.is_empty() {
        return page.extend(["<p>", &html(&matrix.empty), "</p>\n"]);
    }
    page.extend(["<table class=\"matrix\" aria-label=\"", &html(title), "\">\n<thead>"]);
    write_row(page, "th scope=\"col\"", heads.into_iter().map(|head| (head, "")));
    page.push_str("</thead>\n<tbody>");
    let mut write_line = |name: String, values: &[Heat]| {
        page.extend(["<tr><td>", &name, "</td>"]);
        values.iter().for_each(|heat| write_heat(page, *heat));
        page.push_str("</tr>\n");
    };
    rows.iter().for_each(|line| write_line(link(row_path, &line.name), &line.values));
    write_line(rest(more_rows), others);
    write_line("all".into(), all);
    page.push_str("</tbody>\n</table>\n");
    page.extend(["<p>", &html(&matrix.help), " <a href=\"", path, "\">Show all.</a></p>\n"]);
}

/// Writes a cell with the number of waiting things and the age of the oldest; empty if there are none.
fn write_heat(page: &mut String, Heat(count, age): Heat) {
    if count == 0 {
        return page.push_str("<td></td>");
    }
    page.push_str("<td");
    if let Some(level) = HEAT.iter().rposition(|least| age >= *least) {
        write!(page, " class=\"h{level}\"").expect("a string takes every character");
    }
    write!(page, ">{count} <i>{age:.0} s</i></td>").expect("a string takes every character");
}

/// Returns a link to the page about the thing of this name: on another server, or below a path.
fn link(path: &str, name: &str) -> String {
    match path {
        "http://" => format!("<a href=\"http://{0}/\">{0}</a>", html(name)),
        path => format!("<a href=\"{}\">{}</a>", path_to(path, name), html(name)),
    }
}

/// Returns the text of a cell with one value.
fn text_of(cell: &Cell) -> String {
    match cell {
        Cell::Nothing | Cell::Times(_) => "–".into(),
        Cell::Text(text) | Cell::Client(Client { address: text, .. }) => html(text).into_owned(),
        Cell::Number(number) => grouped(*number),
        Cell::Seconds(span) => duration(*span),
    }
}

/// Class of numbers.
const NUMBER: &str = "n";
/// Classes of numbers that indicate a current fault.
const ALARM: &str = "\"n red\"";

/// Writes rows whose cells are markup, each with a class.
fn write_rows<'a>(
    page: &mut String,
    title: &str,
    heads: impl IntoIterator<Item = (impl Into<Cow<'a, str>>, &'static str)>,
    rows: impl Iterator<Item = impl IntoIterator<Item = (String, &'static str)>>,
) {
    page.extend(["<h2>", &html(title), "</h2>\n<table aria-label=\"", &html(title), "\">\n<thead>"]);
    let heads = heads.into_iter().map(|(head, class)| (html(&head.into()).into_owned(), class));
    write_row(page, "th scope=\"col\"", heads);
    page.push_str("</thead>\n<tbody>");
    rows.for_each(|row| write_row(page, "td", row));
    page.push_str("</tbody>\n</table>\n");
}

fn write_row(page: &mut String, tag: &str, cells: impl IntoIterator<Item = (String, &'static str)>) {
    page.push_str("<tr>");
    for (cell, class) in cells {
        match class {
            "" => page.extend(["<", tag, ">", &cell]),
            class => page.extend(["<", tag, " class=", class, ">", &cell]),
        }
        page.extend(["</", tag.split(' ').next().unwrap_or(tag), ">"]);
    }
    page.push_str("</tr>\n");
}

/// Formats a number or a rate.
fn rate(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        // Lossless: the fraction does not matter.
        100.0.. => grouped(value.round() as u64),
        _ if value.fract() == 0.0 => format!("{value}"),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_same_steps_of_heat() {
        let steps = HEAT.map(|step| step.to_string()).join(", ");
        assert!(SCRIPT.contains(&format!("const HEAT = [{steps}];")), "page.js has other steps than {steps}");
    }

    #[test]
    fn rates_are_formatted() {
        assert_eq!([0.0, 0.0167, 7.0, 12.34, 4_321.9].map(rate), ["0", "0.017", "7", "12.3", "4,322"]);
    }

    #[test]
    fn the_script_knows_the_ranges() {
        for range in RANGES {
            assert!(SCRIPT.contains(&format!("[\"{}\", \"", range.name)), "{}", range.name);
        }
    }

    /// The size includes markup and style, without the reports of services.
    #[test]
    fn the_page_is_small() {
        let len = SCRIPT.len() + STYLE.len() + include_str!("page.html").len();
        assert!(len < 65 * 1024, "{len} bytes");
    }
}
