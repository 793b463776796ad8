//! What the tests share.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod chatter;
pub mod counter;
pub mod counting;
pub mod daemon;
pub mod embedded;
pub mod frames;
pub mod jobs;
pub mod lines;
pub mod model;
pub mod original;
pub mod place;
pub mod player;
pub mod protocol;
pub mod random;
pub mod script;
pub mod sockets;
pub mod stage;
pub mod twin;
pub mod web;
pub mod world;
pub mod yrmcds;
