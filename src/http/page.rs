//! The status page: one document that needs nothing else. Its script shows what `/status.json` says and asks for it again and
//! again; whoever runs no scripts reads plain tables.

use super::status::Status;
use super::text::html;
use std::fmt::Write;

/// Only the page's own style and script apply, and the script speaks to nobody but this server: were a name of a client ever
/// taken for markup, it could still do nothing. The hashes are those of `page.js` and `page.css`.
pub const POLICY: &str = concat!(
    "default-src 'none'; ",
    "script-src 'sha256-plqU+POL/4oF5jhffx/ksao0fPTrCvNR+AgWJdgzZx8='; ",
    "style-src 'sha256-XYgb9f1nJxcdnEXN5F8od+gwrjnl0cEQaJTaUWAQsoY='; ",
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
);

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The document.
pub fn render(status: &Status) -> String {
    // Nothing in a data block ends it but this character, and JSON can do without it.
    let json = status.to_json().replace('<', "\\u003c");
    format!(include_str!("page.html"), style = STYLE, script = SCRIPT, basic = basic(status), status = json)
}

/// What the page says to those who run no scripts.
fn basic(status: &Status) -> String {
    let mut page = format!(
        "<h1>poolcounter {}</h1>\n<p>This page refreshes itself every five seconds. With JavaScript it has plots, too.</p>\n",
        status.version
    );
    if let Some(reload) = &status.last_reload {
        let age = seconds((status.started_at + status.uptime - reload.at).max(0.0));
        let outcome = if reload.has_worked { "worked" } else { "has not worked: the log says why" };
        writeln!(page, "<p>The last reload was {age} ago and {outcome}.</p>").expect("a string takes every character");
    }
    let pools = &status.pools;
    let rows = pools.types.iter().map(|it| {
        let counts = [it.acquired, it.working, it.waiting, it.done, it.full, it.timeouts];
        let times = [it.wait.p50, it.wait.p99, it.hold.p50, it.hold.p99].map(|time| time.map_or("–".into(), seconds));
        [vec![it.name.clone()], counts.map(|count| count.to_string()).into(), times.into()].concat()
    });
    let heads =
        "type, acquired, working, waiting, done, full, timeouts, wait p50, wait p99, hold p50, hold p99".split(", ");
    table(&mut page, "Types of work", heads, rows);
    let rows = pools.busiest.iter();
    let rows = rows.map(|it| vec![it.key.clone(), it.working.to_string(), it.waiting.to_string(), seconds(it.oldest)]);
    table(&mut page, "Busiest keys now", "key, working, waiting, oldest".split(", "), rows);
    let rows = pools.hottest.iter().map(|it| vec![it.key.clone(), it.refusals.to_string(), it.waits.to_string()]);
    table(&mut page, "Hottest keys of the last hour", "key, refused, waited".split(", "), rows);
    let rows = pools.holders.iter().map(|it| vec![it.key.clone(), it.peer.clone(), seconds(it.age)]);
    table(&mut page, "Longest holders", "key, client, for".split(", "), rows);
    for service in &status.services {
        let value = |it: &super::status::Figure| if it.is_seconds { seconds(it.value) } else { it.value.to_string() };
        let rows = service.figures.iter().map(|it| vec![it.name.to_string(), value(it), it.help.to_string()]);
        let title = format!("The {} service: {} connections", service.name, service.connections);
        table(&mut page, &title, "figure, value, meaning".split(", "), rows);
    }
    page
}

fn table<'a>(
    page: &mut String,
    title: &str,
    heads: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = Vec<String>>,
) {
    let line = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!("<{tag}>{}</{tag}>", html(&cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = line("th", &mut heads.map(String::from));
    let body: String = rows.map(|row| line("td", &mut row.into_iter())).collect();
    writeln!(page, "<h2>{}</h2>\n<table>\n{head}{body}</table>", html(title)).expect("a string takes every character");
}

fn seconds(time: f64) -> String {
    format!("{time:.3} s")
}
