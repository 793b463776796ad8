//! Tests of upgrades and reloads, which lose nothing.

mod golden;
mod members_upgrade;
mod operators;
mod order;
mod reload;
mod upgrade;
mod upgrade_release;
