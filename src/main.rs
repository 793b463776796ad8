//! The poolcounter daemon. All code is in the crates.

use std::process::ExitCode;

fn main() -> ExitCode {
    poolcounter_cli::main(std::env::args_os())
}
