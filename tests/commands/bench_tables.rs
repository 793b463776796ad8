//! The tables of benches/README.md, and the comparison of two runs.

#[path = "../../benches/results/mod.rs"]
mod results;
#[path = "../../benches/results/tables.rs"]
mod tables;

use results::{CaseResult, FigureResult, Run};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a run of one case with these speeds of ours and of the limit in its rounds, saved and read again.
fn run_of(ours: [f64; 3], limit: [f64; 3]) -> Run {
    let columns = [("ours", ours), ("limit", limit)];
    let figure = FigureResult {
        name: "replies/s".into(),
        wanted: "ratio >= 0.90".into(),
        is_met: Some(false),
        against: Some("limit".into()),
        columns: columns.map(|(name, rounds)| (name.into(), rounds.map(Some).into())).into(),
    };
    let mut run = Run::begin("Three rounds".into());
    run.cases.push(CaseResult { table: "pools".into(), name: "pair".into(), figures: vec![figure] });
    run.cases[0].print();
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let path = run.save(&format!("test-{}-{number}", std::process::id())).expect("can be written");
    let read = tables::read(&path).expect("can be read");
    fs::remove_file(path).expect("it is there");
    read
}

#[test]
fn tables_are_replaced_by_those_of_a_run() {
    let document = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench_tables.md");
    let other = "<!-- bench: jobs -->\nas it was\n<!-- end -->\n";
    fs::write(&document, format!("# A\n<!-- bench: pools -->\nold\n<!-- end -->\n{other}B\n")).expect("can be written");
    let run = run_of([30_000.0, 10_000.0, 20_000.0], [25_000.0, 20_000.0, 25_000.0]);
    tables::write_tables(&run, &document).expect("it has markers");
    let text = fs::read_to_string(&document).expect("can be read");
    let table = "| case | figure | ours | limit | ratio | wanted |\n|---|---|---|---|---|---|\n\
                 | pair | replies/s | 20,000 ~ | 25,000 | **0.80 x limit ~** | ratio >= 0.90 |\n<!-- end -->\n";
    let begin = format!("# A\n<!-- bench: pools -->\n{}\n\n", run.conditions.describe());
    assert_eq!(text, format!("{begin}{table}{other}B\n"));
}

#[test]
fn only_changes_beyond_the_noise_are_told() {
    let slow = run_of([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]);
    let noisy = run_of([2.0, 3.0, 4.0], [2.0, 3.0, 4.0]);
    let fast = run_of([4.0, 6.0, 5.0], [1.0, 2.0, 3.0]);
    let said = tables::compare(&slow, &noisy);
    assert!(said.ends_with("\n0 of 2 figures moved by more than the noise of their rounds.\n"), "{said}");
    let said = tables::compare(&slow, &fast);
    assert!(said.contains("| pair | replies/s | 2.00 | 5.00 | +150.0 % |\n"), "{said}");
    assert!(said.contains("| pair | replies/s, x limit | 1.00 | 3.00 | +200.0 % |\n"), "{said}");
}
