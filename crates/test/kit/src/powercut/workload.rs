//! Workloads by bounded enumeration: all operations that a small tree allows, alone, in pairs, in
//! triples.

use std::sync::Arc;

use forerun_io::{BlockDevice, u64_from};
use forerun_vfs::{FileSystemMut, Result};

use super::model::State;
use super::{CowDevice, Model, Operation, Place, Recorder, Snapshot, run};
use crate::rng::Rng;

/// Opens a volume for changes. With `true`, each operation on names is durable when it returns.
pub type Open<'a> =
    dyn Fn(Arc<dyn BlockDevice>, bool) -> Result<Arc<dyn FileSystemMut>> + Sync + 'a;

#[derive(Clone, Debug)]
pub struct Scene {
    pub name: String,
    pub start: Snapshot,
    pub model: Model,
    /// Allocation unit in bytes; lengths are chosen around it.
    pub cluster: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    pub scene: usize,
    pub dirsync: bool,
    /// The operations. [`Operation::SyncAll`] follows.
    pub operations: Vec<Operation>,
}

/// The initial tree of workloads: two directories with two files each, and optional additions.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Allocation unit in bytes.
    pub cluster: u64,
    /// Files in `B` before the important ones, so that the next entry crosses the end of a cluster.
    pub fillers: u32,
    /// Files in the directories `C` and `D`, which exist only if this is not 0. They leave one
    /// sector of each directory unused, so that a name of two sectors makes it grow. The cluster
    /// after `C` is used, the one after `D` is free. Only workloads that name these directories use
    /// them.
    pub brim: u32,
    /// Length of a file that leaves the volume nearly full; 0 for none.
    pub ballast: u64,
}

/// Directories with one sector left.
const BRIMS: [&[u8]; 2] = [b"C", b"D"];

/// Returns a name of 255 UTF-16 units.
pub fn long_name(first: char) -> Vec<u8> {
    let rest = "long name ".chars().cycle().take(253);
    let name: String = [first].into_iter().chain(rest).chain(['.']).collect();
    name.replace('.', "z").into_bytes()
}

impl Scene {
    /// Fills an empty volume according to `setting`, with the driver itself.
    pub fn prepare(
        name: &str,
        empty: &Snapshot,
        setting: &Setting,
        open: &Open<'_>,
    ) -> std::result::Result<Self, String> {
        let device = Arc::new(Recorder::new(empty.device()));
        let shared: Arc<dyn BlockDevice> = Arc::<Recorder<_>>::clone(&device);
        let fs = open(shared, false).map_err(|error| format!("opening {name}: {error}"))?;
        let mut model = Model::new(false);
        run(&*fs, &device, &mut model, &setting.operations())
            .map_err(|error| format!("preparing {name}: {error}"))?;
        drop(fs);
        let bytes = CowDevice::snapshot(device.inner()).bytes();
        Ok(Self {
            name: name.to_owned(),
            start: Snapshot::new(bytes),
            model: model.go_on(false),
            cluster: setting.cluster,
        })
    }

    pub fn has(&self, at: &Place) -> bool {
        super::model::find(self.model.now(), at).is_ok()
    }

    pub fn singles(&self) -> Vec<Vec<Operation>> {
        let one = |operation| vec![operation];
        self.next_operations(&self.model)
            .into_iter()
            .map(one)
            .collect()
    }

    /// Lists all pairs, the second among the operations that the first makes possible.
    pub fn pairs(&self) -> Vec<Vec<Operation>> {
        let mut pairs = Vec::new();
        for first in self.next_operations(&self.model) {
            for second in self.next_operations(&self.after(std::slice::from_ref(&first))) {
                pairs.push(vec![first.clone(), second]);
            }
        }
        pairs
    }

    /// Draws a sequence of `len` operations; one in four steps is followed by a sync.
    pub fn sample(&self, len: usize, rng: &mut Rng) -> Vec<Operation> {
        let mut operations = Vec::new();
        for step in 0..len {
            let model = self.after(&operations);
            operations.extend(pick(&self.next_operations(&model), rng));
            if step + 1 < len && rng.below(4) == 0 {
                let model = self.after(&operations);
                operations.extend(pick(&syncs(model.now()), rng));
            }
        }
        operations
    }

    fn after(&self, operations: &[Operation]) -> Model {
        let mut model = self.model.go_on(false);
        for operation in operations {
            // Whether refused or not, the next operation is drawn from the resulting tree.
            let _refused = model.apply(operation);
        }
        model
    }

    /// Lists every operation on existing nodes and on free names.
    fn next_operations(&self, model: &Model) -> Vec<Operation> {
        let tree = Tree::of(model.now());
        let mut operations = Vec::new();
        for at in &tree.free {
            operations.push(Operation::Create(at.clone()));
            operations.push(Operation::Mkdir(at.clone()));
        }
        for (file, len) in &tree.files {
            self.contents(file, *len, &mut operations);
            operations.push(Operation::Unlink(file.clone()));
            operations.push(Operation::Sync(file.clone()));
            let targets = tree.files.iter().map(|(to, _)| to).chain(&tree.free);
            for to in targets.filter(|to| *to != file) {
                operations.push(Operation::Rename {
                    from: file.clone(),
                    to: to.clone(),
                });
            }
        }
        for dir in &tree.dirs {
            operations.push(Operation::Rmdir(dir.clone()));
            let beside = |to: &&Place| to.0.starts_with(&dir.0);
            for to in tree.free.iter().chain(&tree.dirs).filter(|to| !beside(to)) {
                operations.push(Operation::Rename {
                    from: dir.clone(),
                    to: to.clone(),
                });
            }
        }
        operations.push(Operation::SyncAll);
        operations
    }

    /// Adds writes that append to, overwrite and extend a file, and both truncations.
    fn contents(&self, file: &Place, len: u64, operations: &mut Vec<Operation>) {
        let cluster = self.cluster;
        let writes = [
            (len, 100),
            (len, 2 * cluster + 1),
            (0, 100),
            (len / 2, cluster),
            (len + cluster + 10, 100),
        ];
        for (offset, len) in writes {
            let file = file.clone();
            operations.push(Operation::Write { file, offset, len });
        }
        for to in [
            0,
            len / 2,
            len.saturating_sub(1),
            len + 1,
            len + 2 * cluster,
        ] {
            let file = file.clone();
            if to != len {
                operations.push(Operation::Truncate { file, len: to });
            }
        }
    }
}

fn pick(operations: &[Operation], rng: &mut Rng) -> Option<Operation> {
    let index = rng.below(u64_from(operations.len()));
    operations.get(forerun_io::usize_from(index)).cloned()
}

fn syncs(state: &State) -> Vec<Operation> {
    let mut syncs = vec![Operation::SyncAll];
    let files = Tree::of(state).files;
    syncs.extend(files.into_iter().map(|(file, _)| Operation::Sync(file)));
    syncs
}

/// The files, directories and free names from which operations are drawn, without fillers, ballast,
/// `C` and `D`.
struct Tree {
    files: Vec<(Place, u64)>,
    dirs: Vec<Place>,
    /// Unused names.
    free: Vec<Place>,
}

impl Tree {
    fn of(state: &State) -> Self {
        let mut tree = Self {
            files: Vec::new(),
            dirs: Vec::new(),
            free: Vec::new(),
        };
        for (id, node) in state {
            let place = place(state, *id);
            let is_left_alone = |name: &[u8]| {
                name.starts_with(b"filler") || name == b"ballast" || BRIMS.contains(&name)
            };
            if place.names().any(is_left_alone) {
                continue;
            }
            match &node.content {
                Some(content) => tree.files.push((place, u64_from(content.len()))),
                None => tree.dirs.push(place),
            }
        }
        let short = &b"new"[..];
        let names = [short, &long_name('N')];
        for dir in tree.dirs.iter().take(2) {
            tree.free.extend(names.iter().map(|name| dir.join(name)));
        }
        tree.free.push(Place::from("top"));
        tree.free
            .retain(|at| super::model::find(state, at).is_err());
        tree
    }
}

fn place(state: &State, id: u32) -> Place {
    match state.get(&id) {
        Some(node) => place(state, node.parent).join(&node.name),
        None => Place(Vec::new()),
    }
}

fn fillers(dir: &Place, count: u32) -> impl Iterator<Item = Operation> {
    let name = |number| format!("filler{number:02}");
    (0..count).map(move |number| Operation::Create(dir.join(name(number).as_bytes())))
}

fn file(at: Place, len: u64) -> Vec<Operation> {
    let mut operations = vec![Operation::Create(at.clone())];
    if len > 0 {
        operations.push(Operation::Write {
            file: at,
            offset: 0,
            len,
        });
    }
    operations
}

impl Setting {
    fn operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        let cluster = self.cluster;
        let [a, b] = ["A", "B"].map(Place::from);
        let [c, d] = BRIMS.map(|name| Place::from("").join(name));
        operations.extend([a.clone(), b.clone(), "E".into()].map(Operation::Mkdir));
        if self.brim > 0 {
            operations.push(Operation::Mkdir(c.clone()));
        }
        operations.extend(file(a.join(b"one"), 2 * cluster + 100));
        operations.extend(file(a.join(&long_name('L')), 600));
        operations.extend(fillers(&b, self.fillers));
        operations.extend(file(b.join(b"cross"), cluster / 2));
        let sparse = b.join(b"sparse");
        operations.extend(file(sparse.clone(), 10));
        if self.ballast > 0 {
            operations.extend(file("ballast".into(), self.ballast));
        }
        operations.push(Operation::Truncate {
            file: sparse,
            len: 3 * cluster,
        });
        if self.brim > 0 {
            operations.extend(fillers(&c, self.brim));
            operations.push(Operation::Mkdir(d.clone()));
            operations.extend(fillers(&d, self.brim));
        }
        operations.push(Operation::SyncAll);
        operations
    }
}
