//! The poolcounter daemon. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    poolcounter::main(std::env::args_os())
}
