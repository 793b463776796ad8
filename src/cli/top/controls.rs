//! State of the screen's controls, and its changes by keys.

use super::view::{Orders, Panel, SortOrder};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::HashMap;

/// Choices of the user.
#[derive(Default)]
pub struct Controls {
    /// Text that visible rows must contain.
    pub filter: String,
    /// True while keys are typed into the filter.
    pub is_typing: bool,
    /// Name of the table with the focus; the first table if it does not exist.
    pub focus: String,
    /// Order of each table.
    pub orders: Orders,
    /// Selected row of each table.
    pub selected: HashMap<String, usize>,
    /// Key whose holders are shown instead of the tables.
    pub key: Option<String>,
    /// True if the help is shown instead of the tables.
    pub is_help: bool,
    /// True if no samples are taken.
    pub is_paused: bool,
}

/// Action after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyAction {
    /// Draw the screen again.
    Redraw,
    /// Ask the servers at once.
    Refresh,
    /// End the command.
    Quit,
}

/// Longest filter, in characters.
const LONGEST_FILTER: usize = 100;
/// Number of rows of a page.
const PAGE: usize = 10;

impl Controls {
    /// Returns the index of the table with the focus.
    pub fn focus(&self, panels: &[Panel]) -> usize {
        panels.iter().position(|panel| panel.id == self.focus).unwrap_or(0)
    }

    /// Returns the selected row of a table.
    pub fn selected(&self, panel: &Panel) -> usize {
        self.selected.get(&panel.id).map_or(0, |selected| (*selected).min(panel.table.rows.len().saturating_sub(1)))
    }

    /// Handles a key, with these tables on the screen.
    pub fn press(&mut self, key: KeyEvent, panels: &[Panel]) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { KeyAction::Quit } else { KeyAction::Redraw };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return KeyAction::Redraw;
        }
        if std::mem::take(&mut self.is_help) {
            return KeyAction::Redraw;
        }
        match key.code {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Enter => return self.show_key(panels),
            KeyCode::Esc | KeyCode::Backspace if self.key.is_some() => {
                self.key = None;
                return KeyAction::Refresh;
            }
            KeyCode::Char(' ') => return KeyAction::Refresh,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            code => self.move_in(panels, code),
        }
        KeyAction::Redraw
    }

    /// Shows the holders of the key in the selected row, or the tables again.
    fn show_key(&mut self, panels: &[Panel]) -> KeyAction {
        let panel = panels.get(self.focus(panels));
        let key = panel.and_then(|panel| panel.key(self.selected(panel))).map(String::from);
        if key.is_none() && self.key.is_none() {
            return KeyAction::Redraw;
        }
        self.key = key;
        KeyAction::Refresh
    }

    /// Handles a key for a table.
    fn move_in(&mut self, panels: &[Panel], code: KeyCode) {
        let focus = self.focus(panels);
        let Some(panel) = panels.get(focus) else { return };
        let selected = self.selected(panel);
        let order = self.orders.entry(panel.id.clone()).or_default();
        let selected = match code {
            KeyCode::Tab => return self.focus.clone_from(&panels[(focus + 1) % panels.len()].id),
            KeyCode::BackTab => return self.focus.clone_from(&panels[(focus + panels.len() - 1) % panels.len()].id),
            KeyCode::Char('s') | KeyCode::Right => return *order = order.next(panel.table.columns.len()),
            KeyCode::Char('S') | KeyCode::Left => return *order = order.previous(panel.table.columns.len()),
            KeyCode::Char('r') => return order.is_reversed = !order.is_reversed,
            KeyCode::Down => selected + 1,
            KeyCode::Up => selected.saturating_sub(1),
            KeyCode::PageDown => selected + PAGE,
            KeyCode::PageUp => selected.saturating_sub(PAGE),
            KeyCode::Home => 0,
            _ => return,
        };
        self.selected.insert(panel.id.clone(), selected.min(panel.table.rows.len().saturating_sub(1)));
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.len() < LONGEST_FILTER => self.filter.push(c),
            _ => {}
        }
        self.selected.clear();
    }
}

impl SortOrder {
    /// Returns the order by the next column; after the last one, the order of the servers.
    fn next(self, columns: usize) -> SortOrder {
        let column = self.column.map_or(0, |column| column + 1);
        SortOrder { column: Some(column).filter(|column| *column < columns), is_reversed: false }
    }

    fn previous(self, columns: usize) -> SortOrder {
        let column = self.column.map_or(columns.checked_sub(1), |column| column.checked_sub(1));
        SortOrder { column, is_reversed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::View;
    use super::super::view::tests::samples;
    use super::*;

    fn panels() -> Vec<Panel> {
        View::of(&samples().1, None, "", &Orders::new()).panels
    }

    fn press(controls: &mut Controls, panels: &[Panel], codes: &[KeyCode]) -> KeyAction {
        let mut pressed = KeyAction::Redraw;
        for code in codes {
            pressed = controls.press(KeyEvent::from(*code), panels);
        }
        pressed
    }

    #[test]
    fn keys_sort_and_scroll_the_table_in_focus() {
        let (mut controls, panels) = (Controls::default(), panels());
        press(&mut controls, &panels, &[KeyCode::Tab, KeyCode::Char('s'), KeyCode::Char('r'), KeyCode::PageDown]);
        assert_eq!((controls.focus(&panels), controls.selected(&panels[0]), controls.selected(&panels[1])), (1, 0, 1));
        assert_eq!(controls.orders["work.locks"], SortOrder { column: Some(0), is_reversed: true });
        press(&mut controls, &panels, &[KeyCode::Right, KeyCode::Right, KeyCode::Up]);
        assert_eq!(controls.orders["work.locks"], SortOrder::default(), "behind the last column is none");
        assert_eq!(controls.selected(&panels[1]), 0);
        press(
            &mut controls,
            &panels,
            &[KeyCode::Left, KeyCode::Down, KeyCode::Home, KeyCode::BackTab, KeyCode::BackTab],
        );
        assert_eq!(controls.orders["work.locks"].column, Some(1));
        assert_eq!((controls.focus(&panels), controls.selected(&panels[1])), (1, 0));
    }

    #[test]
    fn enter_shows_the_holders_of_a_key() {
        let (mut controls, mut panels) = (Controls::default(), panels());
        assert_eq!(press(&mut controls, &panels, &[KeyCode::Enter]), KeyAction::Redraw, "types have no holders");
        panels[1].id = "pools.holders".into();
        let keys = [KeyCode::Tab, KeyCode::Down, KeyCode::Enter];
        assert_eq!(press(&mut controls, &panels, &keys), KeyAction::Refresh);
        assert_eq!(controls.key.as_deref(), Some("Article:b"));
        assert_eq!(press(&mut controls, &panels, &[KeyCode::Esc]), KeyAction::Refresh);
        assert_eq!(controls.key, None);
    }

    #[test]
    fn any_key_ends_the_help() {
        let mut controls = Controls::default();
        press(&mut controls, &[], &[KeyCode::Char('?')]);
        assert!(controls.is_help);
        assert_eq!(press(&mut controls, &[], &[KeyCode::Char('q')]), KeyAction::Redraw);
        assert!(!controls.is_help);
    }

    #[test]
    fn tables_may_go() {
        let (mut controls, mut panels) = (Controls::default(), panels());
        press(&mut controls, &panels, &[KeyCode::Tab, KeyCode::Down]);
        panels[1].table.rows.clear();
        assert_eq!(controls.selected(&panels[1]), 0);
        panels.pop();
        assert_eq!(controls.focus(&panels), 0);
        assert_eq!(press(&mut controls, &[], &[KeyCode::Tab, KeyCode::Down]), KeyAction::Redraw);
    }

    #[test]
    fn typed_text_is_the_filter() {
        let mut controls = Controls::default();
        let pressed = press(&mut controls, &[], &['/', 'q', 's', 'x'].map(KeyCode::Char));
        assert_eq!((&*controls.filter, pressed), ("qsx", KeyAction::Redraw));
        press(&mut controls, &[], &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((&*controls.filter, controls.is_typing), ("qs", false));
        press(&mut controls, &[], &[KeyCode::Esc]);
        assert_eq!(controls.filter, "");
        press(&mut controls, &[], &[KeyCode::Char('/'), KeyCode::Char('a'), KeyCode::Esc]);
        assert_eq!((&*controls.filter, controls.is_typing), ("", false));
        press(&mut controls, &[], &[KeyCode::Char('/'); 200]);
        assert_eq!(controls.filter.len(), LONGEST_FILTER);
    }

    #[test]
    fn it_ends_on_request() {
        let mut controls = Controls::default();
        assert_eq!(press(&mut controls, &[], &[KeyCode::Char(' ')]), KeyAction::Refresh);
        assert_eq!(press(&mut controls, &[], &[KeyCode::Char('q')]), KeyAction::Quit);
        controls.is_typing = true;
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(controls.press(interrupt, &[]), KeyAction::Quit);
    }
}
