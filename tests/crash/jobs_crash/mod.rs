//! Jobs that are never lost: what stands after a crash, of the process, the disk or the power, is what clients were promised.

mod checker;
mod disk;
mod full;
mod kill;
mod load;
mod power;
mod vfs;
