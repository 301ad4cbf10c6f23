//! Containers of containerd and runc on the snapshotter.

mod node;

use std::path::{Path, PathBuf};
use std::process::Command;

use forerun::unstable::cache::Digest;
use forerun_testkit::indexed::{estargz, zstd_chunked};
use rustix::process::{Pid, Signal, kill_process};

use node::{IndexedBy, Node, PRINTS, layers_sent_twice};

fn len_of(files: &[PathBuf]) -> u64 {
    files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

#[test]
fn containers_run_before_their_layers_are_here_and_nothing_is_left_of_them() {
    let Some(node) = Node::start() else {
        return;
    };
    let plain = node.push_plain();
    node.pull("ctr", &["images", "pull"], &plain);
    assert_eq!(node.run(&plain, "plain"), PRINTS);
    assert_eq!(node.entries("root/chains"), 0);
    for (tag, make) in [
        ("estargz", estargz as fn(&_, &_) -> _),
        ("chunked", zstd_chunked),
    ] {
        let image = node.push_lazy(tag, make);
        let layers = ["l0", "l1"].map(|layer| node.path(&format!("{layer}.{tag}")));
        node.proxy.forget();
        node.pull("ctr-remote", &["images", "rpull"], &image);
        assert_eq!(node.run(&image, tag), PRINTS);
        let (sent, of) = (node.proxy.log().sent(), len_of(&layers));
        assert!(sent < of / 3, "{tag}: {sent} of {of}");
        assert_eq!(layers_sent_twice(&node.proxy.log()), 0, "{tag}");
    }
    node.remove_all();
}

/// Pulls and runs an image with indexes, of which less than half must be fetched, and removes it.
#[track_caller]
fn run_by_indexes(node: &Node, tag: &str, by: IndexedBy) {
    let (image, bytes) = node.push_indexed(tag, by);
    node.proxy.forget();
    node.pull("ctr-remote", &["images", "rpull"], &image);
    assert_eq!(node.run(&image, tag), PRINTS);
    let sent = node.proxy.log().sent();
    assert!(sent < bytes / 2, "{tag}: {sent} of {bytes}");
    assert_eq!(layers_sent_twice(&node.proxy.log()), 0, "{tag}");
    // Tables are separate blobs, and are removed with the layers.
    node.remove_all();
}

#[test]
fn indexes_that_refer_to_an_image_count_where_the_snapshotter_is_told_so() {
    let Some(mut node) = Node::start() else {
        return;
    };
    // An index that the manifest names is used without an option.
    run_by_indexes(&node, "named", IndexedBy::SociV2);
    node.proxy.forget();
    // An index that only refers to the manifest needs the option, so the image is unpacked.
    let (image, bytes) = node.push_indexed("refused", IndexedBy::SociV1);
    node.pull("ctr-remote", &["images", "rpull"], &image);
    assert_eq!(node.run(&image, "refused"), PRINTS);
    assert_eq!(node.entries("root/chains"), 0);
    assert!(node.proxy.log().sent() >= bytes);
    node.remove_all();
    node.kill_snapshotter();
    node.start_snapshotter(&["--referrers"]);
    node.wait_for_containerd();
    run_by_indexes(&node, "soci", IndexedBy::SociV1);
    run_by_indexes(&node, "indexed", IndexedBy::Forerun);
}

#[test]
fn containers_read_on_when_the_snapshotter_and_the_server_of_their_mount_are_killed() {
    let Some(mut node) = Node::start() else {
        return;
    };
    let image = node.push_lazy("estargz", estargz);
    node.pull("ctr-remote", &["images", "rpull"], &image);
    let name = Node::container("killed");
    let [option, mount] = &node.printed();
    let run = ["run", "--detach", "--snapshotter", "forerun", option, mount];
    let command = [&image, &name, "sleep", "1000"];
    node.ctr("ctr", &[&run[..], &command].concat());
    let read = |node: &Node, file: &str| {
        let exec = ["tasks", "exec", "--exec-id", "read", &name, "sh", "-c"];
        let command = format!("md5sum {file} > /printed/text");
        node.ctr("ctr", &[&exec[..], &[&command]].concat());
        node.take_printed().split(' ').next().unwrap().to_owned()
    };
    let sum_of = |path: &Path| {
        let output = Command::new("md5sum").arg(path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split(' ').next().unwrap().to_owned()
    };
    node.kill_snapshotter();
    kill_process(node.server(), Signal::KILL).unwrap();
    assert_eq!(read(&node, "/data/big"), sum_of(&node.path("l1/data/big")));
    node.start_snapshotter(&[]);
    kill_process(node.server(), Signal::KILL).unwrap();
    assert_eq!(
        read(&node, "/bin/busybox"),
        sum_of(&node.path("l0/bin/busybox"))
    );
    node.wait_for_containerd();
    // The new snapshotter knows the snapshots of the old one.
    let listed = node.ctr("ctr", &["snapshots", "--snapshotter", "forerun", "ls"]);
    assert!(listed.contains(&name), "{listed}");
    assert_eq!(node.run(&image, "second"), PRINTS);
    // If the supervisor of a mount is killed too, later containers notice nothing.
    let mounts = node.status();
    for process in ["supervisor", "pid"] {
        let pid = mounts[0][process].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
    assert_eq!(node.run(&image, "third"), PRINTS);
    node.ctr("ctr", &["tasks", "rm", "--force", &name]);
    node.ctr("ctr", &["containers", "rm", &name]);
    node.remove_all();
}

#[test]
fn annotations_of_an_image_do_not_lead_to_another_one() {
    let Some(mut node) = Node::start() else {
        return;
    };
    std::fs::create_dir(node.path("p")).unwrap();
    std::fs::write(node.path("p/SECRET"), "private").unwrap();
    let archive = Command::new("tar")
        .args(["-C", "p", "-cf", "p.tar", "."])
        .current_dir(node.path("."))
        .status();
    assert!(archive.unwrap().success());
    let private = node.push("private", &[node.lazy_layer("p", "private", estargz)]);
    let digest = Digest::of(&std::fs::read(node.path("p.private")).unwrap()).to_string();
    let families = [
        ("cri.image-ref", "cri.layer-digest"),
        ("remote/stargz.reference", "remote/stargz.digest"),
    ];
    for (tag, (reference, layer)) in ["a", "b"].into_iter().zip(families) {
        let mut layers = ["l0", "l1"].map(|name| node.lazy_layer(name, tag, estargz));
        for (name, value) in [(reference, &private), (layer, &digest)] {
            let name = format!("containerd.io/snapshot/{name}");
            layers[0]["annotations"][name] = value.as_str().into();
        }
        let image = node.push(tag, &layers);
        let asked = |node: &Node| {
            let log = node.proxy.log();
            let mut entries = log.entries.iter();
            entries.any(|entry| entry.path.ends_with("/manifests/private"))
        };
        // The client's labels are of one kind, and the author's of the other.
        node.proxy.forget();
        node.pull("ctr-remote", &["images", "rpull"], &image);
        assert_eq!(node.run(&image, tag), PRINTS);
        assert!(!asked(&node), "{tag}");
        node.remove_all();
        // A client without labels keeps the author's.
        node.pull("ctr", &["images", "pull"], &image);
        assert_eq!(node.run(&image, tag), PRINTS);
        node.remove_all();
        // If the operator chooses which labels count, the image is mounted as usual.
        node.kill_snapshotter();
        node.start_snapshotter(&["--labels", "stargz"]);
        node.wait_for_containerd();
        node.proxy.forget();
        node.pull("ctr-remote", &["images", "rpull"], &image);
        let layers = ["l0", "l1"].map(|name| node.path(&format!("{name}.{tag}")));
        assert!(node.proxy.log().sent() < len_of(&layers) / 3, "{tag}");
        assert_eq!(node.run(&image, tag), PRINTS);
        assert!(!asked(&node), "{tag}");
        node.remove_all();
        node.kill_snapshotter();
        node.start_snapshotter(&[]);
        node.wait_for_containerd();
    }
}
