//! Seccomp: which system calls the process may make.
//!
//! Two filters. The first allows a list of calls and answers all others with ENOSYS, so that a library
//! that tries a newer call falls back to the one it replaces. The second, which takes precedence,
//! answers dangerous calls with EPERM. No call kills the process: a refused call is an error that the
//! program reports.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::syscalls::{allowed, refused};
use crate::{Sockets, State};

type SyscallRules = BTreeMap<c_long, Vec<SeccompRule>>;

/// New namespaces. A user namespace would give capabilities back.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Puts characters into the input of a terminal, where a shell would read them as typed.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];

/// Permitted options of prctl(2): names of threads and of memory, what the kernel tells each program
/// (PR_GET_AUXV); and before a filter is installed.
const PRCTL: [libc::c_int; 5] = [
    0x4155_5856,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_NO_NEW_PRIVS,
];

/// Installs the filters in all threads of the process.
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
    // Of two filters with an error the one that was installed last decides which.
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
    // Of this process; 0 is another word for it.
    rules.insert(
        libc::SYS_prlimit64,
        vec![argument(0, 0)?, argument(0, own)?],
    );
    let prctl = PRCTL
        .iter()
        .map(|what| argument(0, u64::from(what.cast_unsigned())));
    rules.insert(libc::SYS_prctl, prctl.collect::<Result<_, _>>()?);
    // For the second filter, which refuses it from then on.
    rules.insert(libc::SYS_seccomp, Vec::new());
    // Any request but the one that puts characters into a terminal's input: see `refuse`.
    rules.insert(libc::SYS_ioctl, Vec::new());
    // clone3 has its flags in memory, where no filter sees them. The C library makes threads by clone
    // where it is missing.
    rules.insert(libc::SYS_clone, vec![flags_clear(NAMESPACES)?]);
    if sockets == Sockets::Open {
        let local = u64::from(libc::AF_UNIX.cast_unsigned());
        rules.insert(libc::SYS_socketpair, vec![argument(0, local)?]);
    }
    if sockets >= Sockets::Open {
        // A thread of a server that the kernel may hold up has descriptors of its own.
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

/// Matches calls in which the lower half of an argument is `value`: the kernel looks at no more of an
/// int.
fn argument(index: u8, value: u64) -> Result<SeccompRule, BackendError> {
    let op = SeccompCmpOp::Eq;
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value)?;
    SeccompRule::new(vec![condition])
}

/// Matches calls that have none of these flags in the first argument.
fn flags_clear(flags: libc::c_int) -> Result<SeccompRule, BackendError> {
    let op = SeccompCmpOp::MaskedEq(u64::from(flags.cast_unsigned()));
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, 0)?;
    SeccompRule::new(vec![condition])
}
