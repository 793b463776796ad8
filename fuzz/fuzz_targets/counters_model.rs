#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| poolcounter_fuzz::bodies::simulation::counters(data));
