//! What a service is told by its operator, as the registry and the command line see it: rows to set, and a service to make.

use crate::contract::Service;
use crate::options::{Misplaced, Opt, Table, TableDoc, TableOpt};
use std::any::Any;
use std::fmt::Debug;

/// The settings of one service: its defaults, its own options, and what is made of them.
pub trait Configure: Clone + PartialEq + Debug + Default + Send + 'static {
    /// The options that set them, without those that say where the service listens.
    const OPTIONS: &'static [Opt<Self>];

    /// The tables of the configuration file that set them.
    const TABLES: &'static [TableOpt<Self>] = &[];

    /// Looks whether everything that was set can be together.
    ///
    /// # Errors
    ///
    /// One sentence that names what cannot.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the service with these settings, without connections.
    fn open(&self) -> Box<dyn Service>;

    /// Has the service keep nothing in files, as is wanted of one within another program.
    fn keep_in_memory(&mut self) {}
}

/// The settings of some service: a [`Configure`] whose type is not known.
pub trait ServiceSettings: Any + Debug + Send {
    /// Returns the rows that can be set.
    fn rows(&self) -> Vec<Opt<()>>;

    /// Sets what the row of this number is about.
    ///
    /// # Errors
    ///
    /// What the value should have been.
    fn set(&mut self, row: usize, value: &str) -> Result<(), String>;

    /// Returns the tables that a configuration file may have for it.
    fn tables(&self) -> Vec<TableDoc>;

    /// Sets what a table says that is described by the row of this number.
    ///
    /// # Errors
    ///
    /// What is wrong in it, and where.
    fn add(&mut self, row: usize, table: &Table) -> Result<(), Misplaced>;

    /// Looks whether everything that was set can be together.
    ///
    /// # Errors
    ///
    /// One sentence that names what cannot.
    fn check(&self) -> Result<(), String>;

    /// Returns the service with these settings, without connections.
    fn open(&self) -> Box<dyn Service>;

    /// Has the service keep nothing in files.
    fn keep_in_memory(&mut self);

    /// Returns the same settings once more.
    fn boxed(&self) -> Box<dyn ServiceSettings>;

    /// Returns whether the other settings are for the same service, and say the same.
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

/// Returns the defaults of a service, for its line in the registry.
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
