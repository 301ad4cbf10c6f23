//! The program: the library does it all, so that tests and fuzz targets can call its parts.

use std::process::ExitCode;

fn main() -> ExitCode {
    forerun_cli::main()
}
