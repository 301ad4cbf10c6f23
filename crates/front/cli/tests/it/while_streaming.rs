//! Container images that are used while their layers are being fetched.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use forerun_testkit::require;
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy, Link};
use forerun_testkit_servers::{Auth, DockerRegistry};
use rustix::process::Signal;

use crate::common::place::{Mounted, Place};

/// Makes an image of three layers, and what umoci unpacks of it. The lowest is large, and has a file that a later entry of the
/// same archive replaces. The others hide, replace and link to files of it.
const LAYERS: &str = r#"
set -e
mkdir -p l0/a l0/etc l0/z l1/etc l1/a l1/z l2
echo first > l0/a/first; seq 1 400000 > l0/a/text; echo old > l0/a/twice; echo gone > l0/a/gone
head -c 9000000 /dev/urandom > l0/m; echo root > l0/etc/passwd; ln -s passwd l0/etc/link; ln l0/a/first l0/a/hard
echo last > l0/z/last; echo below > l0/z/below
: > l1/a/.wh.gone; : > l1/z/.wh..wh..opq; echo app > l1/etc/passwd; echo new > l1/z/new
echo small > l2/small
umoci init --layout layout; umoci new --image layout:v
for layer in l0 l1 l2; do
    tar --format=posix --pax-option=delete=atime,delete=ctime --mtime=@1700000000 --sort=name -C $layer -cf $layer.tar .
done
echo renewed > l0/a/twice
tar --format=posix --mtime=@1700000001 -C l0 -rf l0.tar ./a/twice
python3 - <<'END'
import tarfile
with tarfile.open('l1.tar', 'a') as archive:
    link = tarfile.TarInfo('a/linked'); link.type = tarfile.LNKTYPE; link.linkname = 'a/text'; link.mtime = 1700000000
    archive.addfile(link)
END
for layer in l0 l1 l2; do umoci raw add-layer --image layout:v $layer.tar; done
umoci unpack --image layout:v unpacked
skopeo --insecure-policy copy -q --dest-tls-verify=false oci:layout:v docker://$1/app:1
"#;

/// As slow as it takes to see that a file comes before the layer.
const SLOW: u64 = 3 << 20;

struct Stored {
    place: Place,
    proxy: FaultProxy,
    name: String,
    /// The path of the lowest layer at the registry, and its length.
    lowest: (String, u64),
    _registry: DockerRegistry,
}

impl Stored {
    /// Returns nothing where a program is missing.
    fn new() -> Option<Self> {
        let registry = DockerRegistry::start(Auth::None)?;
        let programs = ["python3", "umoci", "skopeo", "tar"].map(require::program);
        if programs.contains(&None) || !require::root() || !require::fuse() {
            return None;
        }
        let place = Place::new();
        let made = Command::new("sh")
            .args(["-c", LAYERS, "sh", &registry.authority()])
            .current_dir(place.path("."))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let proxy = FaultProxy::start(&registry.authority());
        let name = format!("oci://{}/app:1", proxy.authority());
        let blobs = fs::read_dir(place.path("layout/blobs/sha256")).unwrap();
        let blobs = blobs.map(|blob| blob.unwrap());
        let largest = blobs.max_by_key(|blob| blob.metadata().unwrap().len());
        let largest = largest.unwrap();
        let digest = largest.file_name().into_string().unwrap();
        let path = format!("/v2/app/blobs/sha256:{digest}");
        let lowest = (path, largest.metadata().unwrap().len());
        Some(Self {
            place,
            proxy,
            name,
            lowest,
            _registry: registry,
        })
    }

    fn slow(&self) {
        self.proxy.set_link(Link {
            bytes_per_second: Some(SLOW),
            ..Link::default()
        });
    }

    /// Mounts the image while it comes, and returns when its topmost layer is here.
    fn mount(&self, args: &[&str]) -> Mounted<'_> {
        self.place
            .mount(&[&["--while-streaming"], args].concat(), &self.name)
    }

    fn read(&self, path: &str) -> std::io::Result<String> {
        fs::read_to_string(self.place.path("mnt").join(path))
    }

    /// Returns how many bytes of the lowest layer were sent.
    fn sent(&self) -> u64 {
        self.proxy.log().of(&self.lowest.0).map(|it| it.sent).sum()
    }

    /// Asserts that the mount has what umoci unpacks.
    #[track_caller]
    fn assert_same(&self) {
        let same = self.place.run(&["diff", "mnt", "unpacked/rootfs"]);
        let log = fs::read_to_string(self.place.path("log")).unwrap_or_default();
        assert_eq!(
            (same.code, same.text()),
            (Some(0), ""),
            "{}{log}",
            same.stderr
        );
        let inode = |path: &str| inode(&self.place.path("mnt").join(path));
        assert_eq!(inode("a/linked"), inode("a/text"));
    }
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

#[test]
fn files_are_read_before_their_layer_has_ended_and_all_is_as_umoci_unpacks_it() {
    let Some(stored) = Stored::new() else {
        return;
    };
    stored.slow();
    let cat = ["cat", "--while-streaming", &stored.name, "/a/first"];
    assert_eq!(stored.place.run(&cat).ok().text(), "first\n");
    assert!(stored.sent() < stored.lowest.1, "{}", stored.sent());
    let _there_may_be_none = fs::remove_dir_all(stored.place.path("cache"));
    stored.proxy.forget();
    let mounted = stored.mount(&[]);
    assert_eq!(stored.read("small").unwrap(), "small\n");
    // An upper layer that is whole hides and replaces what the lowest has.
    assert_eq!(stored.read("etc/passwd").unwrap(), "app\n");
    assert_eq!(stored.read("z/new").unwrap(), "new\n");
    assert!(stored.read("a/gone").is_err());
    assert!(stored.read("z/last").is_err());
    assert_eq!(stored.read("a/first").unwrap(), "first\n");
    assert_eq!(stored.read("a/twice").unwrap(), "old\n");
    let seen = ["a", "a/first", "a/text", "etc", "z"].map(|path| {
        let path = stored.place.path("mnt").join(path);
        (inode(&path), path)
    });
    assert!(stored.sent() < stored.lowest.1, "{}", stored.sent());
    stored.proxy.set_link(Link::default());
    // These take the end of the layer.
    assert_eq!(
        stored.read("m").err().map(|it| it.kind()),
        Some(std::io::ErrorKind::InvalidData)
    );
    stored.assert_same();
    assert_eq!(stored.read("a/twice").unwrap(), "renewed\n");
    for (before, path) in seen {
        assert_eq!(inode(&path), before, "{path:?}");
    }
    assert_eq!(stored.proxy.log().sent_twice(&stored.lowest.0), 0);
    // A server that takes over has the same numbers, and the index.
    mounted.signal(Signal::TERM);
    drop(mounted);
    let mounted = stored.mount(&[]);
    stored.assert_same();
    mounted.end();
    assert_eq!(stored.proxy.log().sent_twice(&stored.lowest.0), 0);
}

#[test]
fn a_layer_that_turns_out_to_be_another_one_ends_the_image() {
    let Some(stored) = Stored::new() else {
        return;
    };
    stored.slow();
    let (path, half) = (stored.lowest.0.clone(), stored.lowest.1 / 2);
    stored.proxy.faults(move |request| {
        let is_late = request.range.is_some_and(|(from, _)| from > half);
        let wrong = Fault::WrongBytes { offset: 9, len: 1 };
        (request.path == path && is_late).then_some(wrong)
    });
    let mut mounted = stored.mount(&[]);
    assert_eq!(stored.read("a/first").unwrap(), "first\n");
    stored.proxy.set_link(Link::default());
    // What waits for the end, and what comes after it.
    assert!(
        stored
            .read("absent")
            .is_err_and(|it| it.raw_os_error() == Some(5))
    );
    for path in ["a/text", "etc/passwd", "small"] {
        let read = stored.read(path);
        assert_eq!(
            read.err().and_then(|it| it.raw_os_error()),
            Some(5),
            "{path}"
        );
    }
    let digest = stored.lowest.0.rsplit(':').next().unwrap();
    let log = stored.place.path("log");
    mounted.wait_for("the message", || {
        let log = fs::read_to_string(&log).unwrap();
        let lines = log.lines();
        lines
            .into_iter()
            .any(|line| line.contains(digest) && line.contains("not served from now on"))
    });
    mounted.end();
    // Nothing of it is kept: the next one gets the right bytes.
    stored.proxy.clear_faults();
    let mounted = stored.mount(&[]);
    stored.assert_same();
    mounted.end();
}

#[test]
fn connections_that_are_reset_and_cut_are_made_again() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (path, half) = (stored.lowest.0.clone(), stored.lowest.1 / 2);
    let faults = [
        Fault::ResetAt { after: 5000 },
        Fault::Truncate { after: 70_000 },
    ];
    let left = Mutex::new(faults.into_iter());
    stored.proxy.faults(move |request| {
        let is_late = request.range.is_some_and(|(from, _)| from > half);
        match request.path == path && is_late {
            true => left.lock().unwrap().next(),
            false => None,
        }
    });
    let mounted = stored.mount(&[]);
    stored.assert_same();
    mounted.end();
}

#[test]
fn a_mount_whose_layers_still_come_ends_at_once() {
    let Some(stored) = Stored::new() else {
        return;
    };
    stored.proxy.set_link(Link {
        bytes_per_second: Some(300_000),
        ..Link::default()
    });
    let mounted = stored.mount(&[]);
    // A reader waits for the end of the layer.
    let mut waiting = Command::new("ls");
    waiting.arg(stored.place.path("mnt/absent"));
    let mut waiting = waiting.stderr(std::process::Stdio::null()).spawn().unwrap();
    mounted.signal(Signal::KILL);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    drop(mounted);
    assert!(stored.sent() < stored.lowest.1);
    stored.proxy.set_link(Link::default());
    let mounted = stored.mount(&[]);
    stored.assert_same();
    mounted.end();
    let refused = stored.place.run(&[
        "ls",
        "--while-streaming",
        "--require-verified",
        &stored.name,
    ]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}
