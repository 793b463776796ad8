//! Members: a network form of Erlang's pooler. Providers bring members, consumers take them for themselves alone and return them.

pub mod state;
pub mod stats;
pub mod wire;
