//! What the tests share.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod daemon;
pub mod original;
pub mod place;
pub mod player;
pub mod script;
pub mod sockets;
pub mod stage;
pub mod world;
