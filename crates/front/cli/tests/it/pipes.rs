//! Standard input and output: pipes, readers that stop early, full disks.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use crate::common::{Fixture, big, ran};

#[test]
fn an_image_on_standard_input() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fixture.path("a.img");
    // A redirected file is read in place; a pipe is copied, with a note.
    let direct = fixture.run_with(&["cat", "-", "big"], &image).ok();
    assert!(direct.stdout == big());
    let bytes = std::fs::read(&image).unwrap();
    let piped = fixture.run_piped(&["cat", "-", "big"], bytes.clone());
    assert!(piped.stdout == big());
    assert_eq!(piped.code, Some(0));
    assert_eq!(
        piped.stderr,
        "forerun: standard input is not seekable: copied 2.9 MiB to a temporary file\n"
    );
    fixture.run_piped(&["ls", "-q", "-"], bytes).ok();
    let unknown = "forerun: standard input: not an image of a known format: data that starts with 6e 6f 20 \
                   69 6d 61 67 65";
    fixture
        .run_piped(&["ls", "-q", "-"], b"no image".to_vec())
        .fails(3, unknown);
}

#[test]
fn an_image_in_a_named_pipe_is_copied() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let script = "mkfifo pipe && { cat a.img > pipe & } && \"$0\" cat pipe big";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_forerun")]);
    let ran = ran(shell.current_dir(fixture.path("")).output().unwrap());
    assert!(ran.stdout == big());
    let told = "forerun: pipe is not seekable: copied 2.9 MiB to a temporary file\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), told));
}

#[test]
fn pack_and_cat_through_a_pipe() {
    let fixture = Fixture::tree();
    let mut pack = fixture
        .command(&["pack", "-q", "--format", "romfs", "tree", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = pack.stdout.take().unwrap();
    let cat = fixture
        .command(&["-q", "cat", "-", "big"])
        .stdin(pipe)
        .output()
        .unwrap();
    assert!(pack.wait().unwrap().success());
    assert!(ran(cat).ok().stdout == big());
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    std::fs::create_dir(fixture.path("many")).unwrap();
    for n in 0..5000 {
        let name = format!("many/a-name-that-fills-the-pipe-{n:05}");
        std::fs::write(fixture.path(&name), "").unwrap();
    }
    fixture
        .run(&["pack", "-q", "--format", "romfs", "many", "many.img"])
        .ok();
    for args in [
        &["cat", "a.img", "big"][..],
        &["tar", "a.img"],
        &["ls", "-lR", "many.img"],
        &["ls", "--json", "many.img"],
        &["dump", "many.img"],
        &["pack", "-q", "--format", "romfs", "tree", "-"],
    ] {
        let mut child = fixture
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut one = [0];
        child.stdout.take().unwrap().read_exact(&mut one).unwrap();
        let ran = ran(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_told() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for args in [
        &["info", "a.img"][..],
        &["ls", "a.img"],
        &["cat", "a.img", "big"],
        &["tar", "a.img"],
        &["check", "a.img"],
        &["dump", "--json", "a.img"],
        &["pack", "-q", "--format", "romfs", "tree", "-"],
        &["completions", "bash"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = ran(fixture
            .command(args)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap());
        assert_eq!(ran.code, Some(5), "{args:?}");
        assert!(
            ran.stderr.contains("standard output"),
            "{args:?} {}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains("No space left on device"),
            "{args:?} {}",
            ran.stderr
        );
    }
}
