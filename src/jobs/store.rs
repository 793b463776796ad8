//! Jobs as a store keeps them.

pub mod batch;
pub mod columns;
pub mod page;

pub use poolcounter_store::contract::{
    Commit, Contents, Copying, HandedOver, Mark, Memory, Ownership, PAGES_AHEAD, PageOrder, Store, Verdict,
};
pub use poolcounter_store::health::{Health, OwnerHealth};

use super::state::inbox::InboxRow;
use super::state::{Saved, Stored};
use batch::Batch;
use page::Page;
use poolcounter_core::Span;
use poolcounter_store::contract::VisitOf;

/// Jobs, root jobs and settings. Pages have the settings first, then root jobs, and the jobs last, in the order of their
/// numbers.
pub struct Jobs;

/// Function that takes one record of a store; the error says what is wrong with it.
pub type Visit<'a> = VisitOf<'a, Jobs>;

impl Contents for Jobs {
    const NAME: &'static str = "jobs";

    type Change<'a> = Stored<'a>;
    type Batch = Batch;
    type Page = Page;
    type Record<'a> = Saved<'a>;
    type Request = InboxRow;

    fn add(batch: &mut Batch, change: Stored<'_>, epoch: Span) {
        batch.add(change, epoch);
    }

    fn number(batch: &mut Batch) -> &mut Commit {
        &mut batch.commit
    }

    fn drop_puts(batch: &mut Batch) {
        batch.drop_puts();
    }

    fn order(page: &Page) -> PageOrder {
        let share = (page.share * 100.0) as u8;
        PageOrder { share, is_first: page.committed.is_some(), is_last: page.is_last }
    }

    fn visit(page: &mut Page, epoch: Span, visit: Visit<'_>) -> Result<bool, String> {
        page.visit(epoch, visit)
    }
}
