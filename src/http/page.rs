//! The status page: one document that needs nothing else. Its script shows what `/status.json` says and asks for it again and
//! again; whoever runs no scripts reads plain tables.

use super::text::html;
use crate::report::matrix::{ShownHeat, ShownMatrix};
use crate::report::snapshot::{ShownCurve, ShownFigure, Snapshot, Values};
use crate::report::tables::{ColumnHead, Heading, ShownCell, ShownTimes};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt::Write;

/// Only the page's own style and script apply, and the script speaks to nobody but this server: were a name of a client ever
/// taken for markup, it could still do nothing. The hashes are those of `page.js` and `page.css`.
macro_rules! policy {
    ($forms:literal) => {
        concat!(
            "default-src 'none'; ",
            "script-src 'sha256-NGEm7eR14ou8zgXjwNFwl7gQqRFW21+y+YsFgFN2WVM='; ",
            "style-src 'sha256-6Da9/NEbY0HcnV6H2ILg4y+51TueQScmIQZeaxF8CqQ='; ",
            "img-src data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action ",
            $forms
        )
    };
}

/// What a page may do.
pub const POLICY: &str = policy!("'none'");
/// What a page with buttons may do, which are forms for those who run no scripts.
pub const ADMIN_POLICY: &str = policy!("'self'");

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// From how many seconds on a cell of a matrix is how hot. The same stands in `page.js`.
const HEAT: [f64; 5] = [10.0, 60.0, 600.0, 3600.0, 21_600.0];

/// What is escaped in a part of a path.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// What stands where there is nothing to say.
const NOTHING: Cow<'static, str> = Cow::Borrowed("–");

/// The document.
pub fn render(status: &Snapshot) -> String {
    // Nothing in a data block ends it but this character, and JSON can do without it.
    let json = status.to_json().replace('<', "\\u003c");
    format!(include_str!("page.html"), style = STYLE, script = SCRIPT, basic = basic(status), status = json)
}

/// What the page says to those who run no scripts.
fn basic(status: &Snapshot) -> String {
    let mut page = format!(
        "<h1><a href=\"/\">poolcounter</a> {}</h1>\n<p>This page refreshes itself every five seconds. With JavaScript it has plots, too.</p>\n",
        status.version
    );
    if let Some(title) = &status.title {
        page.extend(["<h2>", &html(title), "</h2>\n"]);
        write_series(&mut page, status);
    }
    if let Some(reload) = &status.last_reload {
        let age = seconds((status.started_at + status.uptime - reload.at).max(0.0));
        let outcome = if reload.has_worked { "worked" } else { "has not worked: the log says why" };
        writeln!(page, "<p>The last reload was {age} ago and {outcome}.</p>").expect("a string takes every character");
    }
    let mut tables = status.tables.0.iter();
    for service in &status.services {
        if let Some(matrix) = &service.matrix {
            write_matrix(&mut page, matrix);
        }
        for (heading, table) in service.tables.iter().zip(&mut tables) {
            write_table(&mut page, service.name, heading, &table.rows, status.is_admin);
        }
    }
    for service in status.services.iter().filter(|service| !service.figures.is_empty()) {
        let value = |it: &ShownFigure| if it.is_seconds { seconds(it.value) } else { it.value.to_string() };
        let row = |it: &ShownFigure| [it.name.to_string(), value(it), html(it.help).into_owned()];
        let title = format!("The {} service: {} connections", service.name, service.connections);
        write_rows(&mut page, &title, ["figure", "value", "meaning"], service.figures.iter().map(row));
    }
    page
}

/// What is remembered of one thing, as numbers.
fn write_series(page: &mut String, status: &Snapshot) {
    let row = |curve: &ShownCurve| {
        let peak = match &curve.values {
            Values::Levels(values) => values.iter().copied().max().unwrap_or(0) as f64,
            Values::Rates(values) => values.iter().copied().fold(0.0, f64::max),
        };
        [html(curve.title).into_owned(), curve.now.to_string(), peak.to_string(), html(curve.unit).into_owned()]
    };
    write_rows(page, "", ["", "now", "peak", ""], status.history.series.iter().map(row));
}

fn write_table(page: &mut String, service: &str, heading: &Heading, rows: &[Vec<ShownCell>], is_admin: bool) {
    if rows.is_empty() {
        return page.extend(["<h2>", &html(heading.title), "</h2>\n<p>", &html(heading.empty), "</p>\n"]);
    }
    let heads = heading.columns.iter().flat_map(|column| match *column {
        ColumnHead { title, unit: "times", .. } => ["p50", "p99"].map(|share| Some(format!("{title} {share}").into())),
        ColumnHead { title, .. } => [Some(Cow::Borrowed(title)), None],
    });
    let markup = |(cell, column): (&ShownCell, &ColumnHead)| match cell {
        ShownCell::Text(text) => [Some(markup_of(text, column, service, is_admin)), None],
        other => texts_of(other).map(|text| text.map(Cow::into_owned)),
    };
    let rows_of = rows.iter().map(|row| row.iter().zip(&heading.columns).flat_map(markup).flatten());
    write_rows(page, heading.title, heads.flatten(), rows_of);
    let more = (heading.more > 0).then(|| format!("There are {} more.", heading.more));
    for sentence in [Some(heading.help), heading.note.as_deref(), more.as_deref()].into_iter().flatten() {
        if !sentence.is_empty() {
            writeln!(page, "<p>{}</p>", html(sentence)).expect("a string takes every character");
        }
    }
}

/// What a text is on the page: with a link to what there is to know of it, or with buttons for what can be done with it.
fn markup_of(text: &str, column: &ColumnHead, service: &str, is_admin: bool) -> String {
    let mut markup = column.link.map_or_else(|| html(text).into_owned(), |path| link(path, text));
    for action in column.actions.iter().filter(|_| is_admin) {
        let target = format!("/{service}/{action}/{}", escaped(text));
        let form = format!(" <form method=\"post\" action=\"{target}\"><button>{action}</button></form>");
        markup.push_str(&form);
    }
    markup
}

fn write_matrix(page: &mut String, matrix: &ShownMatrix) {
    let ShownMatrix { title, columns, rows, others, all, more_rows, more_columns, path, .. } = matrix;
    let (row_word, row_path) = matrix.row;
    let rest = |more: &usize| format!("{more} more");
    let names = columns.iter().map(|name| link(matrix.column.1, name)).chain([rest(more_columns), "all".into()]);
    let heads: Vec<String> = [html(row_word).into_owned()].into_iter().chain(names).collect();
    page.extend(["<h2>", &html(title), "</h2>\n"]);
    if rows.is_empty() {
        return page.extend(["<p>", &html(matrix.empty), "</p>\n"]);
    }
    page.push_str("<table class=\"matrix\">\n");
    write_row(page, "th", heads);
    let mut write_line = |name: String, values: &[ShownHeat]| {
        page.extend(["<tr><td>", &name, "</td>"]);
        values.iter().for_each(|heat| write_heat(page, *heat));
        page.push_str("</tr>\n");
    };
    rows.iter().for_each(|line| write_line(link(row_path, &line.name), &line.values));
    write_line(rest(more_rows), others);
    write_line("all".into(), all);
    page.push_str("</table>\n");
    writeln!(page, "<p>{} <a href=\"{path}\">Show all.</a></p>", html(matrix.help))
        .expect("a string takes every character");
}

/// A cell with how many wait, and for how long; nothing where none do.
fn write_heat(page: &mut String, ShownHeat(count, age): ShownHeat) {
    match (count, HEAT.iter().rposition(|least| age >= *least)) {
        (0, _) => page.push_str("<td></td>"),
        (_, None) => write!(page, "<td>{count} <i>{age:.0} s</i></td>").expect("a string takes every character"),
        (_, Some(level)) => write!(page, "<td class=\"h{level}\">{count} <i>{age:.0} s</i></td>")
            .expect("a string takes every character"),
    }
}

/// Returns a link to what there is to know of something of that name.
fn link(path: &str, name: &str) -> String {
    format!("<a href=\"{path}{}\">{}</a>", escaped(name), html(name))
}

/// Returns the text as a part of a path.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, IN_PATHS)
}

/// What a cell says, in one column or two.
fn texts_of(cell: &ShownCell) -> [Option<Cow<'_, str>>; 2] {
    let time = |time: Option<f64>, is_over| match (time, is_over) {
        (None, _) => NOTHING,
        (Some(time), false) => seconds(time).into(),
        (Some(time), true) => format!("over {}", seconds(time)).into(),
    };
    let one = |text| [Some(text), None];
    match cell {
        ShownCell::Nothing => one(NOTHING),
        ShownCell::Text(text) => one(html(text)),
        ShownCell::Number(number) => one(number.to_string().into()),
        ShownCell::Seconds(span) => one(seconds(*span).into()),
        ShownCell::Times(ShownTimes { p50, p99, p50_is_over, p99_is_over }) => {
            [Some(time(*p50, *p50_is_over)), Some(time(*p99, *p99_is_over))]
        }
    }
}

/// Writes rows whose cells are markup.
fn write_rows<'a>(
    page: &mut String,
    title: &str,
    heads: impl IntoIterator<Item = impl Into<Cow<'a, str>>>,
    rows: impl Iterator<Item = impl IntoIterator<Item = String>>,
) {
    page.extend(["<h2>", &html(title), "</h2>\n<table>\n"]);
    write_row(page, "th", heads.into_iter().map(|head| html(&head.into()).into_owned()));
    rows.for_each(|row| write_row(page, "td", row));
    page.push_str("</table>\n");
}

fn write_row(page: &mut String, tag: &str, cells: impl IntoIterator<Item = String>) {
    page.push_str("<tr>");
    cells.into_iter().for_each(|cell| page.extend(["<", tag, ">", &cell, "</", tag, ">"]));
    page.push_str("</tr>\n");
}

fn seconds(time: f64) -> String {
    format!("{time:.3} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_same_steps_of_heat() {
        let steps = HEAT.map(|step| step.to_string()).join(", ");
        assert!(SCRIPT.contains(&format!("const HEAT = [{steps}];")), "page.js has other steps than {steps}");
    }
}
