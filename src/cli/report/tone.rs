//! Emphasis of values.

/// Meaning of values that are not zero, for the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    /// No emphasis.
    #[default]
    Plain,
    /// Possible fault.
    Caution,
    /// Fault.
    Alarm,
}

impl Tone {
    pub(super) fn of(emphasis: &str) -> Tone {
        match emphasis {
            "caution" => Tone::Caution,
            "alarm" => Tone::Alarm,
            _ => Tone::Plain,
        }
    }
}
