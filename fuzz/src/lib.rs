//! The bodies of the fuzz targets, which know nothing of the fuzzer: `tests/protocol/corpus.rs` runs them too.

pub use poolcounter_testkit::bodies;
