//! Settings of a service: rows that an operator can set, and the service that is made of them.

use super::Service;
use crate::options::{Misplaced, Opt, Table, TableDoc, TableOpt};
use std::any::Any;
use std::fmt::Debug;

/// Settings of one service.
pub trait Configure: Clone + PartialEq + Debug + Default + Send + 'static {
    /// Options that set them, without the options of the addresses.
    const OPTIONS: &'static [Opt<Self>];

    /// Tables of the configuration file that set them.
    const TABLES: &'static [TableOpt<Self>] = &[];

    /// Checks the settings for contradictions.
    ///
    /// # Errors
    ///
    /// One sentence that names the contradiction.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns a sentence for each reason for which settings in tables have no effect.
    fn idle_tables(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the service with these settings, without connections.
    fn open(&self) -> Box<dyn Service>;

    /// Keeps nothing in files, for a service within another program.
    fn keep_in_memory(&mut self) {}
}

/// Settings of any service: a [`Configure`] of unknown type.
pub trait ServiceSettings: Any + Debug + Send {
    /// Returns the descriptions of the options.
    fn rows(&self) -> Vec<Opt<()>>;

    /// Sets the value of the option at this index.
    ///
    /// # Errors
    ///
    /// Description of valid values.
    fn set(&mut self, row: usize, value: &str) -> Result<(), String>;

    /// Returns the tables of the configuration file for this service.
    fn tables(&self) -> Vec<TableDoc>;

    /// Applies the values of a table, described by the entry at this index.
    ///
    /// # Errors
    ///
    /// The fault, and its place.
    fn add(&mut self, row: usize, table: &Table) -> Result<(), Misplaced>;

    /// Checks the settings for contradictions.
    ///
    /// # Errors
    ///
    /// One sentence that names the contradiction.
    fn check(&self) -> Result<(), String>;

    /// Returns a sentence for each reason for which settings have no effect. `is_set` tells which keys of options were
    /// set.
    fn idle(&self, is_set: &dyn Fn(&str) -> bool) -> Vec<String>;

    /// Returns the service with these settings, without connections.
    fn open(&self) -> Box<dyn Service>;

    /// Keeps nothing in files.
    fn keep_in_memory(&mut self);

    /// Returns a copy.
    fn boxed(&self) -> Box<dyn ServiceSettings>;

    /// Returns true if the other settings are for the same service and equal.
    fn is_like(&self, other: &dyn ServiceSettings) -> bool;
}

impl<S: Configure> ServiceSettings for S {
    fn rows(&self) -> Vec<Opt<()>> {
        S::OPTIONS.iter().map(Opt::describe).collect()
    }

    fn set(&mut self, row: usize, value: &str) -> Result<(), String> {
        (S::OPTIONS[row].set)(self, value)
    }

    fn tables(&self) -> Vec<TableDoc> {
        S::TABLES.iter().map(|table| table.about).collect()
    }

    fn add(&mut self, row: usize, table: &Table) -> Result<(), Misplaced> {
        (S::TABLES[row].add)(self, table)
    }

    fn check(&self) -> Result<(), String> {
        Configure::check(self)
    }

    fn idle(&self, is_set: &dyn Fn(&str) -> bool) -> Vec<String> {
        idle_options(S::OPTIONS, self, is_set).chain(self.idle_tables()).collect()
    }

    fn open(&self) -> Box<dyn Service> {
        Configure::open(self)
    }

    fn keep_in_memory(&mut self) {
        Configure::keep_in_memory(self);
    }

    fn boxed(&self) -> Box<dyn ServiceSettings> {
        Box::new(self.clone())
    }

    fn is_like(&self, other: &dyn ServiceSettings) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }
}

/// Returns a sentence for each option that was set and has no effect.
pub fn idle_options<S>(
    options: &'static [Opt<S>],
    settings: &S,
    is_set: impl Fn(&str) -> bool,
) -> impl Iterator<Item = String> {
    let set = options.iter().filter(move |option| is_set(option.key));
    set.filter_map(move |option| Some(format!("{} is set, but {}", option.key, (option.idle)(settings)?)))
}

/// Returns the defaults of a service, for its entry in the list.
pub fn defaults<S: Configure>() -> Box<dyn ServiceSettings> {
    Box::new(S::default())
}

impl Clone for Box<dyn ServiceSettings> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl PartialEq for Box<dyn ServiceSettings> {
    fn eq(&self, other: &Self) -> bool {
        self.is_like(&**other)
    }
}
