//! The parts of the tests that the bodies need.

#![allow(dead_code, reason = "the tests use more of it")]

#[path = "../../tests/support/jobs.rs"]
pub mod jobs;
#[path = "../../tests/support/jobs_twin.rs"]
pub mod jobs_twin;
#[path = "../../tests/support/members_twin.rs"]
pub mod members_twin;
#[path = "../../tests/support/model/mod.rs"]
pub mod model;
#[path = "../../tests/support/twin.rs"]
pub mod twin;
#[path = "../../tests/support/world.rs"]
pub mod world;
