//! Thousands of random operations against a model in memory. The volume must show the same tree
//! before and after it is opened again, and `fsck.exfat` must find nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_exfat::Exfat;
use forerun_testkit::rng::Rng;
use forerun_vfs::{Changes, Error, FileSystem, FileSystemMut, FileType, NodeId};

use crate::common::{
    TestDevice, assert_sound, create, list, mkdir, mkfs, open, open_mut, read, write,
};

/// A directory by its names, or a file by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Model {
    Dir(BTreeMap<String, Model>),
    File(Vec<u8>),
}

impl Model {
    fn names(&mut self) -> &mut BTreeMap<String, Model> {
        match self {
            Self::Dir(names) => names,
            Self::File(_) => panic!("not a directory"),
        }
    }

    fn at(&mut self, path: &[String]) -> &mut Model {
        path.iter()
            .fold(self, |model, name| model.names().get_mut(name).unwrap())
    }

    fn dirs(&self, path: Vec<String>, out: &mut Vec<Vec<String>>) {
        if let Self::Dir(names) = self {
            for (name, model) in names {
                model.dirs([&path[..], std::slice::from_ref(name)].concat(), out);
            }
            out.push(path);
        }
    }
}

fn actual(fs: &Exfat, device: &TestDevice, node: NodeId) -> Model {
    if fs.metadata(node).unwrap().kind == FileType::Regular {
        return Model::File(read(fs, device, node));
    }
    let entries = list(fs, node).into_iter();
    Model::Dir(
        entries
            .map(|(name, node, _)| (name, actual(fs, device, node)))
            .collect(),
    )
}

struct Run {
    rng: Rng,
    device: Arc<TestDevice>,
    fs: Exfat,
    model: Model,
    full: u32,
}

impl Run {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn name(&mut self) -> String {
        let n = self.below(12);
        match self.below(8) {
            0 => format!("{n}-{}", "long".repeat(60)),
            1 => format!("{n}-{}", "middle".repeat(4)),
            2 => format!("\u{E4}\u{1F600}{n}"),
            _ => format!("n{n}"),
        }
    }

    fn node(&self, path: &[String]) -> NodeId {
        path.iter().fold(self.fs.root(), |dir, name| {
            self.fs.lookup(dir, name.as_bytes()).unwrap().unwrap()
        })
    }

    fn dir(&mut self) -> Vec<String> {
        let mut dirs = Vec::new();
        self.model.dirs(Vec::new(), &mut dirs);
        let at = self.below(dirs.len() as u64) as usize;
        dirs[at].clone()
    }

    /// Returns whether the operation succeeded. On a full volume, any operation that needs space
    /// may fail.
    fn did(&mut self, outcome: Result<(), Error>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(Error::NoSpace) => {
                self.full += 1;
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let path = [&dir[..], std::slice::from_ref(&name)].concat();
        let parent = self.node(&dir);
        let there = self.model.at(&dir).names().get(&name).cloned();
        match (self.below(100), there) {
            (0..30, None) => {
                let made = create(&self.fs, parent, &name).map(|_| ());
                if self.did(made) {
                    self.model
                        .at(&dir)
                        .names()
                        .insert(name, Model::File(Vec::new()));
                }
            }
            (30..40, None) if dir.len() < 4 => {
                let made = mkdir(&self.fs, parent, &name).map(|_| ());
                if self.did(made) {
                    self.model
                        .at(&dir)
                        .names()
                        .insert(name, Model::Dir(BTreeMap::new()));
                }
            }
            (0..40, Some(Model::File(bytes))) => self.write(&path, bytes),
            (40..55, Some(Model::File(bytes))) => self.truncate(&path, bytes),
            (55..70, Some(Model::File(_))) => {
                self.fs.unlink(parent, name.as_bytes()).unwrap();
                self.model.at(&dir).names().remove(&name);
            }
            (55..75, Some(Model::Dir(names))) => {
                let outcome = self.fs.rmdir(parent, name.as_bytes());
                if names.is_empty() {
                    outcome.unwrap();
                    self.model.at(&dir).names().remove(&name);
                } else {
                    assert!(matches!(outcome, Err(Error::NotEmpty)))
                }
            }
            (70..92, Some(model)) => self.rename(&dir, &name, model),
            (97, _) => self.fs.sync_all().unwrap(),
            _ => {}
        }
    }

    fn write(&mut self, path: &[String], mut bytes: Vec<u8>) {
        let node = self.node(path);
        let offset = self.below(bytes.len() as u64 + 3000);
        let len = 1 + self.below(9000);
        let data: Vec<u8> = (0..len).map(|_| self.rng.next_u64() as u8).collect();
        self.fs.open(node).unwrap();
        let outcome = write(&self.fs, &*self.device, node, offset, &data);
        self.fs.release(node).unwrap();
        if self.did(outcome) {
            let (from, to) = (offset as usize, offset as usize + data.len());
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(&data);
            *self.model.at(path) = Model::File(bytes);
        }
    }

    fn truncate(&mut self, path: &[String], mut bytes: Vec<u8>) {
        let node = self.node(path);
        let size = match self.below(4) {
            0 => 0,
            1 => bytes.len() as u64 + self.below(20_000),
            _ => self.below(bytes.len() as u64 + 1),
        };
        let changes = Changes {
            size: Some(size),
            ..Changes::default()
        };
        let outcome = self.fs.change(node, &changes).map(|_| ());
        if self.did(outcome) {
            bytes.resize(size as usize, 0);
            *self.model.at(path) = Model::File(bytes);
        }
    }

    fn rename(&mut self, dir: &[String], name: &str, model: Model) {
        let (to, new) = (self.dir(), self.name());
        let from = [dir, &[name.to_owned()]].concat();
        let (a, b) = (self.node(dir), self.node(&to));
        let id = self.node(&from);
        let there = self.model.at(&to).names().get(&new).cloned();
        let outcome = self
            .fs
            .rename((a, name.as_bytes()), (b, new.as_bytes()), true);
        let same = to == dir && new == name;
        match (&model, &there) {
            _ if to.starts_with(&from) && matches!(model, Model::Dir(_)) => {
                return assert!(matches!(outcome, Err(Error::IntoItself)), "{outcome:?}");
            }
            (Model::Dir(_), Some(Model::File(_))) => {
                return assert!(matches!(outcome, Err(Error::NotADirectory)));
            }
            (Model::File(_), Some(Model::Dir(_))) => {
                return assert!(matches!(outcome, Err(Error::IsADirectory)));
            }
            (Model::Dir(_), Some(Model::Dir(names))) if !same && !names.is_empty() => {
                return assert!(matches!(outcome, Err(Error::NotEmpty)), "{outcome:?}");
            }
            _ => {}
        }
        if self.did(outcome) {
            self.model.at(dir).names().remove(name);
            self.model.at(&to).names().insert(new.clone(), model);
            let after = self.node(&[&to[..], &[new]].concat());
            assert_eq!(after, id, "the id changed");
        }
    }
}

fn run(seed: u64, steps: u32, args: &[&str], fill: u64, dirsync: bool) {
    let Some(image) = mkfs(4 << 20, args) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = dirsync);
    let mut run = Run {
        rng: Rng::new(seed),
        device,
        fs,
        model: Model::Dir(BTreeMap::new()),
        full: 0,
    };
    if fill > 0 {
        let node = create(&run.fs, run.fs.root(), "filler").unwrap();
        let space = run.fs.space().unwrap();
        let size = (space.free - fill) * u64::from(space.block_size);
        run.fs.allocate(node, 0..size, false).unwrap();
    }
    for step in 0..steps {
        run.step();
        if step % 1000 == 999 {
            run.fs.sync_all().unwrap();
            assert_sound(&run.device.to_vec());
        }
    }
    if fill > 0 {
        assert!(run.full > 0, "the volume was to be full");
        run.fs.unlink(run.fs.root(), b"filler").unwrap();
    }
    let root = run.fs.root();
    assert_eq!(actual(&run.fs, &run.device, root), run.model);
    run.fs.sync_all().unwrap();
    let image = run.device.to_vec();
    assert_sound(&image);
    assert_eq!(image[106] & 2, 0, "VolumeDirty");
    let device = TestDevice::new(&image);
    assert_eq!(actual(&open(&image), &device, root), run.model);
}

#[test]
fn small_clusters() {
    run(1, 12_000, &["-c", "512"], 0, false);
}

#[test]
fn larger_clusters() {
    run(2, 6_000, &["-c", "4K"], 0, false);
}

#[test]
fn nearly_full() {
    run(3, 6_000, &["-c", "512"], 150, false);
}

#[test]
fn each_operation_durable() {
    run(4, 4_000, &["-c", "1K"], 0, true);
}
