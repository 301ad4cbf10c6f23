//! Mounts in a mount namespace that ends, and owners that a user namespace lacks.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use forerun_testkit::{TempDir, children, eventually, require, temp_dir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{command, ran};

const NOBODY: u32 = 65534;

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Root in a mount namespace.
    Mount,
    /// Root in a user namespace.
    User,
    /// An unprivileged user who is root in a user namespace.
    Nobody,
}

impl Kind {
    fn is_possible(self) -> bool {
        match self {
            Self::Mount | Self::User => true,
            Self::Nobody => require::fuse_for_users(),
        }
    }

    const fn as_user(self) -> &'static [&'static str] {
        match self {
            Self::Mount | Self::User => &[],
            Self::Nobody => &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--",
            ],
        }
    }

    const fn unshare(self) -> &'static str {
        match self {
            Self::Mount => "-m",
            Self::User | Self::Nobody => "-Urm",
        }
    }
}

struct Place {
    dir: TempDir,
    kind: Kind,
}

impl Place {
    /// Creates a place for the user. Returns `None` if this machine lacks something.
    fn new(kind: Kind) -> Option<Self> {
        let programs = ["setpriv", "unshare"].map(require::program);
        if !require::root() || !require::fuse() || programs.contains(&None) || !kind.is_possible() {
            return None;
        }
        let dir = temp_dir("namespaces");
        let place = Self { dir, kind };
        for name in ["tree", "run", "mnt", "over"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        for (name, owner) in [("root", 0), ("user", 1000), ("other", 12345)] {
            let path = place.path("tree").join(name);
            fs::write(&path, format!("{name}\n")).unwrap();
            chown(&path, Some(owner), Some(owner)).unwrap();
        }
        let pack = command(&["pack", "-q", "--format", "squashfs", "tree", "image"])
            .current_dir(place.dir.path())
            .output();
        ran(pack.unwrap()).ok();
        let all_may_enter = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.dir.path(), all_may_enter).unwrap();
        if let Kind::Nobody = kind {
            for name in ["run", "mnt", "over"] {
                chown(place.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command line that runs as the user outside the namespaces.
    fn command(&self, words: &[&str]) -> Command {
        let all = [self.kind.as_user(), words].concat();
        let (program, rest) = all.split_first().unwrap();
        let mut command = Command::new(program);
        command
            .args(rest)
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("HOME", self.path("run"))
            .stdin(Stdio::null())
            .current_dir(self.dir.path());
        command
    }

    fn program() -> String {
        let program = command(&["x"]);
        program.get_program().to_str().unwrap().to_string()
    }

    /// Returns the output of `forerun status` outside the namespaces.
    fn status(&self) -> Vec<Value> {
        let status = self.command(&[&Self::program(), "status", "--json"]);
        let mut status = status;
        let told = ran(children::output(&mut status).unwrap()).ok().mounts();
        told.as_array().unwrap().clone()
    }

    /// Returns the processes of the only mount: the server, and the supervisor if there is one.
    fn processes(&self) -> Vec<Pid> {
        let told = self.status();
        assert_eq!(told.len(), 1, "{told:?}");
        let named = ["pid", "supervisor"].map(|name| told[0][name].as_i64());
        let pid = |pid: i64| Pid::from_raw(pid.try_into().unwrap()).unwrap();
        named.into_iter().flatten().map(pid).collect()
    }

    fn has_ended(&self, processes: &[Pid]) {
        eventually("the processes of the mount have ended", || {
            processes.iter().all(|pid| !is_running(*pid))
        });
        assert_eq!(self.status(), Vec::<Value>::new());
    }
}

fn is_running(pid: Pid) -> bool {
    Path::new("/proc")
        .join(pid.as_raw_nonzero().to_string())
        .exists()
}

/// A shell in its own namespaces that runs lines. `$0` is the program under test.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn new(place: &Place) -> Self {
        let told = r#"while read -r line; do eval "$line"; echo "ended with $?"; done"#;
        let program = Place::program();
        let unshare = place.kind.unshare();
        let mut command = place.command(&["unshare", unshare, "sh", "-c", told, &program]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = children::spawn(&mut command).unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Runs a line. Returns its output and exit code.
    fn run(&mut self, line: &str) -> (String, i32) {
        writeln!(self.stdin, "{line}").unwrap();
        let mut printed = String::new();
        loop {
            let mut next = String::new();
            assert_ne!(self.stdout.read_line(&mut next).unwrap(), 0, "{line}");
            match next.trim_end().strip_prefix("ended with ") {
                Some(code) => return (printed, code.parse().unwrap()),
                None => printed.push_str(&next),
            }
        }
    }

    /// Runs a line that must succeed. Returns its output.
    #[track_caller]
    fn ok(&mut self, line: &str) -> String {
        let (printed, code) = self.run(line);
        assert_eq!(code, 0, "{line}: {printed}");
        printed
    }

    /// Returns whether the shell sees the mount. A new namespace starts with the mounts of the old
    /// one.
    fn sees_a_mount(&mut self) -> bool {
        self.run("grep -q \" $PWD/mnt .* fuse.forerun \" /proc/self/mountinfo")
            .1
            == 0
    }

    fn end(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_mount_ends_with_the_last_process_of_its_namespace() {
    for (kind, arguments) in [
        (Kind::Mount, ""),
        (Kind::User, ""),
        (Kind::Nobody, ""),
        (Kind::User, "-o restarts=0"),
        (Kind::User, "--no-sandbox"),
    ] {
        let Some(place) = Place::new(kind) else {
            return;
        };
        let mut shell = Shell::new(&place);
        shell.ok(&format!("\"$0\" mount {arguments} image mnt"));
        assert_eq!(shell.ok("cat mnt/root"), "root\n");
        let processes = place.processes();
        let expected = if arguments == "-o restarts=0" { 1 } else { 2 };
        assert_eq!(processes.len(), expected, "{kind:?} {arguments}");
        shell.end();
        place.has_ended(&processes);
    }
}

#[test]
fn a_mount_lives_as_long_as_any_process_of_its_namespace() {
    let Some(place) = Place::new(Kind::User) else {
        return;
    };
    let mut shell = Shell::new(&place);
    shell.ok("\"$0\" mount image mnt && mkfifo over/go over/seen");
    shell.ok("{ read -r _; cat mnt/root; } < over/go > over/seen &");
    let processes = place.processes();
    let mut go = fs::File::options()
        .write(true)
        .open(place.path("over/go"))
        .unwrap();
    let mut seen = fs::File::open(place.path("over/seen")).unwrap();
    shell.end();
    assert_eq!(place.processes(), processes);
    writeln!(go).unwrap();
    assert_eq!(std::io::read_to_string(&mut seen).unwrap(), "root\n");
    place.has_ended(&processes);
}

#[test]
fn signals_unmount_in_the_namespace() {
    for (kind, arguments) in [
        (Kind::Mount, ""),
        (Kind::User, ""),
        (Kind::Nobody, ""),
        (Kind::User, "--no-sandbox"),
    ] {
        let Some(place) = Place::new(kind) else {
            return;
        };
        let mut shell = Shell::new(&place);
        shell.ok(&format!("\"$0\" mount {arguments} image mnt"));
        let processes = place.processes();
        assert!(shell.sees_a_mount());
        kill_process(processes[0], Signal::TERM).unwrap();
        place.has_ended(&processes);
        assert!(!shell.sees_a_mount(), "{kind:?} {arguments}");
        shell.end();
    }
}

#[test]
fn servers_that_follow_keep_the_namespace_no_longer() {
    for kind in [Kind::Mount, Kind::Nobody] {
        let Some(place) = Place::new(kind) else {
            return;
        };
        let mut shell = Shell::new(&place);
        shell.ok("\"$0\" mount image mnt && exec 3< mnt/root");
        let first = place.processes();
        kill_process(first[0], Signal::KILL).unwrap();
        eventually("another process serves the mount", || {
            let told = place.status();
            told.first().is_some_and(|mount| {
                mount["pid"].as_i64() != Some(first[0].as_raw_nonzero().get().into())
            })
        });
        assert_eq!(shell.ok("cat mnt/user <&3"), "user\n");
        shell.ok("\"$0\" -q restart mnt");
        assert_eq!(shell.ok("cat mnt/other && cat <&3"), "other\nroot\n");
        let last = place.processes();
        assert_eq!(last.get(1), first.get(1), "the supervisor");
        // The mount is in use, and only the supervisor can detach it.
        shell.ok("exec 3<&-");
        shell.end();
        place.has_ended(&last);
    }
}

#[test]
fn an_image_in_a_mount_of_the_namespace() {
    let Some(place) = Place::new(Kind::User) else {
        return;
    };
    let outer = command(&["pack", "-q", "--format", "romfs", ".", "over/outer"])
        .current_dir(place.path("."))
        .output();
    ran(outer.unwrap()).ok();
    let mut shell = Shell::new(&place);
    shell.ok(
        "mkdir over/mnt && \"$0\" mount over/outer over/mnt && \"$0\" mount over/mnt/image mnt",
    );
    assert_eq!(place.status().len(), 2);
    shell.ok("\"$0\" -q restart mnt && \"$0\" -q restart over/mnt");
    assert_eq!(shell.ok("cat mnt/root over/mnt/tree/root"), "root\nroot\n");
    // The inner mount keeps the outer one busy; a new inner mount would not.
    shell.ok("\"$0\" umount mnt && \"$0\" mount image mnt && \"$0\" umount over/mnt");
    eventually("the outer mount has ended", || place.status().len() == 1);
    let processes = place.processes();
    shell.end();
    place.has_ended(&processes);
}

#[test]
fn a_namespace_that_shares_its_mounts_has_them_alone_too() {
    for arguments in ["", "--no-sandbox"] {
        let Some(place) = Place::new(Kind::Mount) else {
            return;
        };
        let mut shell = Shell::new(&place);
        shell.ok("mount --make-rshared /");
        let mount = format!("\"$0\" mount {arguments} image mnt");
        shell.ok(&mount);
        let processes = place.processes();
        for pid in &processes {
            let table = format!("/proc/{}/mountinfo", pid.as_raw_nonzero());
            let table = fs::read_to_string(table).unwrap();
            assert!(!table.contains(" fuse.forerun "), "{table}");
        }
        shell.ok("umount mnt");
        place.has_ended(&processes);
        shell.ok(&mount);
        let processes = place.processes();
        shell.end();
        place.has_ended(&processes);
    }
}

#[test]
fn auto_unmount_unmounts_in_the_namespace() {
    let Some(place) = Place::new(Kind::User) else {
        return;
    };
    let mut shell = Shell::new(&place);
    shell.ok("\"$0\" mount -o auto_unmount image mnt");
    let processes = place.processes();
    for pid in processes.iter().rev() {
        kill_process(*pid, Signal::KILL).unwrap();
    }
    eventually("it is unmounted", || !shell.sees_a_mount());
    shell.end();
    place.has_ended(&processes);
}

#[test]
fn an_overlay_on_top_copies_up_files_of_owners_that_the_namespace_lacks() {
    for (options, owners, is_copied) in [
        ("ro", "0:0 0:0 0:0", true),
        ("unmapped=squash", "0:0 0:0 0:0", true),
        ("unmapped=keep", "0:0 65534:65534 65534:65534", false),
        ("unmapped=keep,uid=0,gid=0", "0:0 0:0 0:0", true),
    ] {
        let Some(place) = Place::new(Kind::User) else {
            return;
        };
        let mut shell = Shell::new(&place);
        shell.ok(&format!("\"$0\" mount -o {options} image mnt"));
        let seen = shell.ok("stat -c %u:%g mnt/root mnt/user mnt/other");
        assert_eq!(
            seen.lines().collect::<Vec<_>>().join(" "),
            owners,
            "{options}"
        );
        shell.ok("mount -t tmpfs tmpfs over && mkdir over/upper over/work over/all");
        shell.ok("mount -t overlay overlay \
             -o lowerdir=mnt,upperdir=over/upper,workdir=over/work,userxattr over/all");
        let (_, code) = shell.run("(echo more >> over/all/other) 2> over/why");
        assert_eq!(code == 0, is_copied, "{options}");
        let expected = if is_copied {
            "other\nmore\n"
        } else {
            "other\n"
        };
        assert_eq!(shell.ok("cat over/all/other"), expected, "{options}");
        assert_eq!(shell.ok("cat mnt/other"), "other\n");
        let processes = place.processes();
        shell.end();
        place.has_ended(&processes);
    }
}
