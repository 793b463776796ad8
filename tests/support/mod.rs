//! What the tests share.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod chatter;
pub mod daemon;
pub mod model;
pub mod random;
pub mod twin;
pub mod world;
