//! Many workloads, all their crash states, every check, on all cores.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{BlockDevice, Unpoisoned};
use forerun_vfs::FileSystemMut;

use super::workload::Open;
use super::{
    Bounds, Crash, Found, Model, Operation, Place, Recorder, Scene, Snapshot, Trace, Workload,
    crashes, run,
};

/// When a volume is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The power failed, and the volume has not been opened since.
    Cut,
    /// The volume was opened, read and synced after that.
    Recovered,
}

/// A check that reports what is wrong with the bytes of a volume. Returns the tree if it can read
/// it.
pub type Check<'a> = dyn Fn(&Snapshot, Moment) -> Result<Option<Found>, String> + Sync + 'a;

#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub open: &'a Open<'a>,
    /// Judges a volume without the driver. If it reads the tree, it must find the same as the
    /// driver, once the driver has opened, read and synced the volume. Before that, it may only
    /// miss files that were being renamed.
    pub check: &'a Check<'a>,
}

#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    pub bounds: Bounds,
    /// On one of this many states, work continues and the power fails again.
    pub recovery_one_in: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub workloads: usize,
    pub built: u64,
    /// Distinct volumes among them, each judged by the check.
    pub states: u64,
    /// States in which a reader without knowledge of the driver's protocol misses a file.
    pub between: u64,
    /// States on which work continued.
    pub recoveries: u64,
    /// States of the second crash.
    pub recovery_states: u64,
    /// Number of bad states and one example, by kind.
    pub bad: BTreeMap<String, (u64, String)>,
}

/// Removes from a reason everything that differs from state to state. Keeps the prefix of checkers,
/// `Kind: `, or the words that are not names and numbers.
fn kind(reason: &str) -> String {
    let (first, _) = reason.split_once(": ").unwrap_or((reason, ""));
    if first.starts_with(char::is_uppercase) && first.chars().all(char::is_alphabetic) {
        return first.to_owned();
    }
    let words = reason.split(' ').map(|word| {
        let own = word.contains('/') || word.chars().any(|c| c.is_ascii_digit());
        if own { "*" } else { word }
    });
    let kind = words.collect::<Vec<_>>().join(" ");
    kind.chars().take(120).collect()
}

impl Campaign {
    /// Runs the workloads on all cores and judges every state.
    pub fn run(&self, scenes: &[Scene], workloads: &[Workload], subject: Subject<'_>) -> Outcome {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let next = AtomicUsize::new(0);
        let (seen, outcome) = (Mutex::default(), Mutex::default());
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(workload) = workloads.get(index) else {
                            return;
                        };
                        let judge = Judge {
                            campaign: self,
                            scene: &scenes[workload.scene],
                            workload,
                            subject,
                            seen: &seen,
                            outcome: &outcome,
                        };
                        judge.workload(index);
                    }
                });
            }
        });
        outcome.into_inner().unpoisoned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unpoisoned()
}

struct Judge<'a> {
    campaign: &'a Campaign,
    scene: &'a Scene,
    workload: &'a Workload,
    subject: Subject<'a>,
    seen: &'a Mutex<HashSet<u128>>,
    outcome: &'a Mutex<Outcome>,
}

impl Judge<'_> {
    fn bad(&self, crash: &str, reason: &str) {
        let (scene, operations) = (&self.scene.name, &self.workload.operations);
        let dirsync = self.workload.dirsync;
        let first = || format!("{scene}, dirsync {dirsync}, {operations:?}, {crash}: {reason}");
        let mut outcome = lock(self.outcome);
        let of_kind = outcome.bad.entry(kind(reason));
        of_kind.or_insert_with(|| (0, first())).0 += 1;
    }

    fn workload(&self, index: usize) {
        lock(self.outcome).workloads += 1;
        let mut model = self.scene.model.go_on(self.workload.dirsync);
        let (trace, result) = self.record(&mut model);
        if let Err(reason) = result {
            self.bad("no crash", &reason);
            return;
        }
        let bounds = Bounds {
            seed: self.campaign.bounds.seed ^ forerun_io::u64_from(index) << 20,
            ..self.campaign.bounds
        };
        let built = crashes(&self.scene.start, &trace, &bounds, &mut |crash| {
            if let Err(reason) = self.state(&crash, &model) {
                self.bad(&format!("{crash:?}"), &reason);
            }
        });
        lock(self.outcome).built += built;
    }

    /// Runs the workload, reopens the volume, and compares the tree.
    fn record(&self, model: &mut Model) -> (Trace, Result<(), String>) {
        let device = Arc::new(Recorder::new(self.scene.start.device()));
        let mut operations = self.workload.operations.clone();
        operations.push(Operation::SyncAll);
        let opened = self.open_on(&device);
        let result = match opened {
            Ok(fs) => run(&*fs, &device, model, &operations),
            Err(error) => Err(format!("opening: {error}")),
        };
        let trace = device.take();
        let result = result.and_then(|()| {
            let all = model.promises.len();
            let (found, _) = self.open(&device.inner().snapshot())?;
            model
                .allows(&found, all, all)
                .map_err(|reason| format!("opened again after all was synced: {reason}"))
        });
        (trace, result)
    }

    fn open_on<D: BlockDevice + 'static>(
        &self,
        device: &Arc<D>,
    ) -> forerun_vfs::Result<Arc<dyn FileSystemMut>> {
        let device: Arc<dyn BlockDevice> = Arc::<D>::clone(device);
        (self.subject.open)(device, self.workload.dirsync)
    }

    /// Opens a state. Returns the tree that the driver shows, and the volume after the driver has
    /// synced it.
    fn open(&self, state: &Snapshot) -> Result<(Found, Snapshot), String> {
        let device = Arc::new(state.device());
        let fs = self
            .open_on(&device)
            .map_err(|error| format!("does not open: {error}"))?;
        let found =
            Found::read(&*fs, &device).map_err(|error| format!("does not read: {error}"))?;
        fs.sync_all()
            .map_err(|error| format!("does not sync: {error}"))?;
        drop(fs);
        Ok((found, device.snapshot()))
    }

    fn state(&self, crash: &Crash, model: &Model) -> Result<(), String> {
        let new = lock(self.seen).insert(crash.state.hash());
        if !new {
            let (found, _) = self.open(&crash.state)?;
            return model.allows(&found, crash.begun, crash.returned);
        }
        lock(self.outcome).states += 1;
        let raw = (self.subject.check)(&crash.state, Moment::Cut)?;
        let (found, after) = self.open(&crash.state)?;
        model.allows(&found, crash.begun, crash.returned)?;
        if let Some(raw) = raw {
            let less = self.less(&raw, &found)?;
            lock(self.outcome).between += u64::from(less);
            let raw = if after.hash() == crash.state.hash() {
                Some(raw)
            } else {
                (self.subject.check)(&after, Moment::Recovered)?
            };
            if raw.is_none_or(|raw| raw.sorted() != found.sorted()) {
                return Err("by the check, another tree after recovery".to_owned());
            }
        }
        let draw = crash.state.hash() % u128::from(self.campaign.recovery_one_in.max(1));
        if draw == 0 {
            self.recover(crash, &found)?;
        }
        Ok(())
    }

    /// Returns whether a tree lacks nodes of another one. Fails if it has anything else, or lacks
    /// more than the renamed nodes and everything below them.
    fn less(&self, raw: &Found, found: &Found) -> Result<bool, String> {
        let (raw, all) = (raw.sorted(), found.sorted());
        if let Some((path, ..)) = raw.iter().find(|node| !all.contains(node)) {
            return Err(format!(
                "by the check: {path}: the driver finds it otherwise"
            ));
        }
        let lacks = |path: &str| raw.iter().all(|(other, ..)| other != path);
        let lost = all.iter().filter(|(path, ..)| {
            let above = path.rsplit_once('/').map(|(above, _)| above);
            lacks(path) && !above.is_some_and(lacks)
        });
        let operations = self.workload.operations.iter();
        let renames = operations.filter(|of| matches!(of, Operation::Rename { .. }));
        let (lost, renames) = (lost.count(), renames.count());
        if lost > renames {
            Err(format!(
                "by the check: {lost} files are gone and {renames} renamed"
            ))
        } else {
            Ok(lost > 0)
        }
    }

    /// Checks that the volume works: a file is created, written, synced and removed, and the power
    /// fails again at any point.
    fn recover(&self, crash: &Crash, found: &Found) -> Result<(), String> {
        lock(self.outcome).recoveries += 1;
        let device = Arc::new(Recorder::new(crash.state.device()));
        let fs = self
            .open_on(&device)
            .map_err(|error| format!("does not open again: {error}"))?;
        let mut model = Model::new(self.workload.dirsync);
        let file = Place::from("after");
        let operations = [
            Operation::Create(file.clone()),
            Operation::Write {
                file: file.clone(),
                offset: 0,
                len: 700,
            },
            Operation::Sync(file.clone()),
            Operation::Unlink(file),
            Operation::SyncAll,
        ];
        run(&*fs, &device, &mut model, &operations).or_else(full)?;
        drop(fs);
        let (after, _) = self.open(&device.inner().snapshot())?;
        if after.sorted() != found.sorted() {
            return Err("work after the crash changed other files".to_owned());
        }
        let bounds = Bounds {
            exhaustive: 6,
            samples: 16,
            ..self.campaign.bounds
        };
        let mut result = Ok(());
        let trace = device.take();
        crashes(&crash.state, &trace, &bounds, &mut |second| {
            if result.is_ok() && lock(self.seen).insert(second.state.hash()) {
                lock(self.outcome).recovery_states += 1;
                result = self
                    .second(&second.state, found)
                    .map_err(|reason| format!("and then {second:?}: {reason}"));
            }
        });
        result
    }

    /// Checks that after a second crash the volume opens and reads. If the check reads the tree,
    /// the other files are unchanged, also for the check once the driver has synced.
    fn second(&self, state: &Snapshot, found: &Found) -> Result<(), String> {
        let raw = (self.subject.check)(state, Moment::Cut)?;
        let (again, after) = self.open(state)?;
        if raw.is_none() {
            return Ok(());
        }
        let mut others = again.sorted();
        others.retain(|(path, ..)| path != "after");
        if others != found.sorted() {
            return Err("other files changed".to_owned());
        }
        let raw = (self.subject.check)(&after, Moment::Recovered)?;
        if raw.is_some_and(|raw| raw.sorted() == again.sorted()) {
            Ok(())
        } else {
            Err("by the check, another tree after recovery".to_owned())
        }
    }
}

/// Accepts the answer of a full volume: it had no space for the file, so there is none to write.
fn full(answer: String) -> Result<(), String> {
    if answer.contains("not_found") {
        return Ok(());
    }
    Err(answer)
}
