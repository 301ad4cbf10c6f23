//! Seccomp filters.
//!
//! The first filter allows a list of system calls and answers all others with ENOSYS, so that a
//! library that tries a newer call falls back to the older one. The second filter takes precedence
//! and answers dangerous calls with EPERM. No call kills the process: the program reports a refused
//! call as an error.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::syscalls::{allowed, refused};
use crate::{Sockets, State};

type SyscallRules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Flags that create namespaces. A user namespace would give capabilities back.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// TIOCSTI and TIOCLINUX, ioctl requests that insert characters into a terminal's input, where a
/// shell would execute them.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];

/// Permitted prctl(2) options: thread and memory names, the auxiliary vector (PR_GET_AUXV), and
/// no_new_privs for installing a filter.
const PRCTL: [libc::c_int; 5] = [
    0x4155_5856,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_NO_NEW_PRIVS,
];

pub fn install(sockets: Sockets, programs: bool, writes: bool) -> State {
    match try_install(sockets, programs, writes) {
        Ok(calls) => State::InForce(format!("{calls} system calls allowed")),
        Err(error) => State::Missing(error.to_string()),
    }
}

fn try_install(
    sockets: Sockets,
    programs: bool,
    writes: bool,
) -> Result<usize, seccompiler::Error> {
    let allow = allow(sockets, programs, writes)?;
    let calls = allow.len();
    let allow = compile(allow, errno(libc::ENOSYS), SeccompAction::Allow)?;
    let refuse = refuse(sockets, programs, writes)?;
    let refuse = compile(refuse, SeccompAction::Allow, errno(libc::EPERM))?;
    apply_filter_all_threads(&allow)?;
    // If two filters return an error, the one installed last determines which.
    apply_filter_all_threads(&refuse)?;
    Ok(calls)
}

fn compile(
    rules: SyscallRules,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, matching, arch)?.try_into()
}

const fn errno(number: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(number.cast_unsigned())
}

fn allow(sockets: Sockets, programs: bool, writes: bool) -> Result<SyscallRules, BackendError> {
    let mut rules: SyscallRules = allowed(sockets, programs, writes)
        .map(|call| (call, Vec::new()))
        .collect();
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_kill, vec![argument(0, own)?]);
    rules.insert(libc::SYS_tgkill, vec![argument(0, own)?]);
    // Only for this process; pid 0 means the same.
    rules.insert(
        libc::SYS_prlimit64,
        vec![argument(0, 0)?, argument(0, own)?],
    );
    let prctl = PRCTL
        .iter()
        .map(|what| argument(0, u64::from(what.cast_unsigned())));
    rules.insert(libc::SYS_prctl, prctl.collect::<Result<_, _>>()?);
    // Needed to install the second filter, which then refuses seccomp.
    rules.insert(libc::SYS_seccomp, Vec::new());
    // `refuse` has the terminal-input requests.
    rules.insert(libc::SYS_ioctl, Vec::new());
    // clone3 passes its flags in memory, where filters cannot read them. glibc falls back to clone.
    rules.insert(libc::SYS_clone, vec![flags_clear(NAMESPACES)?]);
    if sockets == Sockets::Open {
        let local = u64::from(libc::AF_UNIX.cast_unsigned());
        rules.insert(libc::SYS_socketpair, vec![argument(0, local)?]);
    }
    if sockets >= Sockets::Open {
        // FUSE server threads use unshare to get their own descriptor table.
        let files = u64::from(libc::CLONE_FILES.cast_unsigned());
        rules.insert(libc::SYS_unshare, vec![argument(0, files)?]);
    }
    Ok(rules)
}

fn refuse(sockets: Sockets, programs: bool, writes: bool) -> Result<SyscallRules, BackendError> {
    let mut rules: SyscallRules = refused(sockets, programs, writes)
        .map(|call| (call, Vec::new()))
        .collect();
    if sockets == Sockets::Open {
        rules.remove(&libc::SYS_socketpair);
    }
    if sockets >= Sockets::Open {
        rules.remove(&libc::SYS_unshare);
    }
    let inputs = TERMINAL_INPUT.map(|request| argument(1, request));
    rules.insert(
        libc::SYS_ioctl,
        inputs.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

/// Matches calls whose argument has `value` in its low 32 bits; the kernel ignores the rest of an
/// int.
fn argument(index: u8, value: u64) -> Result<SeccompRule, BackendError> {
    let op = SeccompCmpOp::Eq;
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value)?;
    SeccompRule::new(vec![condition])
}

fn flags_clear(flags: libc::c_int) -> Result<SeccompRule, BackendError> {
    let op = SeccompCmpOp::MaskedEq(u64::from(flags.cast_unsigned()));
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, 0)?;
    SeccompRule::new(vec![condition])
}
