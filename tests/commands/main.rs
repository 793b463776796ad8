//! Tests of the commands, the settings, the manual, and what else an operator reads or types.

mod admin;
mod commands;
mod completions;
mod docs;
mod doctor;
mod documents;
mod exec;
mod jobs_batch;
mod jobs_shell;
mod logging;
mod makefile;
mod manual;
mod members_ci;
mod members_config;
mod members_leases;
mod members_requests;
mod members_shell;
mod pages;
mod provide;
mod settings;
mod status;
mod supervised;
mod tidy;
