//! Jobs with a store of the test, as an entry of the registry.

use poolcounter_jobs::store::{Jobs, Store};
use poolcounter_jobs::{self as jobs, JobQueue, JobsSettings};
use poolcounter_service::contract::{Info, Service};
use poolcounter_service::options::Opt;
use poolcounter_service::settings::{self, Configure};
use std::cell::RefCell;

/// Function that makes a store, or a handle of it.
type Make = Box<dyn Fn() -> Box<dyn Store<Jobs>>>;

thread_local! {
    /// Makes the stores of the services that are made on this thread: an entry of the registry has no room for a function.
    static MAKE: RefCell<Option<Make>> = const { RefCell::new(None) };
}

/// Entry of the registry: the jobs, with the store that the test has installed.
pub static INFO: Info = Info { settings: settings::defaults::<StoredSettings>, ..jobs::INFO };

/// Settings of these jobs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StoredSettings(pub JobsSettings);

impl Configure for StoredSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        let store = MAKE.with_borrow(|make| make.as_ref().map(|make| make()));
        Box::new(JobQueue::with_store(&self.0, store.expect("the test has said which")))
    }
}

/// Sets what makes the stores of services that are made on this thread from now on.
pub fn install(make: impl Fn() -> Box<dyn Store<Jobs>> + 'static) {
    MAKE.set(Some(Box::new(make)));
}
