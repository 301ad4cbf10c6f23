//! Control groups as directories of plain files, with the lines of /proc that lead to them.

use super::*;
use crate::mount_table::parse_mounts;

const MIB: u64 = 1 << 20;
/// The value in version 1 that means no limit.
const NONE: &str = "9223372036854771712";
const PID: u32 = 4711;

/// A directory with mounted hierarchies of control groups.
struct Machine {
    dir: tempfile::TempDir,
    mounts: String,
}

impl Machine {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            mounts: "22 1 0:20 / /proc rw - proc proc rw\n".to_string(),
        }
    }

    /// Mounts the group `root` of a hierarchy at `at`.
    fn mount(mut self, at: &str, root: &str, filesystem: &str) -> Self {
        let dir = self.dir.path().join(at);
        self.mounts += &format!(
            "30 22 0:26 {root} {} ro,nosuid shared:9 - {filesystem}\n",
            dir.display()
        );
        self
    }

    fn version_2(self) -> Self {
        self.mount(
            "",
            "/",
            "cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot",
        )
    }

    fn version_1(self) -> Self {
        self.mount("memory", "/", "cgroup cgroup rw,memory")
    }

    /// Creates a file of a group, with the newline that the kernel appends.
    fn file(self, path: &str, text: &str) -> Self {
        let file = self.dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
        self
    }

    /// Checks the limit, in MiB, and its file, for a process with these lines in /proc/PID/cgroup.
    fn check(&self, groups: &str, expected: Option<(u64, &str)>) {
        let mounts = parse_mounts(self.mounts.as_bytes());
        let expected = expected.map(|(mib, file)| (mib * MIB, self.dir.path().join(file)));
        assert_eq!(limit_of(groups, &mounts, PID), expected, "{groups}");
    }
}

fn mib(count: u64) -> String {
    (count * MIB).to_string()
}

#[test]
fn version_2_takes_the_least_of_all_ancestors() {
    let machine = Machine::new()
        .version_2()
        .file("app/memory.max", &mib(512))
        .file("app/memory.high", "max")
        .file("app/web/memory.max", "max")
        .file("app/web/memory.high", "max")
        .file("app/web/one/memory.max", &mib(256))
        .file("app/web/one/memory.high", &mib(200))
        .file("app/web/two/memory.max", &mib(1024))
        .file("app/web/two/memory.high", "max")
        .file("other/memory.max", "max");
    machine.check("0::/app/web/one\n", Some((200, "app/web/one/memory.high")));
    machine.check("0::/app/web/two\n", Some((512, "app/memory.max")));
    machine.check("0::/app/web\n", Some((512, "app/memory.max")));
    machine.check("0::/other\n", None);
    machine.check("0::/\n", None);
    // The group was removed; its ancestors still count.
    machine.check("0::/app/gone (deleted)\n", Some((512, "app/memory.max")));
}

#[test]
fn version_1_takes_the_least_of_all_ancestors() {
    let machine = Machine::new()
        .version_1()
        .file("memory/memory.limit_in_bytes", NONE)
        .file("memory/a/memory.limit_in_bytes", &mib(128))
        .file("memory/a/b/memory.limit_in_bytes", NONE)
        .file("memory/a/b/memory.use_hierarchy", "1")
        .file("memory/c/memory.limit_in_bytes", &mib(64))
        .file("memory/c/d/memory.limit_in_bytes", &mib(96))
        .file("memory/c/d/memory.use_hierarchy", "0");
    let of = |group| format!("7:cpu,cpuacct:/x\n4:memory:{group}\n1:name=systemd:/\n");
    machine.check(&of("/a/b"), Some((128, "memory/a/memory.limit_in_bytes")));
    machine.check(&of("/a"), Some((128, "memory/a/memory.limit_in_bytes")));
    // Before Linux 5.11 a group may be outside the hierarchy, so that the limits of its ancestors
    // do not apply to it.
    machine.check(&of("/c/d"), Some((96, "memory/c/d/memory.limit_in_bytes")));
    // Only groups with the memory controller count.
    machine.check("7:cpu,cpuacct:/a\n1:name=memory:/a\n", None);
}

#[test]
fn version_1_knows_of_ancestors_outside_the_container() {
    let machine = Machine::new()
        .mount("memory", "/docker/f00", "cgroup cgroup rw,memory")
        .file("memory/memory.limit_in_bytes", NONE)
        .file(
            "memory/memory.stat",
            "cache 4096\nhierarchical_memory_limit 134217728\nhierarchical_memsw_limit 268435456",
        );
    let expected = Some((128, "memory/memory.stat"));
    // With the host's path, with a path of its own namespace, and below its own group.
    machine.check("4:memory:/docker/f00\n", expected);
    machine.check("4:memory:/\n", expected);
    let machine = machine
        .file("memory/sub/memory.limit_in_bytes", &mib(32))
        .file(
            "memory/sub/memory.stat",
            "hierarchical_memory_limit 33554432",
        );
    let expected = Some((32, "memory/sub/memory.limit_in_bytes"));
    machine.check("4:memory:/docker/f00/sub\n", expected);
}

#[test]
fn a_namespace_with_a_mount_of_its_own() {
    let machine = Machine::new()
        .version_2()
        .file("memory.max", &mib(100))
        .file("sub/memory.max", "max");
    machine.check("0::/\n", Some((100, "memory.max")));
    machine.check("0::/sub\n", Some((100, "memory.max")));
    // A process that was moved out of the namespace in which it was started.
    machine.check("0::/../elsewhere\n", Some((100, "memory.max")));
}

#[test]
fn a_namespace_with_the_mount_of_its_parent() {
    let machine = Machine::new()
        .mount("", "/../..", "cgroup2 cgroup2 rw")
        .file("memory.max", &mib(900))
        .file("pods/memory.max", &mib(800))
        .file("pods/cgroup.procs", "1\n47")
        .file("pods/one/memory.max", &mib(100))
        .file("pods/one/cgroup.procs", "471\n47110")
        .file("pods/two/memory.max", &mib(200))
        .file("pods/two/cgroup.procs", "17\n4711\n4712");
    machine.check("0::/\n", Some((200, "pods/two/memory.max")));
    machine.check("0::/../../pods/one\n", Some((100, "pods/one/memory.max")));
    let machine = machine.file("pods/two/cgroup.procs", "17");
    machine.check("0::/\n", Some((900, "memory.max")));
}

#[test]
fn both_versions_at_once() {
    let machine = Machine::new()
        .mount("unified", "/", "cgroup2 cgroup2 rw")
        .mount("cpu", "/", "cgroup cgroup rw,cpu")
        .version_1()
        .file("unified/app/cgroup.procs", "4711")
        .file("memory/app/memory.limit_in_bytes", &mib(128))
        .file("cpu/app/memory.limit_in_bytes", &mib(1));
    let groups = "4:memory:/app\n1:cpu:/app\n0::/app\n";
    machine.check(groups, Some((128, "memory/app/memory.limit_in_bytes")));
    let machine = machine.file("unified/app/memory.max", &mib(64));
    machine.check(groups, Some((64, "unified/app/memory.max")));
}

#[test]
fn what_cannot_be_read_is_no_limit() {
    let machine = Machine::new()
        .version_2()
        .file("app/memory.max", "much")
        .file("app/memory.high", "")
        .file("neg/memory.max", "-1")
        // A directory in place of the file makes reading fail, as without permission.
        .file("dir/memory.max/entry", "");
    for groups in [
        "",
        "0",
        "0::",
        "0:/app",
        "x:memory",
        "0::/app\n",
        "0::/neg\n",
        "0::/dir\n",
        "0::/none\n",
    ] {
        machine.check(groups, None);
    }
    assert_eq!(limit_of("0::/\n4:memory:/\n", &[], PID), None);
}
