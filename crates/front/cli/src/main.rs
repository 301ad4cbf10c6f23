//! The program. The library does everything, so that tests and fuzz targets can call its parts.

use std::process::ExitCode;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    forerun_cli::main()
}
