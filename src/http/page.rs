//! The status page: one document that needs nothing else. Its script shows what `/status.json` says and asks for it again and
//! again; whoever runs no scripts reads plain tables.

use super::text::html;
use crate::report::snapshot::{ShownFigure, Snapshot};
use crate::report::tables::{ColumnHead, Heading, ShownCell, ShownTimes};
use std::borrow::Cow;
use std::fmt::Write;

/// Only the page's own style and script apply, and the script speaks to nobody but this server: were a name of a client ever
/// taken for markup, it could still do nothing. The hashes are those of `page.js` and `page.css`.
pub const POLICY: &str = concat!(
    "default-src 'none'; ",
    "script-src 'sha256-2ZrPxVVehCPb04TKaf9ZT2sf74CPdzSlN17vVz+SXLQ='; ",
    "style-src 'sha256-AOj1vef/2Dl275UWEfuXrrqTRuK2FXBzIBh1W8jaT8o='; ",
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
);

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

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
        "<h1>poolcounter {}</h1>\n<p>This page refreshes itself every five seconds. With JavaScript it has plots, too.</p>\n",
        status.version
    );
    if let Some(reload) = &status.last_reload {
        let age = seconds((status.started_at + status.uptime - reload.at).max(0.0));
        let outcome = if reload.has_worked { "worked" } else { "has not worked: the log says why" };
        writeln!(page, "<p>The last reload was {age} ago and {outcome}.</p>").expect("a string takes every character");
    }
    let headings = status.services.iter().flat_map(|service| &service.tables);
    for (heading, table) in headings.zip(&status.tables.0) {
        write_table(&mut page, heading, &table.rows);
    }
    for service in &status.services {
        let value = |it: &ShownFigure| if it.is_seconds { seconds(it.value) } else { it.value.to_string() };
        let row = |it: &ShownFigure| [it.name.into(), value(it).into(), it.help.into()];
        let title = format!("The {} service: {} connections", service.name, service.connections);
        write_rows(&mut page, &title, ["figure", "value", "meaning"], service.figures.iter().map(row));
    }
    page
}

fn write_table(page: &mut String, heading: &Heading, rows: &[Vec<ShownCell>]) {
    let heads = heading.columns.iter().flat_map(|column| match *column {
        ColumnHead { title, unit: "times", .. } => ["p50", "p99"].map(|share| Some(format!("{title} {share}").into())),
        ColumnHead { title, .. } => [Some(Cow::Borrowed(title)), None],
    });
    write_rows(page, heading.title, heads.flatten(), rows.iter().map(|row| row.iter().flat_map(texts_of).flatten()));
    let more = (heading.more > 0).then(|| format!("There are {} more.", heading.more));
    for sentence in [Some(heading.help), heading.note.as_deref(), more.as_deref()].into_iter().flatten() {
        if !sentence.is_empty() && !rows.is_empty() {
            writeln!(page, "<p>{}</p>", html(sentence)).expect("a string takes every character");
        }
    }
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
        ShownCell::Text(text) => one(text.into()),
        ShownCell::Number(number) => one(number.to_string().into()),
        ShownCell::Seconds(span) => one(seconds(*span).into()),
        ShownCell::Times(ShownTimes { p50, p99, p50_is_over, p99_is_over }) => {
            [Some(time(*p50, *p50_is_over)), Some(time(*p99, *p99_is_over))]
        }
    }
}

fn write_rows<'a>(
    page: &mut String,
    title: &str,
    heads: impl IntoIterator<Item = impl Into<Cow<'a, str>>>,
    rows: impl Iterator<Item = impl IntoIterator<Item = Cow<'a, str>>>,
) {
    page.extend(["<h2>", &html(title), "</h2>\n<table>\n"]);
    write_row(page, "th", heads.into_iter().map(Into::into));
    rows.for_each(|row| write_row(page, "td", row));
    page.push_str("</table>\n");
}

fn write_row<'a>(page: &mut String, tag: &str, cells: impl IntoIterator<Item = Cow<'a, str>>) {
    page.push_str("<tr>");
    cells.into_iter().for_each(|cell| page.extend(["<", tag, ">", &html(&cell), "</", tag, ">"]));
    page.push_str("</tr>\n");
}

fn seconds(time: f64) -> String {
    format!("{time:.3} s")
}
