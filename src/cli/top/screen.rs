//! Draws the view, on a terminal or as plain lines.

use super::controls::Controls;
use super::view::{Cell, PANELS, Panel, ServerLine, View, brief};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell as Field, Paragraph, Row, Table, Wrap};

/// The help for keys in the last line.
const KEYS: &str = "q quit  Tab table  s sort  r reverse  / filter  p pause  arrows scroll";
/// The greatest width of columns other than the first, which are as wide as their texts.
const WIDEST: usize = 30;
/// The least width of the first column, which has the rest.
const NARROWEST: u16 = 12;
/// The most servers on a screen, so that there is room for the tables.
const MOST_SERVERS: usize = 8;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &View, controls: &Controls) {
    let servers = server_lines(view);
    let [head, totals, body, foot] = Layout::vertical([
        Constraint::Length(servers.len() as u16),
        Constraint::Length(2),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Text::from(servers), head);
    frame.render_widget(Paragraph::new(total_line(view)).wrap(Wrap { trim: true }), totals);
    // The keys, of which there are most, get most of the room.
    let panels: [Rect; PANELS] =
        Layout::vertical([Constraint::Fill(3), Constraint::Fill(4), Constraint::Fill(3)]).areas(body);
    for (n, area) in panels.into_iter().enumerate() {
        draw_panel(frame, area, &view.panels[n], n, controls);
    }
    frame.render_widget(foot_line(controls), foot);
}

/// Returns the same as plain lines: every row, in columns as wide as their texts.
pub fn plain(view: &View) -> String {
    let mut lines: Vec<String> =
        view.servers.iter().map(|server| format!("{}: {}", server.address, state_of(server))).collect();
    lines.push(view.totals.iter().map(|(name, cell)| format!("{cell} {name}")).collect::<Vec<_>>().join(", "));
    for panel in &view.panels {
        let head = panel.columns.iter().map(|column| (*column).to_string()).collect();
        let rows = panel.rows.iter().map(|row| row.iter().map(Cell::to_string).collect());
        let table: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..panel.columns.len()).map(width).collect();
        lines.push(String::new());
        for row in &table {
            let fields = row.iter().zip(&widths).map(|(field, width)| format!("{field:width$}"));
            lines.push(fields.collect::<Vec<_>>().join("  ").trim_end().to_string());
        }
    }
    lines.join("\n") + "\n"
}

fn server_lines(view: &View) -> Vec<Line<'static>> {
    let line = |server: &ServerLine| {
        let style = if server.state.is_ok() { Style::new() } else { Style::new().fg(Color::Red) };
        Line::styled(format!("{}: {}", server.address, state_of(server)), style)
    };
    let mut lines: Vec<Line<'static>> = view.servers.iter().take(MOST_SERVERS).map(line).collect();
    if view.servers.len() > MOST_SERVERS {
        lines.push(Line::from(format!("and {} more", view.servers.len() - MOST_SERVERS)));
    }
    lines
}

fn state_of(server: &ServerLine) -> String {
    match &server.state {
        Ok(uptime) => format!("up {}", brief(*uptime)),
        Err(reason) => reason.clone(),
    }
}

fn total_line(view: &View) -> Line<'static> {
    let spans = view.totals.iter().flat_map(|(name, cell)| {
        let number = Span::styled(cell.to_string(), Style::new().add_modifier(Modifier::BOLD));
        // A number and its name stay in one line.
        [number, Span::from(format!("\u{a0}{name}  "))]
    });
    Line::from_iter(spans)
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, panel: &Panel, n: usize, controls: &Controls) {
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let style = if n == controls.focus { style.fg(Color::Cyan) } else { style };
    let skipped = controls.skipped[n].min(panel.rows.len().saturating_sub(1));
    let rows: Vec<Vec<String>> = std::iter::once(heads_of(panel, n, controls))
        .chain(panel.rows.iter().skip(skipped).map(|row| row.iter().map(Cell::to_string).collect()))
        .take(usize::from(area.height))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(WIDEST);
    let widths = (0..panel.columns.len()).map(|column| match column {
        0 => Constraint::Min(NARROWEST),
        _ => Constraint::Length(width(column) as u16),
    });
    let is_number = |column: usize| panel.rows.first().is_some_and(|row| row[column].is_number());
    let field = |(column, text): (usize, &String)| {
        let line = Line::from(text.clone());
        Field::from(if is_number(column) { line.right_aligned() } else { line })
    };
    let mut rows = rows.iter().map(|row| Row::new(row.iter().enumerate().map(field)));
    let head = rows.next().unwrap_or_default().style(style);
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

/// Returns the heads of the columns, with a mark at the one that sorts, and how many rows there are.
fn heads_of(panel: &Panel, n: usize, controls: &Controls) -> Vec<String> {
    let order = controls.orders[n];
    let head = |(column, name): (usize, &&str)| {
        let mark = match (column == order.column, order.is_reversed) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "~",
        };
        let count = if column == 0 { format!(" ({})", panel.rows.len()) } else { String::new() };
        format!("{name}{mark}{count}")
    };
    panel.columns.iter().enumerate().map(head).collect()
}

fn foot_line(controls: &Controls) -> Line<'static> {
    let filter = &controls.filter;
    match (controls.is_typing, filter.is_empty()) {
        (true, _) => Line::from(format!("filter: {filter}_  (Enter keeps it, Esc drops it)")),
        (false, false) => Line::from(format!("filter: {filter}  (Esc drops it)  {KEYS}")),
        (false, true) if controls.is_paused => Line::from(format!("paused  {KEYS}")),
        (false, true) => Line::from(KEYS),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::USUAL_ORDERS;
    use super::super::view::tests::samples;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, controls: &Controls) -> Vec<String> {
        let (before, now) = samples();
        let view = View::of(&now, Some(&before), &controls.filter, &controls.orders);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("has no errors");
        terminal.draw(|frame| draw(frame, &view, controls)).expect("has no errors");
        let buffer = terminal.backend().buffer();
        let line =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        let lines = buffer.content.chunks(width.into());
        lines.map(|cells| line(cells).replace('\u{a0}', " ").trim_end().to_string()).collect()
    }

    #[test]
    fn everything_is_on_the_screen() {
        let expected = "\
10.0.0.5: up 1 d 1 h
10.0.0.6: 10.0.0.6:7531: it does not answer
3 working  9 waiting  0 keys  25 locked/s  2.0 done/s  0.5 full/s  0.5 timeout/s

TYPE (2)                      WORK WAIT* LOCKED/s DONE/s FULL/s TIMEOUT/s   HELD
Article                          2     8       20    2.0    0.5       0.5 100 ms
File                             1     1      4.5      0      0         0  1.0 s

KEY (3)                                                      WORK WAIT*   OLDEST
Article:a                                                       1     8 1 m 15 s
File:\\u{1b}[2J                                                  1     1    3.2 s
Article:b                                                       1     0     5 ms


HELD KEY (2)                                                  FOR* HOLDER
Article:a                                                 1 m 15 s 10.1.0.1:5000
Article:b                                                     5 ms 10.1.0.2:5000

q quit  Tab table  s sort  r reverse  / filter  p pause  arrows scroll";
        assert_eq!(drawn(80, 19, &Controls::default()).join("\n"), expected);
    }

    #[test]
    fn the_controls_show() {
        let mut controls = Controls { filter: "article".into(), is_typing: true, ..Controls::default() };
        controls.orders[1].is_reversed = true;
        controls.skipped[2] = 1;
        let lines = drawn(80, 19, &controls);
        assert!(lines[8].starts_with("KEY (2)") && lines[8].contains("WAIT~"), "{lines:#?}");
        assert!(lines[9].starts_with("Article:b") && lines[10].starts_with("Article:a"), "{lines:#?}");
        assert!(lines[15].starts_with("Article:b") && lines[16].is_empty(), "{lines:#?}");
        assert_eq!(lines[18], "filter: article_  (Enter keeps it, Esc drops it)");
    }

    /// What does not fit is left out.
    #[test]
    fn any_size_will_do() {
        for (width, height) in [(1, 1), (10, 3), (20, 8), (300, 2), (3, 100)] {
            assert_eq!(drawn(width, height, &Controls::default()).len(), usize::from(height));
        }
    }

    #[test]
    fn without_a_terminal_there_are_lines() {
        let (before, now) = samples();
        let text = plain(&View::of(&now, Some(&before), "", &USUAL_ORDERS));
        let expected = "\
10.0.0.5: up 1 d 1 h
10.0.0.6: 10.0.0.6:7531: it does not answer
3 working, 9 waiting, 0 keys, 25 locked/s, 2.0 done/s, 0.5 full/s, 0.5 timeout/s

TYPE     WORK  WAIT  LOCKED/s  DONE/s  FULL/s  TIMEOUT/s  HELD
Article  2     8     20        2.0     0.5     0.5        100 ms
File     1     1     4.5       0       0       0          1.0 s

KEY             WORK  WAIT  OLDEST
Article:a       1     8     1 m 15 s
File:\\u{1b}[2J  1     1     3.2 s
Article:b       1     0     5 ms

HELD KEY   FOR       HOLDER
Article:a  1 m 15 s  10.1.0.1:5000
Article:b  5 ms      10.1.0.2:5000
";
        assert_eq!(text, expected);
    }
}
