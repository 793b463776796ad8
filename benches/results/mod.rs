//! Results of a run of benchmarks, and their file in JSON.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Folder of the files.
const FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../bench");

/// Mark of a figure that differs much from round to round.
const WIDE: &str = " ~";

/// Results of a run.
#[derive(Serialize, Deserialize)]
pub struct Run {
    pub conditions: Conditions,
    pub cases: Vec<CaseResult>,
    #[serde(skip)]
    begin: Option<Begin>,
}

/// Conditions of a run.
#[derive(Serialize, Deserialize)]
pub struct Conditions {
    /// Day and time of its begin.
    pub day: String,
    pub machine: String,
    pub kernel: String,
    pub commit: String,
    /// Amount of measuring, in words.
    pub amount: String,
    /// Load average at the begin: the mean number of threads that want to run.
    pub load_average: String,
    /// Duration of the run.
    pub minutes: f64,
    /// Share of the processors' time that the host of a virtual machine gave to other machines.
    pub stolen_percent: f64,
}

/// Result of one case.
#[derive(Serialize, Deserialize)]
pub struct CaseResult {
    /// Table of benches/README.md to which it belongs.
    pub table: String,
    pub name: String,
    pub figures: Vec<FigureResult>,
}

/// Values of one figure of a case.
#[derive(Serialize, Deserialize)]
pub struct FigureResult {
    /// Name of the figure, with its unit.
    pub name: String,
    /// Goal in words, which may be empty, and whether it is met.
    pub wanted: String,
    pub is_met: Option<bool>,
    /// Column by which the first one is divided, if any.
    pub against: Option<String>,
    /// Columns of the table, and the value of each round. A round that failed, or reported no value, has none.
    pub columns: Vec<(String, Vec<Option<f64>>)>,
}

/// Begin of a run: its time, and the processor times of the machine until then.
struct Begin {
    time: Instant,
    ticks: Ticks,
}

/// Processor times of the machine in the kernel's ticks.
struct Ticks {
    all: f64,
    stolen: f64,
}

impl Run {
    /// Begins a run, with the amount of measuring in words.
    pub fn begin(amount: String) -> Run {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let first_word = |path: &str| fs::read_to_string(path).unwrap_or_default().split(' ').next().map(String::from);
        Run {
            conditions: Conditions {
                day: output_of("date", &["-u", "+%F %H:%M UTC"]),
                machine: format!("{cores} x {}", model.trim_matches([' ', '\t', ':'])),
                kernel: output_of("uname", &["-sr"]),
                commit: output_of("git", &["describe", "--always", "--dirty", "--exclude=*"]),
                amount,
                load_average: first_word("/proc/loadavg").unwrap_or_default(),
                minutes: 0.0,
                stolen_percent: 0.0,
            },
            cases: Vec::new(),
            begin: Some(Begin { time: Instant::now(), ticks: Ticks::now() }),
        }
    }

    /// Writes the results so far to the file of the run, and returns its path.
    pub fn save(&mut self, program: &str) -> io::Result<PathBuf> {
        if let Some(Begin { time, ticks }) = &self.begin {
            let now = Ticks::now();
            self.conditions.minutes = time.elapsed().as_secs_f64() / 60.0;
            self.conditions.stolen_percent = (now.stolen - ticks.stolen) / (now.all - ticks.all).max(1.0) * 100.0;
        }
        fs::create_dir_all(FOLDER)?;
        let Conditions { day, commit, .. } = &self.conditions;
        let name = format!("{program}-{day}-{commit}.json").replace([' ', ':'], "-");
        let path = Path::new(FOLDER).canonicalize()?.join(name);
        let unfinished = path.with_extension("part");
        fs::write(&unfinished, serde_json::to_vec(self)?)?;
        fs::rename(&unfinished, &path)?;
        Ok(path)
    }
}

impl Conditions {
    /// Returns the conditions in words.
    pub fn describe(&self) -> String {
        let Conditions { day, machine, kernel, commit, amount, load_average, minutes, stolen_percent } = self;
        let end = match minutes {
            0.0 => String::new(),
            _ => format!(" The run took {minutes:.0} minutes, and the host took {stolen_percent:.1} % of the time."),
        };
        format!("{day}, revision {commit}: {machine}, {kernel}, load {load_average}. {amount}.{end}")
    }
}

impl CaseResult {
    /// Prints the medians of a case, a line for each figure.
    pub fn print(&self) {
        for figure in &self.figures {
            let column = |(name, _): &(String, _)| {
                let mut values = figure.values(name);
                let median = median(&mut values)?;
                Some(format!("{name} {}{}", display(median), mark(&mut values)))
            };
            let columns = figure.columns.iter().filter_map(column);
            let mut ratios = figure.ratios();
            let ratio = median(&mut ratios).map(|ratio| format!("ratio {ratio:.2}{}", mark(&mut ratios)));
            let verdict = match (figure.wanted.as_str(), figure.is_met) {
                ("", _) | (_, None) => None,
                (wanted, Some(true)) => Some(format!("{wanted}: yes")),
                (wanted, Some(false)) => Some(format!("{wanted}: NO")),
            };
            let cells: Vec<String> = columns.chain(ratio).chain(verdict).collect();
            println!("{:<32} {:<26} {}", self.name, figure.name, cells.join(", "));
        }
    }
}

impl FigureResult {
    /// Returns the ratio of the first column to [`FigureResult::against`] in each round: differences between rounds
    /// cancel out in it.
    pub fn ratios(&self) -> Vec<f64> {
        let Some(((first, _), against)) = self.columns.first().zip(self.against.as_deref()) else { return Vec::new() };
        let pairs = self.rounds(first).zip(self.rounds(against));
        pairs.filter_map(|(ours, other)| Some(ours? / other?)).collect()
    }

    /// Returns the values of a column, from the rounds that have one.
    pub fn values(&self, column: &str) -> Vec<f64> {
        self.rounds(column).flatten().collect()
    }

    fn rounds(&self, column: &str) -> impl Iterator<Item = Option<f64>> {
        let rounds = self.columns.iter().find(|(name, _)| name == column).map(|(_, rounds)| rounds.iter().copied());
        rounds.into_iter().flatten()
    }
}

impl Ticks {
    /// Place of the stolen time in the first line of /proc/stat.
    const STOLEN: usize = 7;

    fn now() -> Ticks {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // Times of guests, behind the stolen time, are part of other times.
        let all = ticks.iter().take(Self::STOLEN + 1).sum();
        Ticks { all, stolen: ticks.get(Self::STOLEN).copied().unwrap_or_default() }
    }
}

/// Returns the median, after sorting the values; None if there are none.
pub fn median(values: &mut [f64]) -> Option<f64> {
    quartiles(values).map(|[_, median, _]| median)
}

/// Returns the lower quartile, the median and the upper quartile, after sorting the values; None if there are none.
pub fn quartiles(values: &mut [f64]) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some([1, 2, 3].map(|quarter| {
        let (before, part) = (last * quarter / 4, (last * quarter % 4) as f64 / 4.0);
        values[before] + (values[(before + 1).min(last)] - values[before]) * part
    }))
}

/// Returns [`WIDE`] if the quartiles are further apart than a tenth of the median, and nothing otherwise.
pub fn mark(values: &mut [f64]) -> &'static str {
    let is_wide = |[lower, median, upper]: [f64; 3]| upper - lower > median.abs() / 10.0;
    if quartiles(values).is_some_and(is_wide) { WIDE } else { "" }
}

/// Returns a value with three digits, or all digits of a larger number.
pub fn display(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default()
}
