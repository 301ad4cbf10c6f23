//! Distinguishes renames that change only the case of a name from other lookups.
//!
//! On a volume that folds case, `photo.JPG` and `photo.jpg` are one node. The kernel looks up the
//! target of `rename("photo.JPG", "photo.jpg")` first. If it finds the same node there, it never
//! sends RENAME: rename(2) returns 0 if both names have one inode, and RENAME_NOREPLACE fails with
//! EEXIST, after which mv says that both are the same file. So this LOOKUP, and no other, must find
//! nothing, but LOOKUP does not carry its purpose. Separate inodes for other spellings would not
//! help: with another st_ino, `cp photo.JPG photo.jpg` truncates the only copy; with the same
//! st_ino, mv refuses, and RENAME_NOREPLACE fails with both.
//!
//! The server therefore tests the caller. It answers the LOOKUP with ESTALE, and the kernel (since
//! 3.8) restarts the system call, once, and now sends LOOKUP for every component, cached or not.
//! Only rename(2) then looks up the same node by another name, the source, immediately before it
//! repeats the LOOKUP. The caller notices nothing.
//!
//! Which LOOKUPs are tested:
//!
//! - Only spellings other than the one that the kernel has cached. Ordinary names cost nothing.
//! - Only lookups in rename(2), if the server can determine the system call
//!   ([`Call`](super::caller::Call)). Otherwise spellings of files are tested in all calls. Those
//!   of directories are not: mkdir(2) is not restarted, and mkdir and tar need its EEXIST.
//! - Not the stored spelling of a directory. It is the source of a rename, not the target.
//! - Not a spelling that the kernel may have cached. It takes ESTALE as the end of the cached name
//!   and repeats the lookup without restarting the call. So the server has it drop other spellings
//!   of a file after stat(2) and after the last close ([`Known`](super::known::Known)). A spelling
//!   that is being dropped, or under which the file is open, is answered with ESTALE twice. The
//!   kernel never caches two names of a directory.
//! - Not a second name in one path or call: the ESTALE would reach the caller. A thread is not
//!   tested again before it has sent a request other than LOOKUP, for [`EXPIRY`] at most.
//!
//! What does not work:
//!
//! - Renaming a directory between two spellings of which neither is stored nor the last one used.
//!   It looks like `rename("DIR/a", "dIR/b")`, which must work.
//! - Renaming to a spelling that the kernel cached in access(2), mkdir(2) or with O_PATH, until the
//!   next stat(2) or close of the file.
//! - Exchanging two spellings of one name (RENAME_EXCHANGE) fails with ENOENT.
//! - `rename("Dir/../dir", ...)`, a path through one directory by two spellings, fails with ENOENT.
//! - If the server cannot determine the system call: creating something under another spelling of
//!   an existing file fails with ESTALE instead of EEXIST, and directories keep their case.
//! - Threads without a process ID in the server's namespace (pid 0) are not tested.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

use super::known::Name;

/// How long an unfinished test is remembered: longer than a system call waits between two LOOKUPs.
const EXPIRY: Duration = Duration::from_secs(10);
/// Maximum number of threads in a test. Further threads are not tested.
const MAX_THREADS: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedUp {
    pub name: Name,
    pub node: NodeId,
    /// Whether the node can be a directory in a path.
    pub is_directory: bool,
    pub alias: Alias,
}

/// Whether, and how, a name may be the target of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// The name cannot be the target, or the kernel may have had it cached for long.
    No,
    /// The kernel looks the name up because it has not cached it.
    Uncached,
    /// The kernel has cached the name. After ESTALE it drops the cached name and looks it up once
    /// more before it restarts the call.
    Cached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Node,
    /// The node, with attributes that the kernel must not cache: the GETATTR that follows then
    /// shows that the path has ended.
    Brief,
    /// ESTALE: the kernel restarts the system call.
    Again,
    /// ENOENT: this is the target of a rename.
    Missing,
}

#[derive(Debug, Default)]
pub struct CaseRenames {
    /// Number of threads, so that other requests need no lock.
    asked: AtomicUsize,
    threads: Mutex<HashMap<u32, AskedThread>>,
}

#[derive(Debug)]
struct AskedThread {
    name: Name,
    state: AskedState,
    /// The last LOOKUP after the ESTALE.
    last: Option<(Name, NodeId)>,
    at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedState {
    /// The kernel had cached the name, so it repeats the LOOKUP before it restarts the call.
    Unheard,
    /// The kernel restarts the call and will repeat the LOOKUP.
    Waiting,
    /// The LOOKUP was repeated and answered with the node. The path may continue.
    Answered,
    /// The LOOKUP was repeated in a rename and answered with ENOENT. If the kernel had cached the
    /// name, it sends a third one.
    Renaming,
    /// The call is over: the kernel looked up the target a third time, or began another path like
    /// the first. The thread may be tested again.
    Ended,
}

impl CaseRenames {
    pub fn looked_up(&self, thread: u32, found: &LookedUp) -> Answer {
        if thread == 0 || (found.alias == Alias::No && !self.is_asked()) {
            return Answer::Node;
        }
        self.looked_up_at(thread, found, Instant::now())
    }

    fn looked_up_at(&self, thread: u32, found: &LookedUp, now: Instant) -> Answer {
        let mut threads = self.threads();
        if let Some(asked) = threads.get_mut(&thread)
            && now.duration_since(asked.at) < EXPIRY
        {
            asked.at = now;
            if let Some(answer) = asked.goes_on(found) {
                return answer;
            }
        }
        threads.remove(&thread);
        let mut answer = Answer::Node;
        if found.alias != Alias::No {
            threads.retain(|_, asked| now.duration_since(asked.at) < EXPIRY);
            answer = Answer::Brief;
            if threads.len() < MAX_THREADS {
                threads.insert(thread, AskedThread::about(found, now));
                answer = Answer::Again;
            }
        }
        self.asked.store(threads.len(), Ordering::Relaxed);
        answer
    }

    pub fn is_asking(&self, thread: u32) -> bool {
        self.is_asked() && self.threads().contains_key(&thread)
    }

    /// Records that `thread` sent GETATTR. For a file, this ends a path.
    pub fn asked_attributes(&self, thread: u32, is_directory: bool) {
        if !is_directory {
            self.requested(thread);
        } else if self.is_asked()
            && let Some(asked) = self.threads().get_mut(&thread)
        {
            asked.last = None;
        }
    }

    /// Records that `thread` sent a request that system calls send only after all their paths are
    /// resolved.
    pub fn requested(&self, thread: u32) {
        if self.is_asked() {
            let mut threads = self.threads();
            threads.remove(&thread);
            self.asked.store(threads.len(), Ordering::Relaxed);
        }
    }

    /// Returns whether any thread is being tested. A thread sees its own entry, because it waits
    /// for each answer before it sends the next request.
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<u32, AskedThread>> {
        self.threads.lock().unpoisoned()
    }
}

impl AskedThread {
    fn about(found: &LookedUp, at: Instant) -> Self {
        Self {
            name: found.name.clone(),
            state: match found.alias {
                Alias::Cached => AskedState::Unheard,
                Alias::No | Alias::Uncached => AskedState::Waiting,
            },
            last: None,
            at,
        }
    }

    /// Returns the answer, or `None` if the LOOKUP belongs to a path that is not being tested.
    fn goes_on(&mut self, found: &LookedUp) -> Option<Answer> {
        let last = self.last.replace((found.name.clone(), found.node));
        let is_same = self.name == found.name;
        // The name by which this node was looked up immediately before.
        let source = match &last {
            Some((name, node)) if *node == found.node && *name != found.name => Some(name),
            _ => None,
        };
        match (self.state, source) {
            (AskedState::Unheard, _) if is_same => {
                self.state = AskedState::Waiting;
                Some(Answer::Again)
            }
            // The kernel restarted the call at once.
            (AskedState::Unheard, _) => {
                self.state = AskedState::Waiting;
                Some(Answer::Brief)
            }
            (AskedState::Waiting, Some(_)) if is_same => {
                self.state = AskedState::Renaming;
                Some(Answer::Missing)
            }
            (AskedState::Waiting, None) if is_same => {
                self.state = AskedState::Answered;
                Some(Answer::Brief)
            }
            (AskedState::Waiting, _) => Some(Answer::Brief),
            // The source was tested, and this is the target.
            (AskedState::Answered, Some(source)) if *source == self.name => {
                if found.is_directory {
                    return Some(Answer::Brief);
                }
                (self.name, self.state) = (found.name.clone(), AskedState::Renaming);
                Some(Answer::Missing)
            }
            // The source was not tested, or another path begins like the tested one. In both cases
            // the thread executes a new system call.
            (AskedState::Answered, source)
                if (source.is_some() || is_same) && found.alias != Alias::No =>
            {
                *self = Self::about(found, self.at);
                Some(Answer::Again)
            }
            (AskedState::Answered, _) if is_same => {
                self.state = AskedState::Ended;
                Some(Answer::Brief)
            }
            (AskedState::Answered, _) => Some(Answer::Brief),
            (AskedState::Renaming, _) if is_same => {
                self.state = AskedState::Ended;
                Some(Answer::Missing)
            }
            (AskedState::Renaming | AskedState::Ended, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn found(name: &str, alias: Alias) -> LookedUp {
        LookedUp {
            name: Name {
                dir: NodeId(1),
                name: name.as_bytes().into(),
            },
            node: NODE,
            is_directory: false,
            alias,
        }
    }

    fn other(node: u64) -> LookedUp {
        LookedUp {
            node: NodeId(node),
            is_directory: true,
            ..found("elsewhere", Alias::No)
        }
    }

    #[track_caller]
    fn check(renames: &CaseRenames, lookups: &[(LookedUp, Answer)]) {
        for (n, (found, answer)) in lookups.iter().enumerate() {
            assert_eq!(renames.looked_up(9, found), *answer, "{n}");
        }
    }

    #[test]
    fn only_a_rename_finds_nothing() {
        use Alias::{Cached, No, Uncached};
        use Answer::{Again, Brief, Missing, Node};
        let (old, new) = (|| found("old", No), || found("new", Uncached));
        let held = || found("new", Cached);
        for (name, lookups) in [
            ("ordinary", vec![(old(), Node), (old(), Node)]),
            ("stat", vec![(new(), Again), (new(), Brief)]),
            (
                "stat below",
                vec![(new(), Again), (other(3), Brief), (new(), Brief)],
            ),
            (
                "rename",
                vec![(new(), Again), (old(), Brief), (new(), Missing)],
            ),
            (
                "rename of a cached name",
                vec![
                    (held(), Again),
                    (new(), Again),
                    (old(), Brief),
                    (new(), Missing),
                ],
            ),
            (
                "rename, looked up again after the cached name was dropped",
                vec![
                    (new(), Again),
                    (old(), Brief),
                    (new(), Missing),
                    (new(), Missing),
                    (old(), Node),
                ],
            ),
            (
                "rename of another spelling",
                vec![
                    (new(), Again),
                    (new(), Brief),
                    (found("third", Uncached), Missing),
                ],
            ),
            (
                "rename over another file",
                vec![(new(), Again), (other(3), Brief), (new(), Brief)],
            ),
            (
                "one question in a call",
                vec![
                    (new(), Again),
                    (new(), Brief),
                    (other(3), Brief),
                    (other(4), Brief),
                ],
            ),
        ] {
            let renames = CaseRenames::default();
            for (n, (found, answer)) in lookups.iter().enumerate() {
                assert_eq!(renames.looked_up(9, found), *answer, "{name} {n}");
            }
        }
    }

    #[test]
    fn a_thread_is_asked_again_after_another_request() {
        let new = || found("new", Alias::Uncached);
        let renames = CaseRenames::default();
        check(&renames, &[(new(), Answer::Again), (new(), Answer::Brief)]);
        renames.asked_attributes(9, true);
        assert!(renames.is_asking(9), "a directory may be on the way");
        renames.asked_attributes(9, false);
        assert!(!renames.is_asking(9));
        check(&renames, &[(new(), Answer::Again)]);
        renames.requested(8);
        assert!(renames.is_asking(9));
        renames.requested(9);
        assert!(!renames.is_asking(9));
        assert_eq!(renames.looked_up(0, &new()), Answer::Node, "no thread");
    }

    #[test]
    fn questions_expire_and_are_bounded() {
        let new = found("new", Alias::Uncached);
        let (renames, now) = (CaseRenames::default(), Instant::now());
        for thread in 1..=2000 {
            let limit = u32::try_from(MAX_THREADS).unwrap();
            let expected = [Answer::Brief, Answer::Again][usize::from(thread <= limit)];
            assert_eq!(renames.looked_up_at(thread, &new, now), expected);
        }
        assert_eq!(renames.threads().len(), MAX_THREADS);
        let later = now + EXPIRY;
        assert_eq!(renames.looked_up_at(1, &new, later), Answer::Again);
        assert_eq!(renames.threads().len(), 1);
    }
}
