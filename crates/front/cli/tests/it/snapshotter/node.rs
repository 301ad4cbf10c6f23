//! A containerd with a registry, and a snapshotter between them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};

use forerun_testkit::indexed::{IndexedArchive, IndexedOptions};
use forerun_testkit::ztoc::SociLayer;
use forerun_testkit::{TempDir, require, temp_dir};
use forerun_testkit_servers::fault_proxy::{Exchange, FaultProxy, Log};
use forerun_testkit_servers::{Auth, DockerRegistry, containerd_config};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::common::{command, ran};
use crate::restarting::eventually;

/// Makes two layers: a system with one program, and files of which a container reads some.
const LAYERS: &str = r#"
set -e
mkdir -p l0/bin l0/etc l0/tmp l0/proc l0/sys l0/dev l1/etc l1/data
cp "$0" l0/bin/busybox
for name in sh cat ls sleep md5sum stat; do ln -s busybox l0/bin/$name; done
echo root:x:0:0::/:/bin/sh > l0/etc/passwd; echo gone > l0/etc/gone; chmod 1777 l0/tmp
: > l1/etc/.wh.gone; echo app > l1/etc/app
head -c 8000000 /dev/urandom > l1/data/big; echo small > l1/data/small
for layer in l0 l1; do
    tar --format=posix --pax-option=delete=atime,delete=ctime --sort=name --hard-dereference -C $layer -cf $layer.tar .
    gzip -1 -k $layer.tar
done
"#;

/// Stores the files of `layers.json` as the layers of an image that containerd can run.
const PUSH: &str = r#"
import gzip, hashlib, json, subprocess, sys, urllib.request
base, tag = sys.argv[1], sys.argv[2]
def send(method, url, data=None, kind='application/octet-stream'):
    request = urllib.request.Request(url, data=data, method=method, headers={'Content-Type': kind})
    return urllib.request.urlopen(request).headers
def digest(data):
    return 'sha256:' + hashlib.sha256(data).hexdigest()
def blob(data):
    place = send('POST', base + '/blobs/uploads/')['Location']
    send('PUT', place + ('&' if '?' in place else '?') + 'digest=' + digest(data), data)
    return {'digest': digest(data), 'size': len(data)}
def decoded(data):
    if data[:2] == b'\x1f\x8b':
        return gzip.decompress(data)
    if data[:4] != b'\x28\xb5\x2f\xfd':
        return data
    return subprocess.run(['zstd', '-dcq'], input=data, stdout=subprocess.PIPE, check=True).stdout
layers, ids = json.load(open('layers.json')), []
for layer in layers:
    data = open(layer.pop('file'), 'rb').read()
    ids.append(digest(decoded(data)))
    layer.update(blob(data))
config = {'architecture': 'amd64', 'os': 'linux', 'config': {'Env': ['PATH=/bin']}, 'rootfs': {'type': 'layers', 'diff_ids': ids}}
config = {'mediaType': 'application/vnd.oci.image.config.v1+json', **blob(json.dumps(config).encode())}
kind = 'application/vnd.oci.image.manifest.v1+json'
manifest = {'schemaVersion': 2, 'mediaType': kind, 'config': config, 'layers': layers}
send('PUT', base + '/manifests/' + tag, json.dumps(manifest).encode(), kind)
"#;

/// Stores a SOCI index of the tables `0.ztoc` and so on: beside an image (`v1`, as `soci push`
/// does), or named by the manifest (`v2`, as `soci convert` does).
const PUSH_SOCI: &str = r#"
import hashlib, json, sys, urllib.request
base, tag, version = sys.argv[1], sys.argv[2], sys.argv[3]
KIND, OCI = 'application/vnd.amazon.soci.index.' + version + '+json', 'application/vnd.oci.image.'
def send(method, url, data=None, kind='application/octet-stream'):
    headers = {'Content-Type': kind, 'Accept': OCI + 'manifest.v1+json'}
    return urllib.request.urlopen(urllib.request.Request(url, data=data, method=method, headers=headers))
def digest(data):
    return 'sha256:' + hashlib.sha256(data).hexdigest()
def blob(data):
    place = send('POST', base + '/blobs/uploads/').headers['Location']
    send('PUT', place + ('&' if '?' in place else '?') + 'digest=' + digest(data), data)
    return {'digest': digest(data), 'size': len(data)}
def put(document, tag=None):
    data = json.dumps(document).encode()
    send('PUT', base + '/manifests/' + (tag or digest(data)), data, document['mediaType'])
    return {'mediaType': document['mediaType'], 'digest': digest(data), 'size': len(data)}
data = send('GET', base + '/manifests/' + tag).read()
tables = [{'mediaType': 'application/octet-stream', **blob(open('%d.ztoc' % number, 'rb').read()),
    'annotations': {'com.amazon.soci.image-layer-digest': layer['digest']},
} for number, layer in enumerate(json.loads(data)['layers'])]
image = {'mediaType': OCI + 'manifest.v1+json', 'digest': digest(data), 'size': len(data)}
index = {'schemaVersion': 2, 'mediaType': OCI + 'manifest.v1+json', 'artifactType': KIND,
    'config': {'mediaType': KIND, **blob(b'{}')}, 'layers': tables}
if version == 'v1':
    index['subject'] = image
    entries, tag = [{**put(index), 'artifactType': KIND}], image['digest'].replace(':', '-')
else:
    platform = {'os': 'linux', 'architecture': 'amd64'}
    found = {**put(index), 'artifactType': KIND, 'platform': platform}
    named = {'annotations': {'com.amazon.soci.index-digest': found['digest']}}
    image = put({**json.loads(data), **named})
    entries = [{**image, **named, 'platform': platform}, found]
put({'schemaVersion': 2, 'mediaType': OCI + 'index.v1+json', 'manifests': entries}, tag)
"#;

/// The command of the containers, and its output.
const COMMAND: &str = "exec > /printed/text; \
    cat /etc/app /data/small; ls /etc; stat -c %a /tmp; echo new > /data/new; cat /data/new";
pub const PRINTS: &str = "app\nsmall\napp\npasswd\n1777\nnew\n";

/// The kind of index that an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexedBy {
    /// A SOCI index that refers to the image.
    SociV1,
    /// A SOCI index that the manifest names.
    SociV2,
    /// A forerun index that refers to the image.
    Forerun,
}

/// A containerd, a registry behind a proxy that counts requests, and a snapshotter.
pub struct Node {
    pub dir: TempDir,
    pub registry: DockerRegistry,
    pub proxy: FaultProxy,
    pub containerd: Option<Child>,
    pub snapshotter: Option<Child>,
}

impl Node {
    /// Returns `None` if a program is missing.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub fn start_with(more: &[&str]) -> Option<Self> {
        let programs = ["containerd", "ctr", "ctr-remote", "runc", "python3", "zstd"];
        if programs.map(require::program).contains(&None) || !require::root() || !require::fuse() {
            return None;
        }
        let busybox = require::program("busybox")?;
        let registry = DockerRegistry::start(Auth::None)?;
        let dir = temp_dir("node");
        let made = Command::new("sh")
            .args(["-c", LAYERS])
            .arg(busybox)
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut node = Self {
            proxy: FaultProxy::start(&registry.authority()),
            registry,
            dir,
            containerd: None,
            snapshotter: None,
        };
        let config = containerd_config(node.dir.path(), "run/s.sock").unwrap();
        node.start_snapshotter(more);
        let log = File::create(node.path("containerd.log")).unwrap();
        let containerd = Command::new("containerd")
            .arg("--config")
            .arg(config)
            .stderr(log)
            .spawn()
            .unwrap();
        node.containerd = Some(containerd);
        node.wait_for_socket("c.sock");
        Some(node)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command line of the program, with sockets and caches of this node.
    pub fn forerun(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command
            .current_dir(self.dir.path())
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("DOCKER_CONFIG", self.path("docker"));
        command
    }

    pub fn kill_snapshotter(&mut self) {
        let snapshotter = self.snapshotter.as_mut().unwrap();
        snapshotter.kill().unwrap();
        snapshotter.wait().unwrap();
    }

    pub fn start_snapshotter(&mut self, more: &[&str]) {
        let log = File::create(self.path("snapshotter.log")).unwrap();
        let arguments = ["snapshotter", "--address", "run/s.sock", "--root", "root"];
        let arguments = [&arguments[..], more].concat();
        let child = self.forerun(&arguments).stderr(log).spawn().unwrap();
        self.snapshotter = Some(child);
        self.wait_for_socket("run/s.sock");
    }

    pub fn wait_for_socket(&self, name: &str) {
        let path = self.path(name);
        eventually(name, || UnixStream::connect(&path).is_ok());
    }

    /// Waits until containerd uses the new snapshotter. Listings do not show that, because
    /// containerd lists what it knows and asks the snapshotter about these snapshots.
    pub fn wait_for_containerd(&self) {
        let snapshots = |arguments: &[&str]| {
            let output = Command::new("ctr")
                .args(["snapshots", "--snapshotter", "forerun"])
                .args(arguments)
                .env("CONTAINERD_ADDRESS", self.path("c.sock"))
                .output();
            output.unwrap().status.success()
        };
        eventually("the snapshotter is connected", || {
            snapshots(&["prepare", "probe"])
        });
        assert!(snapshots(&["rm", "probe"]));
    }

    pub fn push(&self, tag: &str, layers: &[Value]) -> String {
        fs::write(self.path("layers.json"), json!(layers).to_string()).unwrap();
        let repository = format!("http://{}/v2/app", self.registry.authority());
        let pushed = Command::new("python3")
            .args(["-c", PUSH, &repository, tag])
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(pushed.status.success(), "{pushed:?}");
        format!("{}/app:{tag}", self.proxy.authority())
    }

    pub fn push_plain(&self) -> String {
        let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
        let layers = ["l0.tar.gz", "l1.tar.gz"];
        let layers = layers.map(|file| json!({"file": file, "mediaType": kind}));
        self.push("plain", &layers)
    }

    pub fn push_lazy(
        &self,
        tag: &str,
        make: fn(&[u8], &IndexedOptions) -> IndexedArchive,
    ) -> String {
        let layers = ["l0", "l1"].map(|name| self.lazy_layer(name, tag, make));
        self.push(tag, &layers)
    }

    /// Converts an archive to a layer with a table of contents, as `NAME.TAG`.
    pub fn lazy_layer(
        &self,
        name: &str,
        tag: &str,
        make: fn(&[u8], &IndexedOptions) -> IndexedArchive,
    ) -> Value {
        let plain = fs::read(self.path(&format!("{name}.tar"))).unwrap();
        let made = make(&plain, &IndexedOptions::default());
        let file = format!("{name}.{tag}");
        fs::write(self.path(&file), &made.blob).unwrap();
        let annotations = made.annotations.into_iter();
        let annotations = annotations.map(|(name, value)| (name, Value::from(value)));
        let annotations: serde_json::Map<String, Value> = annotations.collect();
        json!({"file": file, "mediaType": made.media_type, "annotations": annotations})
    }

    /// Pushes an image whose layers have indexes. Returns its name, and the bytes of its layers.
    pub fn push_indexed(&self, tag: &str, by: IndexedBy) -> (String, u64) {
        let mut bytes = 0;
        let layers = [(0, "l0"), (1, "l1")].map(|(number, name)| {
            let plain = fs::read(self.path(&format!("{name}.tar"))).unwrap();
            let made = SociLayer::new(&plain, 400_000);
            let file = format!("{name}.{tag}");
            fs::write(self.path(&file), &made.blob).unwrap();
            fs::write(self.path(&format!("{number}.ztoc")), made.ztoc.encode()).unwrap();
            bytes += made.blob.len() as u64;
            json!({"file": file, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"})
        });
        let image = self.push(tag, &layers);
        let version = match by {
            IndexedBy::SociV1 => Some("v1"),
            IndexedBy::SociV2 => Some("v2"),
            IndexedBy::Forerun => None,
        };
        let pushed = if let Some(version) = version {
            let repository = format!("http://{}/v2/app", self.registry.authority());
            Command::new("python3")
                .args(["-c", PUSH_SOCI, &repository, tag, version])
                .current_dir(self.dir.path())
                .output()
        } else {
            let name = format!("oci://{}/app:{tag}", self.registry.authority());
            let arguments = ["index", "--push", "-q", "--cache-dir", "pusher", &name];
            self.forerun(&arguments).output()
        };
        let pushed = pushed.unwrap();
        assert!(pushed.status.success(), "{pushed:?}");
        (image, bytes)
    }

    #[track_caller]
    pub fn ctr(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("CONTAINERD_ADDRESS", self.path("c.sock"))
            .output()
            .unwrap();
        let log = fs::read_to_string(self.path("snapshotter.log")).unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{log}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub fn pull(&self, program: &str, how: &[&str], image: &str) {
        let arguments = [how, &["--plain-http", "--snapshotter", "forerun", image]];
        self.ctr(program, &arguments.concat());
    }

    /// Returns the name of a container that no other test has. runc's names are global on the
    /// machine.
    pub fn container(name: &str) -> String {
        format!("forerun-{}-{name}", std::process::id())
    }

    /// Returns the option that shows `/printed` to a container. Containers print to a file there,
    /// because output just before their end does not always reach `ctr`.
    pub fn printed(&self) -> [String; 2] {
        let dir = self.path("printed");
        fs::create_dir_all(&dir).unwrap();
        let mount = format!(
            "type=bind,src={},dst=/printed,options=bind:rw",
            dir.display()
        );
        ["--mount".into(), mount]
    }

    /// Reads and removes the container's output in `/printed/text`.
    #[track_caller]
    pub fn take_printed(&self) -> String {
        let file = self.path("printed/text");
        let text = fs::read_to_string(&file).unwrap();
        fs::remove_file(file).unwrap();
        text
    }

    #[track_caller]
    pub fn run(&self, image: &str, name: &str) -> String {
        let name = Self::container(name);
        let [option, mount] = &self.printed();
        let arguments = ["run", "--rm", "--snapshotter", "forerun", option, mount];
        let command = [image, &name, "sh", "-c", COMMAND];
        self.ctr("ctr", &[&arguments[..], &command].concat());
        self.take_printed()
    }

    pub fn entries(&self, dir: &str) -> usize {
        fs::read_dir(self.path(dir)).map_or(0, Iterator::count)
    }

    /// Removes all images, and waits until nothing of them is left.
    #[track_caller]
    pub fn remove_all(&self) {
        let images = self.ctr("ctr", &["images", "ls", "-q"]);
        let images: Vec<&str> = images.lines().collect();
        self.ctr(
            "ctr",
            &[&["images", "rm", "--sync"], images.as_slice()].concat(),
        );
        let kept = [
            "records",
            "snapshots",
            "chains",
            "logs",
            "trash",
            "cache/v1/blobs",
        ];
        let is_empty = |dir: &&str| self.entries(&format!("root/{dir}")) == 0;
        eventually("all is removed", || {
            kept.iter().all(is_empty) && self.mounts() == 0
        });
    }

    pub fn mounts(&self) -> usize {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = self.path("root").display().to_string();
        mounts.lines().filter(|line| line.contains(&root)).count()
    }

    pub fn status(&self) -> Value {
        ran(self.forerun(&["status", "--json"]).output().unwrap()).mounts()
    }

    /// Returns the process that serves the only mount.
    pub fn server(&self) -> Pid {
        let pid = self.status()[0]["pid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let chains = fs::read_dir(self.path("root/chains"));
        for chain in chains.into_iter().flatten().flatten() {
            // Has an effect only after a failed test.
            let path = chain.path().display().to_string();
            let _taken = self.forerun(&["umount", "--lazy", &path]).output();
        }
        for child in [&mut self.containerd, &mut self.snapshotter]
            .into_iter()
            .flatten()
        {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// Counts the bytes of layers that were sent again. Manifests and configurations are read by both
/// containerd and forerun.
pub fn layers_sent_twice(log: &Log) -> u64 {
    const CONFIGURATION: u64 = 1000;
    let is_long = |entry: &Exchange| entry.start + entry.sent > CONFIGURATION;
    let long = log.entries.iter().filter(|entry| is_long(entry));
    let long: HashSet<&str> = long.map(|entry| entry.path.as_str()).collect();
    let is_layer =
        |entry: &&Exchange| entry.path.contains("/blobs/") && long.contains(entry.path.as_str());
    let entries = log.entries.iter().filter(is_layer).cloned().collect();
    Log { entries }.all_sent_twice()
}
