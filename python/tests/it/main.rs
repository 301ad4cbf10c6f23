//! Installs the Python package, and runs its Python tests.
//!
//! The library is the one that cargo has built for this test, with the workspace's profile and
//! features, so that nothing is built twice. Its metadata is what maturin makes from
//! `pyproject.toml` for a wheel. `make python` builds the wheel itself.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forerun_testkit::{require, temp_dir, workspace_root};

/// Returns the Python that `cargo xtask packages` installed, with pytest, fsspec and maturin.
fn python() -> Option<PathBuf> {
    let python = workspace_root().join("target/tools/python/bin/python");
    require::that(
        python.exists(),
        "target/tools/python (cargo xtask packages)",
    )
    .then_some(python)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{printed}{errors}",
        output.status
    );
    printed
}

/// Installs the package into a new directory.
fn install(python: &Path, to: &Path) {
    let source = workspace_root().join("python");
    let package = to.join("forerun");
    fs::create_dir_all(&package).unwrap();
    for entry in fs::read_dir(source.join("forerun")).unwrap() {
        let path = entry.unwrap().path();
        let kept = ["py", "pyi", "typed"];
        if path
            .extension()
            .is_some_and(|suffix| kept.iter().any(|kept| suffix == *kept))
        {
            fs::copy(&path, package.join(path.file_name().unwrap())).unwrap();
        }
    }
    let built = env::current_exe().unwrap();
    let built = built.with_file_name("libforerun_python.so");
    fs::copy(&built, package.join("_forerun.abi3.so")).unwrap();
    let mut maturin = Command::new(python.with_file_name("maturin"));
    maturin.current_dir(&source);
    maturin.args([
        "pep517",
        "write-dist-info",
        "--locked",
        "--offline",
        "--metadata-directory",
    ]);
    run(maturin.arg(to).arg("--interpreter").arg(python));
}

/// Returns a command that runs pytest for the installed package.
fn pytest(python: &Path, site: &Path) -> Command {
    let source = workspace_root().join("python");
    let mut pytest = Command::new(python);
    // Not in the source tree, where the package lacks the library.
    pytest.current_dir(site).env("PYTHONPATH", site);
    pytest
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONHOME");
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "--rootdir"]);
    pytest
        .arg(&source)
        .arg("-c")
        .arg(source.join("pyproject.toml"));
    pytest
}

#[test]
fn the_package_passes_its_tests() {
    let Some(python) = python() else { return };
    let dir = temp_dir("python-package");
    let site = dir.path().join("site");
    install(&python, &site);
    let mut pytest = pytest(&python, &site);
    pytest.arg("--basetemp").arg(dir.path().join("tests"));
    let printed = run(pytest.arg(workspace_root().join("python/tests")));
    println!("{printed}");
}
