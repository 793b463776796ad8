//! Settings and root jobs as values that clients write: what each may be after a crash.

use std::collections::BTreeMap;

/// The values by name: `limit set/1`, `root set/1 sig`.
#[derive(Default)]
pub struct Registers(BTreeMap<String, Register>);

#[derive(Default)]
struct Register {
    /// What it was before all writes.
    initial: Option<String>,
    writes: Vec<Write>,
}

struct Write {
    value: String,
    /// On which connection, where one request is served after the other.
    client: usize,
    begun: usize,
    /// When the promise was heard; None if it was not.
    told: Option<usize>,
}

impl Registers {
    /// Begins anew, with these values.
    pub fn of(values: &BTreeMap<String, String>) -> Registers {
        let register = |value: &String| Register { initial: Some(value.clone()), writes: Vec::new() };
        Registers(values.iter().map(|(name, value)| (name.clone(), register(value))).collect())
    }

    /// A client writes a value. `begun` and `told` are positions in the history.
    pub fn write(&mut self, name: &str, value: String, client: usize, begun: usize, told: Option<usize>) {
        self.0.entry(name.into()).or_default().writes.push(Write { value, client, begun, told });
    }

    /// Compares all that is known with what was found.
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
    /// Whether this may be the last write: none that was promised certainly came after it.
    fn may_be(&self, value: &str) -> bool {
        let promised = || self.writes.iter().filter(|write| write.told.is_some());
        let is_last = |write: &Write| !promised().any(|other| write.is_before(other));
        let is_initial = self.initial.as_deref().is_none_or(|initial| initial == value) && promised().next().is_none();
        is_initial || self.writes.iter().any(|write| write.value == value && is_last(write))
    }

    /// Whether this may be the greatest number: no less than what was promised, and a number that somebody wrote.
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
    /// Whether the other was certainly served later.
    fn is_before(&self, other: &Write) -> bool {
        let is_same_client = self.client == other.client && self.begun < other.begun;
        is_same_client || self.told.is_some_and(|told| told < other.begun)
    }
}
