//! Draws the view on a terminal.

use super::controls::Controls;
use super::view::{Panel, ServiceLine, Total, View, value_of};
use crate::report::text_of;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Level};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell as Field, Paragraph, Row, Table};
use std::ops::Range;

/// Help about keys in the last line.
const KEYS: &str = "q quit  ? help  Tab table  Enter key  s sort  / filter  p pause  arrows move";
/// Help about all keys.
const HELP: [&str; 11] = [
    "q         end",
    "Tab       the next table; behind the last, those of the next service",
    "arrows    up and down: another row; left and right: sort by another column",
    "Enter     of a key: who holds its locks and who waits; Esc goes back",
    "s S       sort by the next column, or by the one before",
    "r         the other way round",
    "/         show only what contains a text; Esc shows all again",
    "p         pause; go on",
    "Space     look now",
    "?         this; any key ends it",
    "red is what is refused now, yellow what may become a trouble",
];
/// End of a text that is cut off.
const CUT: char = '…';
/// Greatest width of columns other than the first, which are as wide as their texts.
const WIDEST: usize = 30;
/// Least width of the first column, which gets the rest.
const NARROWEST: usize = 12;
/// Lines below which a table is left out, as long as another one has the focus: a title, heads and three rows.
const LEAST_HEIGHT: usize = 5;
/// Greatest width of the number of rows after a title.
const COUNT_WIDTH: usize = 8;
/// Text in the first line while no samples are taken.
const PAUSED: &str = " PAUSED: p goes on ";
/// Limit of servers on a screen, to leave room for the tables.
const MOST_SERVERS: usize = 8;

/// Limit of sentences about conditions.
const MOST_TROUBLES: usize = 5;

/// Draws the servers and services, and the tables of the service with the focus.
pub fn draw(frame: &mut Frame<'_>, view: &View, controls: &Controls) {
    let width = usize::from(frame.area().width);
    let servers = server_lines(view, width);
    let focus = controls.focus(&view.panels);
    let service = view.panels.get(focus).map_or(0, |panel| panel.service);
    let totals: Vec<Line<'_>> =
        view.services.iter().enumerate().map(|(n, line)| service_line(line, n == service, width)).collect();
    let [head, services, body, foot] = Layout::vertical([
        Constraint::Length(servers.len() as u16),
        Constraint::Length(1 + totals.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Text::from(servers), head);
    if controls.is_paused {
        let sign = Style::new().fg(Color::Yellow).add_modifier(Modifier::REVERSED | Modifier::BOLD);
        frame.render_widget(Line::styled(PAUSED, sign).right_aligned(), head);
    }
    frame.render_widget(Text::from(totals), services);
    frame.render_widget(foot_line(controls), foot);
    if controls.is_help {
        return frame.render_widget(Text::from_iter(HELP), body);
    }
    let mut panels: Vec<usize> = (0..view.panels.len()).filter(|n| view.panels[*n].service == service).collect();
    let least = |n: &usize| match view.panels[*n].table.rows.len() {
        0 => 1,
        rows => (rows + 3).min(LEAST_HEIGHT),
    };
    while panels.len() > 1 && panels.iter().map(least).sum::<usize>() > usize::from(body.height) {
        panels.remove(if panels.last() == Some(&focus) { 0 } else { panels.len() - 1 });
    }
    let room = |n: &usize| match view.panels[*n].table.rows.len() {
        0 => Constraint::Length(1),
        // Title, heads, rows, and an empty line.
        rows => Constraint::Max(rows.saturating_add(3).try_into().unwrap_or(u16::MAX)),
    };
    let areas = Layout::vertical(panels.iter().map(room)).split(body);
    for (n, area) in panels.into_iter().zip(areas.iter()) {
        draw_panel(frame, *area, &view.panels[n], n == focus, controls);
    }
}

/// Returns the text, cut to a width.
fn capped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width.saturating_sub(1)).chain([CUT]).collect()
}

fn server_lines(view: &View, width: usize) -> Vec<Line<'static>> {
    let line = |(address, state): &(String, Result<String, String>)| match state {
        Ok(uptime) => Line::from(capped(&format!("{address}: up {uptime}"), width)),
        Err(reason) => Line::styled(capped(&format!("{address}: {reason}"), width), Style::new().fg(Color::Red)),
    };
    let mut lines: Vec<Line<'static>> = view.servers.iter().take(MOST_SERVERS).map(line).collect();
    if view.servers.len() > MOST_SERVERS {
        lines.push(Line::from(format!("and {} more", view.servers.len() - MOST_SERVERS)));
    }
    let trouble = |(level, sentence): &(Level, String)| {
        let colour = if *level == Level::Critical { Color::Red } else { Color::Yellow };
        Line::styled(capped(sentence, width), Style::new().fg(colour))
    };
    lines.extend(view.troubles.iter().take(MOST_TROUBLES).map(trouble));
    let more = view.troubles.len().saturating_sub(MOST_TROUBLES) + view.more_troubles;
    if more > 0 {
        lines.push(Line::from(format!("and {more} more: poolcounter status prints all")));
    }
    lines
}

/// Returns the line of a service with as many numbers as fit, coloured ones first if not all fit.
fn service_line(service: &ServiceLine, has_focus: bool, width: usize) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let name = Span::styled(service.name.clone(), if has_focus { bold.fg(Color::Cyan) } else { bold });
    let mut line = Line::from(name);
    let mut totals: Vec<&Total> = service.totals.iter().collect();
    let length = |total: &&Total| 3 + total.name.chars().count() + total.text.chars().count();
    if line.width() + totals.iter().map(length).sum::<usize>() > width {
        totals.sort_by_key(|total| style_of(total.emphasis) == Style::new());
    }
    let all = totals.len();
    for (n, Total { name, text, emphasis }) in totals.into_iter().enumerate() {
        let total = [
            Span::from("  "),
            Span::styled(text.clone(), bold.patch(style_of(*emphasis))),
            Span::from(format!(" {name}")),
        ];
        let is_last = n + 1 == all;
        let room = width.saturating_sub(line.width() + if is_last { 0 } else { 2 });
        if total.iter().map(Span::width).sum::<usize>() > room {
            line.push_span(format!(" {CUT}"));
            break;
        }
        line.extend(total);
    }
    line
}

/// Returns the style of a value that is not zero: coloured if something is refused now, or waits.
fn style_of(emphasis: Emphasis) -> Style {
    match emphasis {
        Emphasis::Alarm => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Emphasis::Caution => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn style_of_cell(cell: &Cell, column: &Column) -> Style {
    let is_now = column.is_counter || column.emphasis == Emphasis::Caution && column.unit == ColumnUnit::Number;
    if is_now && value_of(cell) > Some(0.0) { style_of(column.emphasis) } else { Style::new() }
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, panel: &Panel, has_focus: bool, controls: &Controls) {
    let shown = &panel.table;
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let style = if has_focus { style.fg(Color::Cyan) } else { style };
    let [title, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    if shown.rows.is_empty() {
        let text = capped(&format!("{}: {}", shown.title, shown.empty), usize::from(title.width));
        return frame.render_widget(Paragraph::new(text).style(style), title);
    }
    let text = capped(&shown.title, usize::from(title.width).saturating_sub(COUNT_WIDTH));
    frame.render_widget(Paragraph::new(format!("{text} ({})", shown.rows.len())).style(style), title);
    let selected = controls.selected(panel);
    // The selected row is at most the last one.
    let skipped = (selected + 2).saturating_sub(usize::from(table.height)).min(selected);
    let seen: Vec<&Vec<Cell>> =
        shown.rows.iter().skip(skipped).take(usize::from(table.height).saturating_sub(1)).collect();
    let heads = heads_of(panel);
    let cells = |row: &&Vec<Cell>| row.iter().zip(&shown.columns).map(|(cell, head)| text_of(cell, head)).collect();
    let texts: Vec<Vec<String>> = seen.iter().map(cells).collect();
    let width = |column: usize| {
        let all = [&heads].into_iter().chain(&texts).map(|row| row[column].chars().count());
        all.max().unwrap_or(0).min(WIDEST)
    };
    let widths: Vec<usize> = (0..shown.columns.len()).map(width).collect();
    let fitted = fitting(&widths, usize::from(table.width), panel.order.column.unwrap_or(0));
    let columns = || [0].into_iter().chain(fitted.clone());
    let others: usize = fitted.clone().map(|column| widths[column] + 1).sum();
    let first = usize::from(table.width).saturating_sub(others);
    let field = |text: &str, column: usize, style: Style| {
        let line = Line::styled(capped(text, if column == 0 { first } else { widths[column] }), style);
        Field::from(if shown.columns[column].is_text() { line } else { line.right_aligned() })
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head = Row::new(columns().map(|column| field(&heads[column], column, bold)).collect::<Vec<_>>());
    let lines = seen.iter().zip(&texts).enumerate().map(|(n, (cells, texts))| {
        let style = |column: usize| style_of_cell(&cells[column], &shown.columns[column]);
        let row = Row::new(columns().map(|column| field(&texts[column], column, style(column))).collect::<Vec<_>>());
        let is_selected = has_focus && skipped + n == selected;
        if is_selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let widths = columns().map(|column| match column {
        0 => Constraint::Min(NARROWEST as u16),
        _ => Constraint::Length(widths[column] as u16),
    });
    frame.render_widget(Table::new(lines, widths).header(head), table);
}

/// Returns the columns beside the first that fit into a table of that width, including the sorting column.
fn fitting(widths: &[usize], width: usize, sorting: usize) -> Range<usize> {
    let (mut first, sorting) = (1.min(widths.len()), sorting.min(widths.len().saturating_sub(1)));
    loop {
        let mut room = width.saturating_sub(NARROWEST);
        let fits = |column: &usize| match room.checked_sub(widths[*column] + 1) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        let end = first + (first..widths.len()).take_while(fits).count();
        if sorting < end || first >= sorting {
            return first..end;
        }
        first += 1;
    }
}

/// Returns the heads of the columns, with a mark at the sorting column.
fn heads_of(panel: &Panel) -> Vec<String> {
    let mark = if panel.order.is_reversed { "~" } else { "*" };
    let head = |(column, title): (usize, &str)| {
        let is_sorting = panel.order.column == Some(column);
        if is_sorting { format!("{title}{mark}") } else { title.into() }
    };
    panel.table.columns.iter().map(|head| &*head.title).enumerate().map(head).collect()
}

fn foot_line(controls: &Controls) -> Line<'static> {
    let filter = &controls.filter;
    match (controls.is_typing, filter.is_empty()) {
        (true, _) => Line::from(format!("filter: {filter}_  (Enter keeps it, Esc drops it)")),
        (false, false) => Line::from(format!("filter: {filter}  (Esc drops it)  {KEYS}")),
        (false, true) => Line::from(KEYS),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::samples;
    use super::super::view::{Orders, SortOrder};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, controls: &Controls) -> Vec<String> {
        let (before, now) = samples();
        drawn_view(&View::of(&now, Some(&before), &controls.filter, &controls.orders), width, height, controls)
    }

    fn drawn_view(view: &View, width: u16, height: u16, controls: &Controls) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("has no errors");
        terminal.draw(|frame| draw(frame, view, controls)).expect("has no errors");
        let buffer = terminal.backend().buffer();
        let line =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        buffer.content.chunks(width.into()).map(|cells| line(cells).trim_end().to_string()).collect()
    }

    #[test]
    fn everything_is_on_the_screen() {
        let expected = "\
10.0.0.5: up 1 d 1 h
10.0.0.6: 10.0.0.6:7531: it does not answer
work  3 connections  25 Done/s  7 Ready

Jobs by type (2)
type                                             ready done/s wait p50 wait p99
Article                                              8     20   250 ms        -
File:\\u{1b}[2J                                       9      -    1.5 s        -

Longest locks (2)
key                                                                         for
Article:a                                                            1 min 15 s
Article:b                                                                  5 ms


q quit  ? help  Tab table  Enter key  s sort  / filter  p pause  arrows move";
        assert_eq!(drawn(79, 16, &Controls::default()).join("\n"), expected);
    }

    #[test]
    fn conditions_that_do_not_fit_are_counted() {
        let (_, now) = samples();
        let mut view = View::of(&now, None, "", &Orders::new());
        view.troubles = (1..=7).map(|n| (Level::Critical, format!("critical Jobs: type{n}"))).collect();
        view.more_troubles = 2;
        let lines = drawn_view(&view, 80, 24, &Controls::default());
        assert_eq!((&*lines[2], &*lines[6]), ("critical Jobs: type1", "critical Jobs: type5"));
        assert_eq!(lines[7], "and 4 more: poolcounter status prints all");
        assert!(lines.iter().any(|line| line.starts_with("Article ")), "{lines:#?}");
        view.troubles.truncate(5);
        view.more_troubles = 0;
        assert!(drawn_view(&view, 80, 24, &Controls::default())[7].starts_with("work "));
    }

    #[test]
    fn the_table_in_focus_has_its_rows_on_a_low_screen() {
        let both = drawn(79, 15, &Controls::default());
        assert!(both[4] == "Jobs by type (2)" && both[9] == "Longest locks (2)", "{both:#?}");
        let first = drawn(79, 14, &Controls::default());
        assert!(first[4] == "Jobs by type (2)" && !first.contains(&"Longest locks (2)".into()), "{first:#?}");
        let second = drawn(79, 14, &Controls { focus: "work.locks".into(), ..Controls::default() });
        assert!(second[4] == "Longest locks (2)" && second[7].starts_with("Article:b"), "{second:#?}");
    }

    #[test]
    fn the_controls_show() {
        let order = SortOrder { column: Some(1), is_reversed: true };
        let orders = Orders::from([("work.locks".into(), order)]);
        let controls = Controls { filter: "article".into(), is_typing: true, orders, ..Controls::default() };
        let lines = drawn(79, 16, &controls);
        assert_eq!(lines[4], "Jobs by type (1)");
        assert!(lines[9].ends_with(" for~"), "{lines:#?}");
        assert!(lines[10].starts_with("Article:b") && lines[11].starts_with("Article:a"), "{lines:#?}");
        assert_eq!(lines[15], "filter: article_  (Enter keeps it, Esc drops it)");
        let lines = drawn(79, 9, &Controls { filter: "nothing".into(), ..Controls::default() });
        assert_eq!(lines[4..6], ["Jobs by type: none with this text", "Longest locks: none with this text"]);
    }

    /// A cut text ends with an ellipsis, and no line is wider than the screen.
    #[test]
    fn names_are_capped() {
        let lines = drawn(18, 16, &Controls::default());
        assert_eq!(lines[1], "10.0.0.6: 10.0.0.…");
        assert_eq!(lines[2], "work …");
        assert_eq!(lines[7], "File:\\u{1b}…     9");
    }

    #[test]
    fn a_pause_and_the_help_are_seen() {
        let lines = drawn(79, 24, &Controls { is_paused: true, ..Controls::default() });
        assert!(lines[0].starts_with("10.0.0.5: up") && lines[0].ends_with(PAUSED.trim_end()), "{lines:#?}");
        let lines = drawn(80, 24, &Controls { is_help: true, ..Controls::default() });
        assert!(HELP.iter().all(|line| lines.iter().any(|shown| shown == line)), "{lines:#?}");
        assert!(KEYS.len() <= 80);
    }

    #[test]
    fn a_key_has_its_holders() {
        let (before, mut now) = samples();
        let claim = |peer: &str, waits_for| poolcounter_client::ListedClaim {
            peer: peer.into(),
            who: "me".into(),
            waits_for,
            age: poolcounter_core::time::Span::from_secs(3),
            kept_for: None,
        };
        now.key = Some((
            "k".into(),
            vec![claim("10.0.0.9:1", None), claim("10.0.0.9:2", Some(poolcounter_client::Purpose::Me))],
        ));
        let view = View::of(&now, Some(&before), "", &Orders::new());
        assert_eq!(view.panels.len(), 1);
        let lines = drawn_view(&view, 50, 16, &Controls::default());
        let at = lines.iter().position(|line| line.starts_with("working ")).expect("the holder comes first");
        assert!(lines[at].contains("10.0.0.9:1") && lines[at + 1].starts_with("waiting for me "), "{lines:#?}");
    }

    /// Parts that do not fit are left out.
    #[test]
    fn any_size_will_do() {
        for (width, height) in [(1, 1), (10, 3), (20, 8), (300, 2), (3, 100)] {
            assert_eq!(drawn(width, height, &Controls::default()).len(), usize::from(height));
        }
    }

    #[test]
    fn the_column_that_sorts_is_in_sight() {
        let widths = [40, 5, 6, 7, 8];
        for (width, sorting, shown) in
            [(100, 0, 1..5), (25, 0, 1..3), (25, 2, 1..3), (28, 3, 2..4), (21, 4, 4..5), (20, 4, 4..4), (0, 0, 1..1)]
        {
            assert_eq!(fitting(&widths, width, sorting), shown, "{width} {sorting}");
        }
        assert_eq!(fitting(&[], 80, 3), 0..0);
    }
}
