//! Reports and pages for people: tables, the matrix, and pages about one thing.

pub mod gone_runners;
mod job_tables;
mod matrix;
mod report;
pub mod tables;
pub mod views;
