//! Enters sandboxes, each in its own process, and tries permitted and refused operations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_sandbox::{Capabilities, Sandbox, Sockets, State};
use forerun_testkit::temp_dir;
use rustix::net::{AddressFamily, Ipv4Addr, SocketAddrAny, SocketAddrV4, SocketType};

/// Passes the test's directory to the sandboxed process.
const DIR: &str = "FORERUN_SANDBOX_TEST_DIR";

type Test = (&'static str, fn(&Path));

const TESTS: &[Test] = &[
    (
        "an_empty_sandbox_refuses_files_programs_tracing_and_sockets",
        an_empty_sandbox_refuses_files_programs_tracing_and_sockets,
    ),
    (
        "a_directory_can_be_written_and_nothing_beside_it",
        a_directory_can_be_written_and_nothing_beside_it,
    ),
    (
        "names_can_be_given_where_files_cannot_be_opened",
        names_can_be_given_where_files_cannot_be_opened,
    ),
    (
        "a_file_can_be_read_and_its_neighbour_cannot",
        a_file_can_be_read_and_its_neighbour_cannot,
    ),
    (
        "open_sockets_go_on_and_new_ones_are_refused",
        open_sockets_go_on_and_new_ones_are_refused,
    ),
    (
        "network_and_programs_where_they_are_asked_for",
        network_and_programs_where_they_are_asked_for,
    ),
    (
        "capabilities_that_are_kept_are_the_only_ones",
        capabilities_that_are_kept_are_the_only_ones,
    ),
    (
        "threads_that_began_earlier_are_reported",
        threads_that_began_earlier_are_reported,
    ),
];

/// Runs each test in its own single-threaded process: the standard harness always has several
/// threads.
fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if let Some(dir) = std::env::var_os(DIR) {
        let (_, test) = TESTS.iter().find(|(name, _)| *name == wanted).unwrap();
        return test(Path::new(&dir));
    }
    let mut failed = 0;
    for (name, _) in TESTS {
        let dir = temp_dir(name);
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.arg(name).env(DIR, dir.path()).status().unwrap();
        let verdict = if ended.success() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict}");
        failed += usize::from(!ended.success());
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let passed = TESTS.len() - failed;
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    assert_eq!(failed, 0);
}

#[track_caller]
fn refused<T>(result: Result<T>) {
    let error = result.err().expect("it was allowed");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

fn ptrace() -> Result<()> {
    let parent = nix::unistd::Pid::parent();
    Ok(nix::sys::ptrace::attach(parent)?)
}

fn exec() -> Result<()> {
    let status = Command::new("/bin/true").stdin(Stdio::null()).status()?;
    assert!(status.success());
    Ok(())
}

fn socket() -> Result<OwnedFd> {
    Ok(rustix::net::socket(
        AddressFamily::INET,
        SocketType::STREAM,
        None,
    )?)
}

/// Opens a listening socket on this machine. Returns it with its address.
fn listening() -> Result<(OwnedFd, SocketAddrAny)> {
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::listen(&socket, 1)?;
    let address = rustix::net::getsockname(&socket)?;
    Ok((socket, address))
}

fn connect(socket: &OwnedFd, address: &SocketAddrAny) -> Result<()> {
    Ok(rustix::net::connect(socket, address)?)
}

fn status(field: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.expect(field)
        .trim_start_matches(':')
        .trim()
        .to_string()
}

fn an_empty_sandbox_refuses_files_programs_tracing_and_sockets(dir: &Path) {
    let open = File::create(dir.join("open")).unwrap();
    let (server, address) = listening().unwrap();
    let client = socket().unwrap();
    let report = Sandbox::new().enter();
    assert!(report.is_whole(), "{report}");
    refused(File::open("/etc/shadow"));
    refused(File::open(dir.join("open")));
    refused(fs::read_dir("/"));
    refused(File::create(dir.join("new")));
    refused(fs::remove_file(dir.join("open")));
    refused(exec());
    refused(ptrace());
    refused(socket());
    refused(connect(&client, &address));
    refused(UnixStream::pair());
    refused(rustix::net::accept(&server).map_err(Error::from));
    refused(File::open(format!(
        "/proc/{}/mem",
        std::os::unix::process::parent_id()
    )));
    assert_eq!(status("NoNewPrivs"), "1");
    assert_eq!(status("Seccomp"), "2");
    assert_eq!(u64::from_str_radix(&status("CapEff"), 16).unwrap(), 0);
    // Open files stay usable, and new threads can start inside the sandbox.
    (&open).write_all(b"x").unwrap();
    let thread = std::thread::spawn(|| refused(File::open("/etc/shadow")));
    thread.join().unwrap();
    fs::read_to_string("/proc/self/statm").unwrap();
}

fn a_directory_can_be_written_and_nothing_beside_it(dir: &Path) {
    let below = dir.join("below");
    fs::create_dir(&below).unwrap();
    let report = Sandbox::new().write_below(&below).enter();
    assert!(report.is_whole(), "{report}");
    fs::create_dir_all(below.join("a/b")).unwrap();
    fs::write(below.join("a/b/file"), "text").unwrap();
    fs::hard_link(below.join("a/b/file"), below.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/shadow", below.join("shadow")).unwrap();
    refused(File::open(below.join("shadow")));
    refused(fs::write(dir.join("beside"), "text"));
    refused(fs::hard_link(below.join("link"), dir.join("link")));
    fs::remove_dir_all(below.join("a")).unwrap();
    assert_eq!(fs::read_to_string(below.join("link")).unwrap(), "text");
}

fn names_can_be_given_where_files_cannot_be_opened(dir: &Path) {
    fs::write(dir.join("partial"), "new").unwrap();
    fs::write(dir.join("other"), "text").unwrap();
    let report = Sandbox::new().name_files_in(dir).enter();
    assert!(report.is_whole(), "{report}");
    fs::rename(dir.join("partial"), dir.join("final")).unwrap();
    refused(fs::read(dir.join("other")));
    refused(fs::write(dir.join("other"), ""));
    refused(fs::create_dir(dir.join("dir")));
    fs::remove_file(dir.join("other")).unwrap();
}

fn a_file_can_be_read_and_its_neighbour_cannot(dir: &Path) {
    for name in ["one", "two", "three"] {
        fs::write(dir.join(name), "text").unwrap();
    }
    let sandbox = Sandbox::new().read(dir.join("one"));
    let report = sandbox.write_file(dir.join("two")).enter();
    assert!(report.is_whole(), "{report}");
    fs::read(dir.join("one")).unwrap();
    refused(File::options().write(true).open(dir.join("one")));
    File::options().write(true).open(dir.join("two")).unwrap();
    refused(fs::read(dir.join("three")));
}

fn open_sockets_go_on_and_new_ones_are_refused(dir: &Path) {
    let path = &dir.join("socket");
    let server = UnixListener::bind(path).unwrap();
    let mut client = UnixStream::connect(path).unwrap();
    let report = Sandbox::new().sockets(Sockets::Open).enter();
    assert!(report.is_whole(), "{report}");
    let (mut asked, _) = server.accept().unwrap();
    asked.write_all(b"x").unwrap();
    client.write_all(b"x").unwrap();
    UnixStream::pair().unwrap();
    refused(UnixStream::connect(path));
    refused(socket());
}

fn network_and_programs_where_they_are_asked_for(_: &Path) {
    let report = Sandbox::new().sockets(Sockets::New).programs().enter();
    let landlock = report.measures().iter().find(|one| one.name == "landlock");
    assert!(
        matches!(landlock.unwrap().state, State::Missing(_)),
        "{report}"
    );
    let (_server, address) = listening().unwrap();
    connect(&socket().unwrap(), &address).unwrap();
    exec().unwrap();
    refused(ptrace());
}

fn capabilities_that_are_kept_are_the_only_ones(_: &Path) {
    let kept = Capabilities::CHOWN | Capabilities::FOWNER;
    let before = u64::from_str_radix(&status("CapPrm"), 16).unwrap();
    let report = Sandbox::new().keep(kept).enter();
    for set in ["CapEff", "CapPrm"] {
        let now = u64::from_str_radix(&status(set), 16).unwrap();
        assert_eq!(now, before & kept.bits(), "{set}: {report}");
    }
    let before = u64::from_str_radix(&status("CapInh"), 16).unwrap();
    assert_eq!(before, 0);
}

fn threads_that_began_earlier_are_reported(_: &Path) {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _end_of_the_test = ended.recv();
        // Seccomp covers all threads.
        refused(exec());
    });
    let report = Sandbox::new().enter();
    assert!(!report.is_whole(), "{report}");
    assert!(
        report.to_string().contains("1 threads that began earlier"),
        "{report}"
    );
    end.send(()).unwrap();
    thread.join().unwrap();
}
