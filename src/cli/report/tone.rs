//! Emphasis of values.

/// What values are for whoever looks, where they are not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// A possible trouble.
    Caution,
    /// A trouble.
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
