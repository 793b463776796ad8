//! Renewals of the lease during a long request, on a connection of their own.

use super::messages::{Answer, Reach};
use super::owner::BEAT;
use super::place::Place;
use super::session::{ANSWER_TIME, SqlSession, Trouble, connect, within};
use poolcounter_core::Time;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The lease, during one request.
pub struct Renewals<'a> {
    /// Number of the take-over, if this process may own the queue.
    pub epoch: Option<u64>,
    /// Returns the time.
    pub clock: &'a dyn Fn() -> Time,
    /// Called with the time at which each renewal was requested.
    pub renewed: &'a mut dyn FnMut(Time),
}

impl Renewals<'_> {
    /// Waits for `work`, and renews the lease each second meanwhile.
    pub async fn beside<T>(
        &mut self,
        work: impl Future<Output = Result<T, Trouble>>,
        second: &mut Option<SqlSession>,
        place: &Place,
    ) -> Result<T, Trouble> {
        let Some(epoch) = self.epoch else { return work.await };
        let mut work = pin!(work);
        let mut renewals = pin!(async {
            loop {
                tokio::time::sleep(BEAT.into()).await;
                self.renew(epoch, second, place).await;
            }
        });
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Pending => renewals.as_mut().poll(context),
            done => done,
        })
        .await
    }

    /// Renews once. After a failure, the next attempt uses another connection.
    async fn renew(&mut self, epoch: u64, second: &mut Option<SqlSession>, place: &Place) {
        if second.as_ref().is_none_or(SqlSession::is_closed) {
            *second = within(ANSWER_TIME, connect(place)).await.ok();
        }
        let Some(session) = second else { return };
        session.forget_warning();
        let asked = (self.clock)();
        match within(ANSWER_TIME, session.renew(epoch)).await {
            Ok(Answer::Renewed(Some(_), Reach::Kept)) => (self.renewed)(asked),
            // Another daemon may own the queue: the request under way finds out.
            Ok(_) => {}
            Err(_) => {
                if let Some(session) = second.take() {
                    session.end().await;
                }
            }
        }
    }
}
