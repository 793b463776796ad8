//! What the fuzz targets do with their input. The bodies know nothing of the fuzzer: `tests/corpus.rs` runs them too.

#[path = "../../tests/support/bodies/mod.rs"]
pub mod bodies;
pub mod support;
