//! Rounds to medians, and medians to a table in Markdown. It knows nothing of what is measured.

use super::server::Program;
use std::io;

/// What one round of one server comes to: a number for each of the case's figures.
pub type Values = Vec<f64>;

/// A number that a case measures.
pub struct Figure {
    /// What it is, and its unit.
    pub name: &'static str,
    /// What it should be.
    pub wanted: Wanted,
    /// Whose figure ours is divided by, if it is compared.
    pub against: Option<Program>,
}

/// What our daemon's figure should be.
#[derive(Clone, Copy, PartialEq)]
pub enum Wanted {
    /// It is for information.
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

/// Something to measure.
pub struct Case<'a> {
    /// With its sizes.
    pub name: String,
    /// Which servers take part, ours first.
    pub programs: Vec<Program>,
    /// How often each server has its turn.
    pub rounds: usize,
    /// What [`Case::measure`] tells, in order.
    pub figures: Vec<Figure>,
    /// Measures one round of one server.
    pub measure: Box<dyn Fn(Program) -> io::Result<Values> + 'a>,
}

/// What the rounds of a case came to.
pub struct Outcome<'a> {
    case: &'a Case<'a>,
    /// By program and round; a round that failed has no values.
    rounds: Vec<(Program, Vec<Option<Values>>)>,
}

impl Case<'_> {
    /// Runs the rounds, each server in turn, so that what disturbs the machine disturbs all of them.
    pub fn run(&self) -> Outcome<'_> {
        let mut rounds: Vec<(Program, Vec<Option<Values>>)> =
            self.programs.iter().map(|program| (*program, Vec::new())).collect();
        for round in 0..self.rounds {
            for turn in 0..rounds.len() {
                // Nobody is always the first.
                let index = (turn + round) % rounds.len();
                let (program, results) = &mut rounds[index];
                let result = (self.measure)(*program);
                if let Err(error) = &result {
                    eprintln!("{}: {} fails: {error}", self.name, program.name());
                }
                results.push(result.ok());
            }
        }
        Outcome { case: self, rounds }
    }
}

impl Outcome<'_> {
    /// Whether a server of ours failed in some round. Others may: yrmcds does not always come up where it has to share a core.
    pub fn has_failed(&self) -> bool {
        let ours = self.rounds.iter().filter(|(program, _)| matches!(program, Program::Ours | Program::Limit));
        ours.flat_map(|(_, results)| results).any(Option::is_none)
    }

    /// One line of the table for each figure.
    pub fn print(&self) {
        for (index, figure) in self.case.figures.iter().enumerate() {
            let mut cells = vec![self.case.name.clone(), figure.name.into()];
            cells.extend(Program::ALL.map(|program| display(self.median(program, index))));
            let ratio = figure.against.and_then(|other| self.ratio(other, index));
            cells.push(ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
            let (wanted, verdict) = figure.wanted.judge(self.median(Program::Ours, index), ratio);
            cells.extend([wanted, verdict]);
            print_row(&cells);
        }
    }

    fn median(&self, program: Program, index: usize) -> Option<f64> {
        let mut values: Vec<f64> = self.values(program, index).flatten().collect();
        (!values.is_empty()).then(|| median(&mut values))
    }

    /// The median of the rounds' ratios: what changes from round to round falls out of them.
    fn ratio(&self, other: Program, index: usize) -> Option<f64> {
        let pairs = self.values(Program::Ours, index).zip(self.values(other, index));
        let mut ratios: Vec<f64> = pairs.filter_map(|(ours, other)| Some(ours? / other?)).collect();
        (!ratios.is_empty()).then(|| median(&mut ratios))
    }

    fn values(&self, program: Program, index: usize) -> impl Iterator<Item = Option<f64>> {
        let rounds = self.rounds.iter().filter(move |(other, _)| *other == program).flat_map(|(_, results)| results);
        // What a server does not tell is no number.
        rounds.map(move |values| values.as_ref().map(|values| values[index]).filter(|value| !value.is_nan()))
    }
}

impl Wanted {
    fn judge(self, ours: Option<f64>, ratio: Option<f64>) -> (String, String) {
        let (text, is_met) = match self {
            Wanted::Nothing => return (String::new(), String::new()),
            Wanted::AtMost(most) => (format!("<= {most}"), ours.map(|ours| ours <= most)),
            Wanted::AtLeast(least) => (format!(">= {least}"), ours.map(|ours| ours >= least)),
            Wanted::RatioAtLeast(least) => (format!("ratio >= {least:.2}"), ratio.map(|ratio| ratio >= least)),
            Wanted::RatioAtMost(most) => (format!("ratio <= {most:.2}"), ratio.map(|ratio| ratio <= most)),
        };
        let verdict = match is_met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        (text, verdict.into())
    }
}

/// The head of the table.
pub fn print_head() {
    let mut cells = vec!["case".into(), "figure".into()];
    cells.extend(Program::ALL.map(|program| program.name().to_string()));
    cells.extend(["ratio", "wanted", "met"].map(String::from));
    print_row(&cells);
    println!("|{}|", WIDTHS.map(|(width, _)| "-".repeat(width + 2)).join("|"));
}

/// The value in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Returns the 99th percentile of sorted values.
pub fn p99(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() - 1) * 99 / 100]
}

/// The columns' widths, and whether they are aligned to the left.
const WIDTHS: [(usize, bool); 16] = [
    (32, true),
    (26, true),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (8, false),
    (6, false),
    (13, true),
    (3, true),
];

fn print_row(cells: &[String]) {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, (width, is_left))| match is_left {
        true => format!(" {cell:<width$} "),
        false => format!(" {cell:>width$} "),
    });
    println!("|{}|", cells.collect::<Vec<_>>().join("|"));
}

/// Three digits, or all of a larger number.
fn display(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    let decimals = match value.abs() {
        0.0 => 0,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}
