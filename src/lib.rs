//! poolcounter
pub mod cli;
pub mod id;
mod list;
mod names;
pub mod net;
mod output;
pub mod pools;
mod service;
pub mod services;
pub mod stats;
pub mod time;
mod wheel;
