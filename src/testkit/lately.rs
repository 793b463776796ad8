//! Recent actions of a test.

use std::collections::VecDeque;
use std::fmt::Display;

/// Number of actions that a failure shows.
const SHOWN: usize = 60;

/// The last actions, which are printed when a test fails, wherever it fails.
pub struct Lately<A: Display> {
    done: VecDeque<A>,
    /// Number of all actions.
    count: usize,
}

impl<A: Display> Default for Lately<A> {
    fn default() -> Self {
        Lately { done: VecDeque::new(), count: 0 }
    }
}

impl<A: Display> Lately<A> {
    /// Notes an action that comes now.
    pub fn note(&mut self, action: A) {
        if std::env::var_os("SIM_TRACE").is_some() {
            println!("{action}");
        }
        self.count += 1;
        self.done.push_back(action);
        if self.done.len() > SHOWN {
            self.done.pop_front();
        }
    }
}

impl<A: Display> Drop for Lately<A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last of {} actions:", self.count);
            self.done.iter().for_each(|action| eprintln!("{action}"));
        }
    }
}
