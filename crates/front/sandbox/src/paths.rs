//! Landlock: the paths that the process may open, create and remove, and the sockets it may
//! connect.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, RestrictSelfAttr as _, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};

use crate::{Sockets, State};

/// The newest Landlock ABI used. Older kernels support fewer rights.
const NEWEST: ABI = ABI::V6;
/// Paths that every process may read: its limits, its CPUs and time zones. The C library reads them
/// too.
const ALWAYS: &[&str] = &[
    "/proc/self",
    "/proc/stat",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];
/// Paths for a process that contacts servers: name servers, certificates, and NSS libraries.
const NETWORK: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/dev/urandom",
];

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub read: Vec<PathBuf>,
    pub lend: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub write_file: Vec<PathBuf>,
    pub name: Vec<PathBuf>,
    pub remove_dirs: Vec<PathBuf>,
}

impl Rules {
    pub fn add(&mut self, other: Self) {
        self.read.extend(other.read);
        self.lend.extend(other.lend);
        self.write.extend(other.write);
        self.write_file.extend(other.write_file);
        self.name.extend(other.name);
        self.remove_dirs.extend(other.remove_dirs);
    }

    pub fn writes(&self) -> bool {
        !self.write.is_empty() || !self.name.is_empty()
    }
}

/// Restricts this thread and the threads that it starts. Also returns whether existing threads are
/// covered, which Linux 7.0 supports.
pub fn restrict(rules: &Rules, sockets: Sockets, all_threads: bool) -> (State, bool) {
    match try_restrict(rules, sockets, all_threads) {
        Ok(restricted) => restricted,
        Err(error) => (State::Missing(error.to_string()), false),
    }
}

fn try_restrict(
    rules: &Rules,
    sockets: Sockets,
    all_threads: bool,
) -> Result<(State, bool), RulesetError> {
    let mut ruleset = Ruleset::default();
    if !rules.write.is_empty() {
        // Landlock ABI 1 always refuses renames and links between directories.
        ruleset = ruleset
            .set_compatibility(CompatLevel::SoftRequirement)
            .handle_access(AccessFs::Refer)?
            .set_compatibility(CompatLevel::BestEffort);
    }
    ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST))?;
    if sockets != Sockets::New {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?;
    }
    let mut created = ruleset.create()?;
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let lend = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
    let write_file = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
    let name = make_bitflags!(AccessFs::{MakeReg | MakeSock | RemoveFile});
    let remove_dirs = make_bitflags!(AccessFs::{RemoveDir});
    let below = AccessFs::from_all(NEWEST) & !make_bitflags!(AccessFs::{Execute | IoctlDev});
    created = allow(created, ALWAYS.iter().map(PathBuf::from), read)?;
    if sockets == Sockets::New {
        created = allow(created, NETWORK.iter().map(PathBuf::from), read)?;
    }
    created = allow(created, rules.read.iter().cloned(), read)?;
    created = allow(created, rules.lend.iter().cloned(), lend)?;
    created = allow(created, rules.write_file.iter().cloned(), write_file)?;
    created = allow(created, rules.name.iter().cloned(), name)?;
    created = allow(created, rules.remove_dirs.iter().cloned(), remove_dirs)?;
    created = allow(created, rules.write.iter().cloned(), below)?;
    let status = created.all_threads(all_threads)?.restrict_self()?;
    let state = match status.ruleset {
        RulesetStatus::NotEnforced => State::Missing("not in this kernel".into()),
        RulesetStatus::PartiallyEnforced => State::Partly(version(&status.landlock)),
        RulesetStatus::FullyEnforced => State::InForce(version(&status.landlock)),
    };
    Ok((state, status.all_threads))
}

/// Adds a rule for each path that exists. For files, omits the rights that apply only to
/// directories.
fn allow(
    mut ruleset: RulesetCreated,
    paths: impl Iterator<Item = PathBuf>,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        let Ok(opened) = PathFd::new(&path) else {
            continue;
        };
        let rights = if path.is_dir() {
            rights
        } else {
            rights & AccessFs::from_file(NEWEST)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, rights))?;
    }
    Ok(ruleset)
}

fn version(status: &LandlockStatus) -> String {
    match status {
        LandlockStatus::Available { effective_abi, .. } => {
            format!("{effective_abi:?}").replace('V', "ABI ")
        }
        other => format!("{other:?}"),
    }
}
