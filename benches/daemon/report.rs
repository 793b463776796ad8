//! Cases and their rounds, whatever is measured.

use super::results::{CaseResult, FigureResult, median};
use super::server::Program;
use std::io;

/// Result of one round of one server: a number for each of the case's figures.
pub type Values = Vec<f64>;

/// Number that a case measures.
pub struct Figure {
    /// Name of the figure, with its unit.
    pub name: &'static str,
    /// Goal for our daemon.
    pub wanted: Wanted,
    /// Program whose figure ours is divided by, if it is compared.
    pub against: Option<Program>,
}

/// Goal for the figure of our daemon.
#[derive(Clone, Copy, PartialEq)]
pub enum Wanted {
    /// No goal: the figure is for information.
    Nothing,
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At least this multiple of the other server's.
    RatioAtLeast(f64),
    /// At most this multiple of the other server's.
    RatioAtMost(f64),
}

/// Measurement with one or more figures.
pub struct Case<'a> {
    /// Name of the case, with its sizes.
    pub name: String,
    /// Programs that take part, ours first.
    pub programs: Vec<Program>,
    /// Number of rounds of each server.
    pub rounds: usize,
    /// Figures that [`Case::measure`] returns, in order.
    pub figures: Vec<Figure>,
    /// Measures one round of one server.
    pub measure: Box<dyn Fn(Program) -> io::Result<Values> + 'a>,
}

impl Case<'_> {
    /// Runs the rounds, each server in turn, so that any disturbance of the machine affects all of them. Returns the
    /// results, and whether a server of ours failed in some round. Other servers may: yrmcds does not always start
    /// where it has to share a core. Panics if a round has more or fewer values than the case has figures.
    pub fn run(&self, table: &str) -> (CaseResult, bool) {
        let mut rounds: Vec<(Program, Vec<Option<Values>>)> =
            self.programs.iter().map(|program| (*program, Vec::new())).collect();
        for round in 0..self.rounds {
            for turn in 0..rounds.len() {
                // The order of the servers rotates from round to round.
                let index = (turn + round) % rounds.len();
                let (program, results) = &mut rounds[index];
                let result = (self.measure)(*program);
                match &result {
                    Ok(values) => assert_eq!(values.len(), self.figures.len(), "values of {}", self.name),
                    Err(error) => eprintln!("{}: {} fails: {error}", self.name, program.name()),
                }
                results.push(result.ok());
            }
        }
        let mut own = rounds.iter().filter(|(program, _)| matches!(program, Program::Ours | Program::Limit));
        let has_failed = own.any(|(_, results)| results.iter().any(Option::is_none));
        let figures = self.figures.iter().enumerate().map(|(index, figure)| figure.result(index, &rounds)).collect();
        (CaseResult { table: table.into(), name: self.name.clone(), figures }, has_failed)
    }
}

impl Figure {
    /// Returns the values of all rounds at a place of [`Values`].
    fn result(&self, index: usize, rounds: &[(Program, Vec<Option<Values>>)]) -> FigureResult {
        // A value that a server does not report is NaN.
        let value =
            |values: &Option<Values>| values.as_ref().map(|values| values[index]).filter(|value| !value.is_nan());
        let column = |(program, results): &(Program, Vec<Option<Values>>)| {
            (program.name().to_string(), results.iter().map(value).collect())
        };
        let mut result = FigureResult {
            name: self.name.into(),
            wanted: String::new(),
            is_met: None,
            against: self.against.map(|other| other.name().into()),
            columns: rounds.iter().map(column).collect(),
        };
        (result.wanted, result.is_met) =
            self.wanted.judge(median(&mut result.values(Program::Ours.name())), median(&mut result.ratios()));
        result
    }
}

impl Wanted {
    fn judge(self, ours: Option<f64>, ratio: Option<f64>) -> (String, Option<bool>) {
        match self {
            Wanted::Nothing => (String::new(), None),
            Wanted::AtMost(most) => (format!("<= {most}"), ours.map(|ours| ours <= most)),
            Wanted::AtLeast(least) => (format!(">= {least}"), ours.map(|ours| ours >= least)),
            Wanted::RatioAtLeast(least) => (format!("ratio >= {least:.2}"), ratio.map(|ratio| ratio >= least)),
            Wanted::RatioAtMost(most) => (format!("ratio <= {most:.2}"), ratio.map(|ratio| ratio <= most)),
        }
    }
}

/// Returns the 99th percentile of sorted values.
pub fn p99(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() - 1) * 99 / 100]
}
