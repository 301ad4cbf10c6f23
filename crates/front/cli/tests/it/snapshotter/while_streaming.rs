//! Containers of images without tables of contents, which start while their layers are being fetched.

use std::fs;
use std::process::Command;
use std::sync::Mutex;

use forerun::cache::Digest;
use forerun_testkit_servers::fault_proxy::{Fault, Link};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::node::{Node, layers_sent_twice};
use crate::restarting::eventually;

/// Makes two layers. The lower one begins with all that a container needs to start, and ends with a file that takes long.
/// The zeros between them end the first span of gzip, and make more of a frame of Zstandard than one block may be.
const LAYERS: &str = r#"
set -e
mkdir -p s0/etc s0/tmp s0/proc s0/sys s0/dev s0/run s0/u s0/z s1/app
cp -a l0/bin s0; head -c 17000000 /dev/zero > s0/u/zeros
echo root:x:0:0::/:/bin/sh > s0/etc/passwd; echo root:x:0: > s0/etc/group; chmod 1777 s0/tmp
head -c 9000000 /dev/urandom > s0/z/big; echo small > s1/app/small
for layer in s0 s1; do
    tar --format=posix --pax-option=delete=atime,delete=ctime --sort=name -C $layer -cf $layer.tar .
done
gzip -1 -k s0.tar; zstd -1 -q s0.tar
"#;

/// So slow that the lower layer takes 20 seconds.
const SLOW: u64 = 500_000;

/// The command of the containers: it prints what comes first, reads what comes last, and looks for a name that is known to
/// be missing when all layers are here and verified.
const COMMAND: &str =
    "exec > /tmp/text 2> /tmp/errors; cat /app/small; md5sum /z/big; cat /absent; echo end";

/// A node, and an image in its registry.
struct Streamed {
    node: Node,
    image: String,
    /// The digest of the lower layer, and its length.
    lower: (String, u64),
}

impl Streamed {
    /// Returns nothing where a program is missing.
    fn start() -> Option<Self> {
        let node = Node::start_with(&["--while-streaming"])?;
        let made = Command::new("sh")
            .args(["-c", LAYERS])
            .current_dir(node.path("."))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut it = Self {
            node,
            image: String::new(),
            lower: (String::new(), 0),
        };
        it.push("gzip", "s0.tar.gz", "+gzip");
        Some(it)
    }

    /// Stores the image with its lower layer in this form.
    fn push(&mut self, tag: &str, lower: &str, ending: &str) {
        let kind = |ending| format!("application/vnd.oci.image.layer.v1.tar{ending}");
        self.image = self.node.push(
            tag,
            &[
                json!({"file": lower, "mediaType": kind(ending)}),
                json!({"file": "s1.tar", "mediaType": kind("")}),
            ],
        );
        let bytes = fs::read(self.node.path(lower)).unwrap();
        self.lower = (Digest::of(&bytes).to_string(), bytes.len() as u64);
    }

    fn path(&self) -> String {
        format!("/v2/app/blobs/{}", self.lower.0)
    }

    /// Returns how many bytes of the lower layer were sent.
    fn sent(&self) -> u64 {
        let path = self.path();
        self.node.proxy.log().of(&path).map(|it| it.sent).sum()
    }

    fn set_speed(&self, bytes_per_second: Option<u64>) {
        self.node.proxy.set_link(Link {
            bytes_per_second,
            ..Link::default()
        });
    }

    /// Has these faults in the answers for the second half of the lower layer, one after the other.
    fn spoil(&self, faults: impl IntoIterator<Item = Fault, IntoIter: Send + 'static>) {
        let (path, half) = (self.path(), self.lower.1 / 2);
        let left = Mutex::new(faults.into_iter());
        self.node.proxy.faults(move |request| {
            let is_late = request.range.is_some_and(|(from, _)| from > half);
            match request.path == path && is_late {
                true => left.lock().unwrap().next(),
                false => None,
            }
        });
    }

    /// Pulls the image and starts a container, whose first output comes before the lower layer has.
    #[track_caller]
    fn start_container(&self, name: &str) -> String {
        let name = Node::container(name);
        self.set_speed(Some(SLOW));
        self.node
            .pull("ctr-remote", &["images", "rpull"], &self.image);
        self.run(&name);
        eventually("the first output", || self.printed().starts_with("small\n"));
        assert!(self.sent() < self.lower.1, "{name}: {}", self.sent());
        name
    }

    #[track_caller]
    fn run(&self, name: &str) {
        let [option, mount] = &self.node.printed();
        let mount = mount.replace("dst=/printed", "dst=/tmp");
        let run = [
            "run",
            "--detach",
            "--snapshotter",
            "forerun",
            option,
            &mount,
        ];
        let command = [&self.image, name, "sh", "-c", COMMAND];
        self.node.ctr("ctr", &[&run[..], &command].concat());
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.node.path("printed/text")).unwrap_or_default()
    }

    /// Waits for the end of a container, and returns what it has printed.
    #[track_caller]
    fn wait(&self) -> String {
        eventually("the last output", || self.printed().ends_with("end\n"));
        self.node.take_printed()
    }

    #[track_caller]
    fn remove(&self, name: &str) {
        self.node.ctr("ctr", &["tasks", "rm", "--force", name]);
        self.node.ctr("ctr", &["containers", "rm", name]);
    }

    /// Waits for the end of a container, removes it, and returns what it has printed.
    #[track_caller]
    fn end(&self, name: &str) -> String {
        let printed = self.wait();
        self.remove(name);
        printed
    }

    /// Returns what a container prints that has read what it should.
    fn expected(&self) -> String {
        let output = Command::new("md5sum")
            .arg("z/big")
            .current_dir(self.node.path("s0"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        format!("small\n{}end\n", text.replace("z/big", "/z/big"))
    }

    /// Returns whether a text says that the lower layer was found to be wrong.
    fn is_blamed(&self, log: &str) -> bool {
        let is_it = |line: &str| line.contains(&self.lower.0) && line.contains("not served from");
        log.lines().any(is_it)
    }
}

#[test]
fn containers_of_plain_images_print_before_their_layers_have_come() {
    let Some(mut it) = Streamed::start() else {
        return;
    };
    for (tag, lower, ending) in [
        ("gzip", "s0.tar.gz", "+gzip"),
        ("zstd", "s0.tar.zst", "+zstd"),
        ("tar", "s0.tar", ""),
    ] {
        it.push(tag, lower, ending);
        it.node.proxy.forget();
        let name = it.start_container(tag);
        it.set_speed(None);
        assert_eq!(it.end(&name), it.expected(), "{tag}");
        assert_eq!(layers_sent_twice(&it.node.proxy.log()), 0, "{tag}");
        // All of it is here, and was verified: another container needs no registry.
        let sent = it.sent();
        it.run(&name);
        assert_eq!(it.end(&name), it.expected(), "{tag}");
        assert_eq!(it.sent(), sent, "{tag}");
        it.node.remove_all();
    }
}

#[test]
fn a_layer_that_turns_out_to_be_another_one_ends_its_containers_and_is_not_kept() {
    let Some(it) = Streamed::start() else {
        return;
    };
    it.spoil(std::iter::repeat(Fault::WrongBytes { offset: 9, len: 1 }));
    let name = it.start_container("altered");
    it.set_speed(None);
    // What was read before the end of the layer may have been wrong.
    assert_ne!(it.wait(), it.expected());
    let errors = fs::read_to_string(it.node.path("printed/errors")).unwrap();
    // overlayfs says so of a name that it had found before.
    let is_refused = |error| errors.contains(error);
    assert!(
        is_refused("Input/output error") || is_refused("Stale file handle"),
        "{errors}"
    );
    let log = fs::read_dir(it.node.path("root/logs")).unwrap().next();
    let log = fs::read_to_string(log.unwrap().unwrap().path()).unwrap();
    assert!(it.is_blamed(&log), "{log}");
    // The next container gets the right bytes, by a mount of its own.
    it.node.proxy.clear_faults();
    let next = Node::container("next");
    it.run(&next);
    assert_eq!(it.end(&next), it.expected());
    it.remove(&name);
    it.node.remove_all();
    let log = fs::read_to_string(it.node.path("snapshotter.log")).unwrap();
    assert!(it.is_blamed(&log), "{log}");
}

#[test]
fn containers_whose_layers_still_come_outlive_resets_and_kills() {
    let Some(mut it) = Streamed::start() else {
        return;
    };
    it.spoil([
        Fault::ResetAt { after: 5000 },
        Fault::Truncate { after: 70_000 },
    ]);
    let name = it.start_container("killed");
    it.node.kill_snapshotter();
    kill_process(it.node.server(), Signal::KILL).unwrap();
    it.node.start_snapshotter(&["--while-streaming"]);
    assert!(it.sent() < it.lower.1, "{}", it.sent());
    it.set_speed(None);
    assert_eq!(it.end(&name), it.expected());
    it.node.wait_for_containerd();
    it.node.remove_all();
}
