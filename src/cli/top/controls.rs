//! The state of the screen's controls, and what keys change in it.

use super::view::{PANELS, SortOrder, USUAL_ORDERS};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What the user has chosen to see.
pub struct Controls {
    /// Only rows with this text are shown.
    pub filter: String,
    /// Keys are typed into the filter.
    pub is_typing: bool,
    /// The table that the keys are for.
    pub focus: usize,
    /// The order of each table.
    pub orders: [SortOrder; PANELS],
    /// How many rows of each table are above the first that is seen.
    pub skipped: [usize; PANELS],
    /// No samples are taken.
    pub is_paused: bool,
}

/// What to do after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyAction {
    /// Draw the screen again.
    Redraw,
    /// Ask the servers now.
    Refresh,
    /// End.
    Quit,
}

/// The longest filter.
const LONGEST_FILTER: usize = 100;
/// How many rows a page has.
const PAGE: usize = 10;

impl Default for Controls {
    fn default() -> Self {
        Controls {
            filter: String::new(),
            is_typing: false,
            focus: 0,
            orders: USUAL_ORDERS,
            skipped: [0; PANELS],
            is_paused: false,
        }
    }
}

impl Controls {
    /// Handles a key. The table in focus has so many columns and rows.
    pub fn press(&mut self, key: KeyEvent, columns: usize, rows: usize) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { KeyAction::Quit } else { KeyAction::Redraw };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return KeyAction::Redraw;
        }
        let order = &mut self.orders[self.focus];
        let skipped = &mut self.skipped[self.focus];
        match key.code {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Char(' ') => return KeyAction::Refresh,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab => self.focus = (self.focus + 1) % PANELS,
            KeyCode::BackTab => self.focus = (self.focus + PANELS - 1) % PANELS,
            KeyCode::Char('s') | KeyCode::Right => *order = order.by((order.column + 1) % columns),
            KeyCode::Char('S') | KeyCode::Left => *order = order.by((order.column + columns - 1) % columns),
            KeyCode::Char('r') => order.is_reversed = !order.is_reversed,
            KeyCode::Down => *skipped += 1,
            KeyCode::Up => *skipped = skipped.saturating_sub(1),
            KeyCode::PageDown => *skipped += PAGE,
            KeyCode::PageUp => *skipped = skipped.saturating_sub(PAGE),
            KeyCode::Home => *skipped = 0,
            _ => {}
        }
        let skipped = &mut self.skipped[self.focus];
        *skipped = (*skipped).min(rows.saturating_sub(1));
        KeyAction::Redraw
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
        self.skipped = [0; PANELS];
    }
}

impl SortOrder {
    fn by(self, column: usize) -> SortOrder {
        SortOrder { column, is_reversed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(controls: &mut Controls, codes: &[KeyCode]) -> KeyAction {
        let mut pressed = KeyAction::Redraw;
        for code in codes {
            pressed = controls.press(KeyEvent::from(*code), 4, 12);
        }
        pressed
    }

    #[test]
    fn keys_sort_and_scroll_the_table_in_focus() {
        let mut controls = Controls::default();
        press(&mut controls, &[KeyCode::Tab, KeyCode::Char('s'), KeyCode::Char('r'), KeyCode::Down, KeyCode::PageDown]);
        assert_eq!((controls.focus, controls.skipped), (1, [0, 11, 0]));
        assert_eq!(controls.orders[1], SortOrder { column: 3, is_reversed: true });
        press(&mut controls, &[KeyCode::Right, KeyCode::PageDown, KeyCode::Up]);
        assert_eq!(controls.orders[1], SortOrder { column: 0, is_reversed: false });
        assert_eq!(controls.skipped, [0, 10, 0], "the last row stays in sight");
        press(&mut controls, &[KeyCode::Left, KeyCode::Home, KeyCode::BackTab, KeyCode::BackTab]);
        assert_eq!((controls.orders[1].column, controls.focus, controls.skipped), (3, 2, [0; 3]));
        assert_eq!(controls.orders[0], USUAL_ORDERS[0]);
    }

    #[test]
    fn what_is_typed_is_the_filter() {
        let mut controls = Controls::default();
        let pressed = press(&mut controls, &['/', 'q', 's', 'x'].map(KeyCode::Char));
        assert_eq!((&*controls.filter, pressed), ("qsx", KeyAction::Redraw));
        press(&mut controls, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((&*controls.filter, controls.is_typing), ("qs", false));
        press(&mut controls, &[KeyCode::Esc]);
        assert_eq!(controls.filter, "");
        press(&mut controls, &[KeyCode::Char('/'), KeyCode::Char('a'), KeyCode::Esc]);
        assert_eq!((&*controls.filter, controls.is_typing), ("", false));
        press(&mut controls, &[KeyCode::Char('/'); 200]);
        assert_eq!(controls.filter.len(), LONGEST_FILTER);
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let mut controls = Controls::default();
        assert_eq!(press(&mut controls, &[KeyCode::Char(' ')]), KeyAction::Refresh);
        assert_eq!(press(&mut controls, &[KeyCode::Char('q')]), KeyAction::Quit);
        controls.is_typing = true;
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(controls.press(interrupt, 4, 0), KeyAction::Quit);
    }
}
