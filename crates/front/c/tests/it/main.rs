//! The library as C programs use it: the header, linking, every function, memory.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forerun::PackOptions;
use forerun_testkit::{require, temp_dir, workspace_root};

fn source() -> PathBuf {
    workspace_root().join("crates/front/c")
}

/// Returns the directory of the libraries that cargo built for this test.
fn built() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// Makes an image with a few files, in a new directory.
fn image() -> (tempfile::TempDir, PathBuf) {
    let dir = temp_dir("c-library");
    let files = dir.path().join("files");
    fs::create_dir_all(files.join("etc")).unwrap();
    fs::write(files.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    fs::write(files.join("etc/passwd"), "root:x:0:0\n").unwrap();
    std::os::unix::fs::symlink("etc/passwd", files.join("users")).unwrap();
    let large: Vec<u8> = (0..2_000_000_u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    fs::write(files.join("large"), large).unwrap();
    let image = files.parent().unwrap().join("x.sqsh");
    PackOptions::default().pack(&files, &image).unwrap();
    (dir, image)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Compiles a program against the shared library.
fn compile(program: &Path, to: &Path, more: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-D_POSIX_C_SOURCE=200809L",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
    ]);
    cc.args(["-Werror", "-pthread"]).args(more);
    cc.arg("-I").arg(source().join("include")).arg(program);
    cc.arg("-o").arg(to).arg("-L").arg(built());
    run(cc.arg("-lforerun_c"));
    // Programs look for the library by its soname.
    let name = to.parent().unwrap().join("libforerun.so.0");
    if !name.exists() {
        fs::copy(built().join("libforerun_c.so"), name).unwrap();
    }
}

fn started(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", program.parent().unwrap());
    command
}

#[test]
fn the_header_is_that_of_the_functions() {
    let config = cbindgen::Config::from_file(source().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    let modules = [
        "error", "options", "image", "metadata", "files", "entries", "extents", "packing",
        "counters",
    ];
    for module in modules {
        builder = builder.with_src(source().join(format!("src/{module}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let header = source().join("include/forerun.h");
    if env::var_os("FORERUN_UPDATE").is_some() {
        fs::write(&header, &made).unwrap();
    }
    let kept = fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == made,
        "include/forerun.h is not up to date: FORERUN_UPDATE=1 cargo test -p forerun-c writes it"
    );
    // The test program must call every function in the header.
    let calls = fs::read_to_string(source().join("tests/it/calls.c")).unwrap();
    let names = made.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    let functions: Vec<&str> = names
        .filter(|name| name.starts_with("forerun_") && made.contains(&format!("{name}(")))
        .collect();
    assert!(functions.len() >= 40, "{functions:?}");
    for function in functions {
        assert!(calls.contains(function), "calls.c does not call {function}");
    }
}

#[test]
fn every_function_works_and_leaks_nothing() {
    let (dir, image) = image();
    let calls = source().join("tests/it/calls.c");
    let plain = dir.path().join("calls");
    compile(&calls, &plain, &[]);
    let arguments = [image.as_path(), &dir.path().join("files")];
    run(started(&plain).args(arguments));
    fs::remove_file(dir.path().join("files/packed")).unwrap();

    let watched = dir.path().join("watched");
    compile(
        &calls,
        &watched,
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    );
    let output = run(started(&watched)
        .args(arguments)
        .env("ASAN_OPTIONS", "detect_leaks=1")
        // Counter names are never freed; the sanitizer still finds a pointer to them.
        .env("LSAN_OPTIONS", "exitcode=23"));
    assert_eq!(output.stdout, b"all calls are as they should be\n");
}

#[test]
fn programs_with_the_library_run_under_valgrind() {
    let Some(valgrind) = require::program("valgrind") else {
        return;
    };
    let (dir, image) = image();
    let program = dir.path().join("ls");
    compile(&source().join("examples/ls.c"), &program, &[]);
    let plain = run(started(&program).arg(&image));
    let mut watched = started(&valgrind);
    // Optimised code may branch on undefined values without effect.
    watched
        .args(["--quiet", "--undef-value-errors=no", "--error-exitcode=99"])
        .arg(&program)
        .arg(&image);
    watched.env("LD_LIBRARY_PATH", dir.path());
    assert_eq!(run(&mut watched).stdout, plain.stdout);
}

#[test]
fn the_examples_do_what_they_say() {
    let (dir, image) = image();
    let program = |name: &str| {
        let program = dir.path().join(name);
        compile(&source().join(format!("examples/{name}.c")), &program, &[]);
        program
    };
    let ls = run(started(&program("ls")).arg(&image));
    let ls = String::from_utf8(ls.stdout).unwrap();
    assert!(
        ls.contains("       20 /etc/hosts\n") && ls.starts_with("d "),
        "{ls}"
    );
    assert_eq!(ls.lines().count(), 6);

    let cat = program("cat");
    let large = run(started(&cat).arg(&image).arg("large")).stdout;
    assert!(large == fs::read(dir.path().join("files/large")).unwrap());
    let failed = started(&cat).arg(&image).arg("nope").output().unwrap();
    assert!(!failed.status.success());
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(
        said.ends_with(": nope: no such file or directory\n"),
        "{said}"
    );

    let map = run(started(&program("map")).arg(&image).arg("/large")).stdout;
    assert!(
        String::from_utf8(map)
            .unwrap()
            .starts_with("0+131072 encoded ")
    );

    let packed = dir.path().join("packed.sqsh");
    run(started(&program("pack"))
        .arg(dir.path().join("files"))
        .arg(&packed));
    assert_eq!(
        run(started(&cat).arg(&packed).arg("etc/passwd")).stdout,
        b"root:x:0:0\n"
    );
}

#[test]
fn the_example_of_the_documentation_runs() {
    let (dir, image) = image();
    let document = fs::read_to_string(workspace_root().join("docs/c.md")).unwrap();
    let (_, example) = document.split_once("```c\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let source = dir.path().join("example.c");
    fs::write(&source, example).unwrap();
    let program = dir.path().join("example");
    compile(&source, &program, &[]);
    assert_eq!(image.file_name().unwrap(), "x.sqsh");
    let printed = run(started(&program).current_dir(dir.path())).stdout;
    assert_eq!(printed, b"127.0.0.1 localhost\n");
}

#[test]
fn the_static_library_and_pkg_config_link() {
    let (dir, image) = image();
    let Some((pkg_config, make)) = require::program("pkg-config").zip(require::program("make"))
    else {
        return;
    };
    let prefix = dir.path().join("prefix");
    let lib = prefix.join("lib/x86_64-linux-gnu");
    let mut make = Command::new(make);
    make.current_dir(workspace_root()).arg("install-header");
    make.arg(format!("PREFIX={}", prefix.display()));
    run(make.arg(format!("LIBDIR={}", lib.display())));
    std::os::unix::fs::symlink(built().join("libforerun_c.a"), lib.join("libforerun.a")).unwrap();
    let mut flags = Command::new(pkg_config);
    flags.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = run(flags.args(["--cflags", "--libs", "--static", "forerun"])).stdout;
    let program = dir.path().join("ls");
    let mut cc = Command::new("cc");
    cc.arg(source().join("examples/ls.c"))
        .arg("-o")
        .arg(&program);
    run(cc.args(String::from_utf8(flags).unwrap().split_whitespace()));
    assert!(!run(Command::new(&program).arg(&image)).stdout.is_empty());
}
