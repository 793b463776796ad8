//! Texts, seconds and recent curves, which all parts of the page have.

use poolcounter_core::time::Span;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Text of the program's own, or as another daemon has told it.
pub type Text = Cow<'static, str>;

/// Of what time the counts and times of a table are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownRecent {
    /// How long it is.
    pub seconds: f64,
    /// For the first rows, how much was done and how much was refused in each second, oldest first.
    pub curves: Vec<[Vec<f64>; 2]>,
}

/// Returns a span in seconds.
pub fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}
