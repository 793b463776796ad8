//! The Prometheus text format 0.0.4, written line by line. Independent of any particular metric.

use poolcounter_core::Histogram;
use std::fmt::{Display, Write};

/// Types of metrics.
pub const COUNTER: &str = "counter";
pub const GAUGE: &str = "gauge";
pub const HISTOGRAM: &str = "histogram";

/// Page under construction.
#[derive(Default)]
pub struct Exposition(pub String);

impl Exposition {
    /// Starts the metrics of one name.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Adds a value to the metrics of that name. `labels` are already formatted.
    pub fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    /// Adds a metric without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.value(name, "", value);
    }

    /// Adds the lines of a histogram for these bounds. One unit of the metric is `scale` units of the histogram.
    pub fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram, bounds: &[u64], scale: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, count) in histogram.cumulative(bounds) {
            let bound = bound as f64 / scale;
            self.line(format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", histogram.count()));
        self.value(&format!("{name}_sum"), labels, histogram.sum() as f64 / scale);
        self.value(&format!("{name}_count"), labels, histogram.count());
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes every character");
    }
}
