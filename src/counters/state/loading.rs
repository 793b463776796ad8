//! Counters of another process that are read in slices, after an upgrade. Until the last is read no client of the counters
//! is served, and no timer of theirs is armed.

use super::saved::CountersHead;
use super::saved::block::{CounterReader, HoldingReader, PackedCounter};
use super::{Counter, CounterId, CountersState, CountersStep};
use poolcounter_core::{ConnId, Reader, Unreadable};

/// Counters and holdings that are not read yet.
pub(super) struct Loading {
    counters: CounterReader,
    holdings: HoldingReader,
    /// Free slots among the slots that are read. A value takes the place of each.
    gaps: Vec<usize>,
    /// Connection whose holdings are read now.
    client: Option<LoadingClient>,
}

struct LoadingClient {
    conn: ConnId,
    /// Number of its holdings.
    len: usize,
    /// Holdings that are read.
    read: Vec<(CounterId, u32)>,
}

impl CountersState {
    /// Takes the state that another process saved. It is complete after [`CountersState::restore_more`].
    ///
    /// # Errors
    ///
    /// Fails if a record is cut off.
    pub fn restore(&mut self, saved: &mut Reader<'_>, step: &mut CountersStep<'_>) -> Result<(), Unreadable> {
        let head: CountersHead = saved.take()?;
        self.figures.restore(&head.figures);
        self.conflicts.set(head.conflicts);
        self.restore_interval(head.interval, step);
        self.make_room_for(head.counters, head.slots);
        let counters = CounterReader::new(saved.keep_blocks()?, head.slots);
        let holdings = HoldingReader::new(saved.keep_blocks()?, head.slots);
        self.loading = Some(Loading { counters, holdings, gaps: Vec::new(), client: None }.into());
        Ok(())
    }

    /// Reads a slice of the counters of another process. Returns true when there are no more.
    ///
    /// # Errors
    ///
    /// Fails if a record contradicts another. The rest is lost then.
    pub fn restore_more(&mut self, step: &mut CountersStep<'_>) -> Result<bool, Unreadable> {
        let Some(mut loading) = self.loading.take() else { return Ok(true) };
        let is_over = self.load_slice(&mut loading, step)?;
        match is_over {
            true => self.finish_restore(step),
            false => self.loading = Some(loading),
        }
        Ok(is_over)
    }

    /// Reads as much as the budget of the tick allows. Returns true after the last holding.
    fn load_slice(&mut self, loading: &mut Loading, step: &mut CountersStep<'_>) -> Result<bool, Unreadable> {
        while let Some(PackedCounter { slot, name, peak, is_used }) = loading.counters.next()? {
            while self.counters.vacant_key() < slot {
                loading.gaps.push(self.counters.insert(Counter::restored(b"", None, false, self.interval)));
            }
            self.restore_counter(slot, Counter::restored(name, peak, is_used, self.interval));
            if !step.timers.spend(1) {
                return Ok(false);
            }
        }
        // The slots freed last are used first, as if they had been freed in order.
        loading.gaps.drain(..).rev().for_each(|slot| drop(self.counters.remove(slot)));
        loop {
            let client = match &mut loading.client {
                Some(client) => client,
                none => match loading.holdings.next_client()? {
                    Some((conn, len)) => none.insert(LoadingClient { conn, len, read: Vec::with_capacity(len) }),
                    None => return Ok(true),
                },
            };
            while client.read.len() < client.len {
                let (id, resources) = loading.holdings.next()?;
                self.add_consumption(id, resources)?;
                client.read.push((id, resources));
                if !step.timers.spend(1) {
                    return Ok(false);
                }
            }
            let LoadingClient { conn, read, .. } = loading.client.take().expect("it was read just now");
            self.holdings += read.len() as u64;
            *self.clients.get_mut(conn) = read.into();
        }
    }
}
