//! Jobs that are never lost: the state after a crash, of the process, the disk or the power, keeps the promises to
//! clients.

mod checker;
pub mod disk;
mod full;
mod kill;
mod load;
mod power;
pub mod vfs;
