//! Settings and root jobs as values that clients write, and their possible values after a crash.

use std::collections::BTreeMap;

/// The values by name: `limit set/1`, `root set/1 sig`.
#[derive(Default)]
pub struct Registers(BTreeMap<String, Register>);

#[derive(Default)]
struct Register {
    /// Value before all writes.
    initial: Option<String>,
    writes: Vec<Write>,
}

struct Write {
    value: String,
    /// Number of the connection, which serves one request after the other.
    client: usize,
    begun: usize,
    /// Time of the reply, as a position in the history; None without one.
    told: Option<usize>,
}

impl Registers {
    /// Returns registers with these values.
    pub fn of(values: &BTreeMap<String, String>) -> Registers {
        let register = |value: &String| Register { initial: Some(value.clone()), writes: Vec::new() };
        Registers(values.iter().map(|(name, value)| (name.clone(), register(value))).collect())
    }

    /// Notes a write of a client. `begun` and `told` are positions in the history.
    pub fn write(&mut self, name: &str, value: String, client: usize, begun: usize, told: Option<usize>) {
        self.0.entry(name.into()).or_default().writes.push(Write { value, client, begun, told });
    }

    /// Compares all known values with those found.
    pub fn check(&self, found: &BTreeMap<String, String>) -> Result<(), String> {
        for (name, register) in &self.0 {
            let value = found.get(name).ok_or_else(|| format!("{name}: nothing was found"))?;
            let is_newest = name.starts_with("root ");
            let may_be = if is_newest { register.may_be_newest(value) } else { register.may_be(value) };
            if !may_be {
                return Err(format!("{name} is {value}, which it cannot be"));
            }
        }
        Ok(())
    }
}

impl Register {
    /// Returns whether a value may be the last write: no promised write certainly came after it.
    fn may_be(&self, value: &str) -> bool {
        let promised = || self.writes.iter().filter(|write| write.told.is_some());
        let is_last = |write: &Write| !promised().any(|other| write.is_before(other));
        let is_initial = self.initial.as_deref().is_none_or(|initial| initial == value) && promised().next().is_none();
        is_initial || self.writes.iter().any(|write| write.value == value && is_last(write))
    }

    /// Returns whether a value may be the greatest number: it was written, and is no less than any promised number.
    fn may_be_newest(&self, value: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let initial = self.initial.as_deref().map_or(0, number);
        let promised = self.writes.iter().filter(|write| write.told.is_some());
        let least = promised.map(|write| number(&write.value)).fold(initial, u64::max);
        let found = number(value);
        found == least || found > least && self.writes.iter().any(|write| number(&write.value) == found)
    }
}

impl Write {
    /// Returns whether the other was certainly served later.
    fn is_before(&self, other: &Write) -> bool {
        let is_same_client = self.client == other.client && self.begun < other.begun;
        is_same_client || self.told.is_some_and(|told| told < other.begun)
    }
}
