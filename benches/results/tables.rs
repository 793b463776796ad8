//! Tables in Markdown, from the files of runs: of benches/README.md, and of the comparison of two runs.

use super::results::{CaseResult, FigureResult, Run, display, mark, median, quartiles};
use std::fs;
use std::io;
use std::path::Path;

/// Numbers from here on have commas between groups of three digits.
const LARGE: f64 = 10_000.0;

/// Reads the file of a run.
pub fn read(path: &Path) -> io::Result<Run> {
    let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = fs::read(path).map_err(|error| wrong(&error))?;
    serde_json::from_slice(&text).map_err(|error| wrong(&error))
}

/// Replaces the tables of a document between lines `<!-- bench: NAME -->` and `<!-- end -->` by the tables of a run,
/// each under the conditions of the run. A table of which the run has no case stays.
pub fn write_tables(run: &Run, document: &Path) -> io::Result<()> {
    let text = fs::read_to_string(document)?;
    let mut written = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written += line;
        written.push('\n');
        let Some(name) = line.strip_prefix("<!-- bench: ").and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let old: Vec<&str> = lines.by_ref().take_while(|line| *line != "<!-- end -->").collect();
        let cases: Vec<&CaseResult> = run.cases.iter().filter(|case| case.table == name).collect();
        if cases.is_empty() {
            old.iter().for_each(|line| written += &format!("{line}\n"));
        } else {
            written += &format!("{}\n\n{}", run.conditions.describe(), table_of(&cases));
        }
        written += "<!-- end -->\n";
    }
    fs::write(document, written)
}

fn table_of(cases: &[&CaseResult]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    let figures = || cases.iter().flat_map(|case| &case.figures);
    for (name, rounds) in figures().flat_map(|figure| &figure.columns) {
        if !columns.contains(&name.as_str()) && rounds.iter().any(Option::is_some) {
            columns.push(name);
        }
    }
    let (has_ratios, has_goals) =
        (figures().any(|figure| figure.against.is_some()), figures().any(|figure| !figure.wanted.is_empty()));
    let ends = [has_ratios.then_some("ratio"), has_goals.then_some("wanted")];
    let head: Vec<&str> =
        ["case", "figure"].into_iter().chain(columns.iter().copied()).chain(ends.into_iter().flatten()).collect();
    let mut table = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for case in cases {
        for (n, figure) in case.figures.iter().enumerate() {
            let mut cells = vec![if n == 0 { case.name.clone() } else { String::new() }, figure.name.clone()];
            cells.extend(columns.iter().map(|column| {
                let mut values = figure.values(column);
                median(&mut values).map_or_else(String::new, |median| grouped(median) + mark(&mut values))
            }));
            let is_ratio_wanted = figure.wanted.starts_with("ratio");
            cells.extend(
                has_ratios.then(|| emphasized(ratio_of(figure), figure.is_met == Some(false) && is_ratio_wanted)),
            );
            cells.extend(
                has_goals.then(|| emphasized(figure.wanted.clone(), figure.is_met == Some(false) && !is_ratio_wanted)),
            );
            table += &format!("| {} |\n", cells.join(" | "));
        }
    }
    table
}

fn ratio_of(figure: &FigureResult) -> String {
    let mut ratios = figure.ratios();
    match (median(&mut ratios), &figure.against) {
        (Some(ratio), Some(against)) => format!("{ratio:.2} x {against}{}", mark(&mut ratios)),
        _ => String::new(),
    }
}

fn emphasized(text: String, is_missed: bool) -> String {
    if is_missed && !text.is_empty() { format!("**{text}**") } else { text }
}

/// Returns a value as [`display`] does, with commas in large numbers.
fn grouped(value: f64) -> String {
    let text = display(value);
    if value < LARGE {
        return text;
    }
    let digits = text.len();
    let with_commas = text.chars().enumerate().flat_map(|(n, digit)| {
        let comma = (n > 0 && (digits - n).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([digit])
    });
    with_commas.collect()
}

/// Returns the differences between two runs: figures whose middle half of the rounds is all above, or all below, that of
/// the other run.
pub fn compare(old: &Run, new: &Run) -> String {
    let mut text = format!("Old: {}\nNew: {}\n\n", old.conditions.describe(), new.conditions.describe());
    text += "| case | figure | old | new | change |\n|---|---|---|---|---|\n";
    let (mut compared, mut moved) = (0, 0);
    for (case, figure, earlier) in pairs(old, new) {
        let own = figure.columns.first().map_or("", |(name, _)| name);
        let ratio =
            figure.against.as_ref().map(|against| (format!(", x {against}"), earlier.ratios(), figure.ratios()));
        for (what, mut before, mut after) in
            [(String::new(), earlier.values(own), figure.values(own))].into_iter().chain(ratio)
        {
            let (Some(before), Some(after)) = (quartiles(&mut before), quartiles(&mut after)) else { continue };
            compared += 1;
            if before[0] > after[2] || after[0] > before[2] {
                moved += 1;
                let (was, is) = (before[1], after[1]);
                let change = if was == 0.0 { String::new() } else { format!("{:+.1} %", (is / was - 1.0) * 100.0) };
                let (was, is) = (grouped(was), grouped(is));
                text += &format!("| {} | {}{what} | {was} | {is} | {change} |\n", case.name, figure.name);
            }
        }
    }
    text + &format!("\n{moved} of {compared} figures moved by more than the noise of their rounds.\n")
}

/// Returns the figures that both runs have.
fn pairs<'a>(old: &'a Run, new: &'a Run) -> impl Iterator<Item = (&'a CaseResult, &'a FigureResult, &'a FigureResult)> {
    new.cases.iter().flat_map(|case| {
        let earlier = old.cases.iter().find(|other| other.table == case.table && other.name == case.name);
        case.figures.iter().filter_map(move |figure| {
            let of_same_name = |other: &&FigureResult| other.name == figure.name && other.against == figure.against;
            Some((case, figure, earlier?.figures.iter().find(of_same_name)?))
        })
    })
}
