//! Attempts of a command in `forerun run` to reach the system. It has all capabilities of a user
//! namespace and, if run by root, the user id that owns the system's settings.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use forerun_testkit::{children, eventually, require};
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::run::Place;

/// Names of attempts, and scripts that succeed if the attempt does. `$PROGRAM` is the ID of the
/// test's own process, outside of the sandbox. `$KEY` is the key of a message queue of root.
const ATTEMPTS: &[(&str, &str)] = &[
    (
        "unmount /proc/sys",
        "umount /proc/sys; umount -l /proc/sys; : >> $PATTERN",
    ),
    (
        "make /proc/sys writable",
        "mount -o remount,bind,rw /proc/sys; mount -o remount,bind,rw /proc; : >> $PATTERN",
    ),
    (
        "copy /proc without what is mounted on it",
        "mount --bind /proc /tmp/x || { mount --rbind /proc /tmp/x; umount -l /tmp/x/sys; }; : >> /tmp/x/sys/kernel/core_pattern",
    ),
    (
        "mount another /proc",
        "mount -t proc proc /tmp/x; : >> /tmp/x/sys/kernel/core_pattern",
    ),
    (
        "mount another /proc in a PID namespace",
        "unshare -pf sh -c 'mount -t proc proc /tmp/x; : >> /tmp/x/sys/kernel/core_pattern'",
    ),
    (
        "mount another /proc in a user namespace",
        "unshare -Urmpf sh -c 'mount -t proc proc /tmp/x; : >> /tmp/x/sys/kernel/core_pattern'",
    ),
    (
        "ask the kernel for a reboot",
        "umount -l /proc/sysrq-trigger; : >> /proc/sysrq-trigger",
    ),
    (
        "find any other setting in /proc",
        "test -w /proc/sys/kernel/core_pattern || find /proc -maxdepth 3 ! -path '/proc/[0-9]*' ! -path '/proc/self*' \
         ! -path '/proc/thread-self*' ! -path '/proc/pressure/*' ! -path '/proc/sys/user/*' ! -name ns_last_pid ! -name pid_max -type f -perm /222 -writable -print | grep .",
    ),
    (
        "change the mode of a file in /proc",
        "chmod 444 /proc/version",
    ),
    ("make /sys writable", "mount -o remount,bind,rw /sys"),
    (
        "find a setting in /sys",
        "mount -o remount,rw /sys; find /sys -maxdepth 4 -type f -writable | grep .",
    ),
    (
        "unmount /sys and what hides parts of it",
        "umount -l /sys || umount -l /sys/kernel/security || umount -l /sys/kernel/debug || umount -l /sys/kernel/tracing",
    ),
    (
        "look at tracing and debugging of the kernel",
        "ls /sys/kernel/debug/* || ls /sys/kernel/tracing/* || ls /sys/fs/bpf/*",
    ),
    (
        "mount another /sys",
        "unshare -n mount -t sysfs sysfs /tmp/x",
    ),
    (
        "mount another /sys in a user namespace",
        "unshare -Urmn mount -t sysfs sysfs /tmp/x",
    ),
    (
        "make control groups writable",
        "for m in $(cut -d' ' -f5 /proc/self/mountinfo | grep ^/sys/fs/cgroup); do mount -o remount,bind,rw $m && exit 0; done; exit 1",
    ),
    (
        "mount control groups",
        "mount -t cgroup2 c /tmp/x; unshare -C sh -c 'mount -t cgroup2 c /tmp/x; : >> /tmp/x/cgroup.procs'",
    ),
    (
        "mount control groups of version 1",
        "unshare -C sh -c 'for c in pids cpu memory devices; do mount -t cgroup -o $c c /tmp/x && : >> /tmp/x/tasks && exit 0; done; exit 1'",
    ),
    (
        "mount control groups in a user namespace",
        "unshare -UrmC sh -c 'mount -t cgroup2 c /tmp/x; : >> /tmp/x/cgroup.procs'",
    ),
    (
        "have the kernel run a program at the end of a control group",
        "for f in $(find /sys/fs/cgroup -name release_agent); do : >> $f && exit 0; done; exit 1",
    ),
    (
        "make a read-only bind writable",
        "mount -o remount,bind,rw /tmp/ro; : > /tmp/ro/new",
    ),
    (
        "copy a read-only bind and make that writable",
        "mount --bind /tmp/ro /tmp/x; mount -o remount,bind,rw /tmp/x; : > /tmp/x/new",
    ),
    ("unmount a read-only bind", "umount -l /tmp/ro"),
    ("unmount the image", "umount -l /"),
    (
        "make the image writable",
        "mount -o remount,rw / && : > /new",
    ),
    (
        "make a node of the disk of the system",
        "mknod /tmp/disk b $DISK",
    ),
    (
        "change a device of the system",
        "chmod 666 /dev/null || chown 0:0 /dev/null || touch -d @0 /dev/null",
    ),
    (
        "look into process 1",
        "readlink /proc/1/exe || readlink /proc/1/root || readlink /proc/1/fd/0 || readlink /proc/1/ns/mnt || grep . /proc/1/environ",
    ),
    ("trace process 1", "timeout 1 strace -p 1; test $? = 124"),
    (
        "enter the namespaces of process 1",
        "nsenter -t 1 -m true || nsenter -t 1 -U true || nsenter -t 1 -p true || nsenter -t 1 -i true",
    ),
    (
        "reach a process outside",
        "kill -0 $OUTSIDE || ls /proc/$OUTSIDE",
    ),
    (
        "load a module or another kernel",
        "perl -e 'sub no { my $r = syscall(@_); $r == -1 && ($!+0 == 1 || $!+0 == 38) } \
         my ($kexec, $module) = `uname -m` =~ /aarch64/ ? (104, 105) : (246, 175); \
         exit 1 if no($kexec, 0, 0, 0, 0) && no($module, 0, 0, 0)'",
    ),
    (
        "set the clock or the name of the system",
        "date -s @1 || hostname escaped",
    ),
    (
        "open the root directory of the system by its number",
        "perl -e 'my $open = `uname -m` =~ /aarch64/ ? 265 : 304; open(my $dir, \"<\", \"/tmp/ro/file\") or die; \
         my $handle = pack(\"LLLL\", 8, 1, 2, 0); my $fd = syscall($open, fileno($dir), $handle, 0200000); \
         exit 1 if $fd < 0; exit 0'",
    ),
    (
        "type into the terminal",
        "perl -MPOSIX -e 'open(my $m, \"+<\", \"/dev/ptmx\") or exit 0; my $n = pack(\"i\", 0); ioctl($m, 0x40045431, $n); \
         ioctl($m, 0x80045430, $n) or exit 0; POSIX::setsid() if fork == 0 or (wait, exit($? >> 8)); \
         open(my $s, \"+<\", \"/dev/pts/\" . unpack(\"i\", $n)) or exit 0; my $c = \"x\"; exit(ioctl($s, 0x5412, $c) ? 0 : 1)'",
    ),
];
/// Attempts that an ordinary user may make outside as well.
const OF_ROOT: &[(&str, &str)] = &[(
    "use message queues of the system",
    "perl -e 'exit(defined msgget($ENV{KEY}, 0) ? 0 : 1)'",
)];

#[test]
fn no_command_gets_out_of_its_namespaces() {
    for place in Place::of_each() {
        let programs = ["perl", "strace", "nsenter", "unshare"].map(require::program);
        if programs.contains(&None) {
            return;
        }
        let pattern = || fs::read("/proc/sys/kernel/core_pattern").unwrap();
        let null = || {
            let null = fs::metadata("/dev/null").unwrap();
            (null.mode(), null.uid(), null.mtime())
        };
        let before = (pattern(), null());
        fs::write(place.path("work/file"), "").unwrap();
        let disk = fs::metadata(place.path("work")).unwrap().dev();
        let disk = format!("{} {}", rustix::fs::major(disk), rustix::fs::minor(disk));
        let queue = MessageQueue::new();
        let mut attempts = ATTEMPTS.to_vec();
        if place.is_root {
            attempts.extend(OF_ROOT);
        }
        let mut got_out = Vec::new();
        for (name, script) in attempts {
            let script = format!(
                "mkdir -p /tmp/x; if ({script}) >/dev/null 2>&1; then echo yes; else echo no; fi; \
                 mount -t tmpfs tmpfs /tmp/x && echo done"
            );
            let options = ["../a.sqsh", "--bind", ".:/tmp/ro:ro"];
            let mut command = place.command(&options, &["sh", "-c", &script]);
            command
                .env("PATTERN", "/proc/sys/kernel/core_pattern")
                .env("OUTSIDE", std::process::id().to_string())
                .env("DISK", &disk)
                .env("KEY", queue.0.to_string());
            let ran = children::output(&mut command).unwrap();
            match String::from_utf8_lossy(&ran.stdout).as_ref() {
                "no\ndone\n" => {}
                other => got_out.push(format!(
                    "{name}: {other}{}",
                    String::from_utf8_lossy(&ran.stderr)
                )),
            }
        }
        let user = if place.is_root { "root" } else { "a user" };
        assert!(got_out.is_empty(), "as {user}: {got_out:#?}");
        assert_eq!((pattern(), null()), before);
        assert!(!place.path("work/new").exists());
        fs::remove_file(place.path("work/file")).unwrap();
    }
}

/// A message queue of root, outside the namespaces.
struct MessageQueue(u32);

impl MessageQueue {
    fn new() -> Self {
        let key = 0x4652_0000 + std::process::id();
        let made = format!("exit(defined msgget({key}, 01600) ? 0 : 1)");
        assert!(
            Command::new("perl")
                .args(["-e", &made])
                .status()
                .unwrap()
                .success()
        );
        Self(key)
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        let removed = format!("msgctl(msgget({}, 0), 0, 0)", self.0);
        let _status = Command::new("perl").args(["-e", &removed]).status();
    }
}

#[test]
fn root_does_not_see_what_is_mounted_below_sys() {
    let Some(place) = Place::new(true) else {
        return;
    };
    let looking = "ls /sys/firmware; umount -l /sys/firmware; ls /sys/firmware; test -e /sys/fs/cgroup; echo $?";
    let inner = place.command(&["../a.sqsh"], &["sh", "-c", looking]);
    let mounting =
        "mount -t tmpfs tmpfs /sys/firmware && echo secret > /sys/firmware/secret && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", mounting, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.current_dir(place.path("work")).stdin(Stdio::null());
    let ran = children::output(&mut command).unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0\n", "{ran:?}");
}

#[test]
fn a_command_may_mount_and_make_namespaces_of_its_own() {
    for place in Place::of_each() {
        let mut script = "set -e; mkdir /tmp/a /tmp/b; mount -t tmpfs tmpfs /tmp/a; mount --bind /data /tmp/b; cat /tmp/b/file; \
             umount /tmp/b; unshare -m true; unshare -Ur id -u; unshare -n true; unshare -Urpf true; \
             chmod 4755 /data/file; : > /dev/null; : > /dev/shm/file; echo made > /new; setpriv --bounding-set -all true; "
            .to_string();
        let expected = if place.is_root {
            script.push_str("chown 1000:1000 /new; setpriv --reuid=1000 --regid=1000 --clear-groups -- sh -c 'id -u; cat /new'");
            "of the image\n0\n1000\nmade\n"
        } else {
            script.push_str("unshare -pf --mount-proc sh -c 'echo $$'; cat /new");
            "of the image\n0\n1\nmade\n"
        };
        let told = place.sh(&["--overlay", "tmpfs", "../a.sqsh"], &script).ok();
        assert_eq!(told.text(), expected);
    }
}

#[test]
fn the_program_of_the_system_is_read_only_for_a_command_that_leads_to_it() {
    for place in Place::of_each() {
        // It waits for the image on its standard input.
        let mut command = place.command(&["../a.sqsh"], &["/itself", "ls", "-"]);
        let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = children::spawn(command).unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"x").unwrap();
        let mut flags = None;
        eventually("the command runs", || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            let is_meant = |process: &fs::DirEntry| {
                let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
                words == b"/itself\0ls\0-\0"
            };
            let found = processes.into_iter().find(is_meant);
            flags = found.map(|process| statvfs(process.path().join("exe")).unwrap().f_flag);
            flags.is_some()
        });
        assert!(flags.unwrap().contains(StatVfsMountFlags::RDONLY));
        drop(input);
        child.wait().unwrap();
    }
}

#[test]
fn set_user_id_files_have_no_effect_where_there_is_one_user() {
    for place in Place::of_each() {
        let script = "grep ' / / ' /proc/self/mountinfo | tail -n 1 | grep -c nosuid";
        let told = place.sh(&["--overlay", "tmpfs", "../a.sqsh"], script);
        let expected = if place.is_root { "0\n" } else { "1\n" };
        assert_eq!(told.text(), expected);
    }
}
