//! The bell that ends the wait of the thread.

use futures_util::future::{Either, select};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Ends the wait of the thread: at an order of the loop, or when the database notifies of news in the inbox.
#[derive(Default)]
pub struct Bell {
    rung: Notify,
    has_news: AtomicBool,
    ended: Notify,
}

impl Bell {
    /// Ends the present wait, or else the next one.
    pub fn ring(&self) {
        self.rung.notify_one();
    }

    /// Tells the thread to end: the loop waits for it.
    pub fn end(&self) {
        self.ended.notify_one();
        self.ring();
    }

    /// Runs the work, and gives it up this long after the end of the thread was asked for.
    pub async fn until_end<T>(&self, most: Duration, work: impl Future<Output = T>) -> Option<T> {
        let end = async {
            self.ended.notified().await;
            tokio::time::sleep(most).await;
        };
        match select(pin!(work), pin!(end)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// Notes that the inbox has news, and ends the wait.
    pub fn tell_news(&self) {
        self.has_news.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Returns whether the inbox has had news since the last call.
    pub fn take_news(&self) -> bool {
        self.has_news.swap(false, Ordering::Relaxed)
    }

    /// Waits until it is rung, and at most for this time.
    pub async fn wait(&self, most: Duration) {
        // The end of the time is as good as a ring.
        _ = tokio::time::timeout(most, self.rung.notified()).await;
    }
}
