//! A seccomp filter that keeps a program from putting characters into the input of its terminal.
//!
//! The shell on that terminal would read them as if they were typed. The filter works without
//! no_new_privs, so that set-user-ID programs still work. It permits system calls of other
//! architectures, and recognises their numbers of ioctl(2).

use std::io;

const REQUESTS: [u32; 2] = [0x5412, 0x541C];
/// The number of ioctl(2) in each architecture that the machines of this program can run: x86-64
/// and its x32, i386, AArch64, 32-bit Arm.
const IOCTL: [(u32, u32); 5] = [
    (0xC000_003E, 16),
    (0xC000_003E, 0x4000_0202),
    (0x4000_0003, 54),
    (0xC000_00B7, 29),
    (0x4000_0028, 54),
];
/// Offsets in `seccomp_data`: the number of the call, the architecture, and the half of the second
/// argument that ioctl(2) uses.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const REQUEST: u32 = if cfg!(target_endian = "little") {
    24
} else {
    28
};

/// Codes of instructions: `BPF_LD | BPF_W | BPF_ABS`, `BPF_JMP | BPF_JEQ | BPF_K` and `BPF_RET |
/// BPF_K`.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Refuses TIOCSTI and TIOCLINUX to this thread, to the threads and processes that it starts, and
/// to the programs that they execute. Needs `CAP_SYS_ADMIN` in the user namespace of the thread.
///
/// # Errors
/// The errors of prctl(2).
pub fn refuse_terminal_input() -> io::Result<()> {
    let mut filter = filter();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `program` points to as many initialised instructions as it says. The kernel copies
    // them during the call.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const program,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn filter() -> Vec<libc::sock_filter> {
    let mut filter = Vec::new();
    for (architecture, ioctl) in IOCTL {
        // A condition that does not hold jumps to the instructions of the next architecture.
        filter.extend([
            load(ARCHITECTURE),
            unless(architecture, 6),
            load(NUMBER),
            unless(ioctl, 4),
            load(REQUEST),
            jump_if(REQUESTS[0], 1),
            unless(REQUESTS[1], 1),
            refuse(),
        ]);
    }
    filter.push(returning(libc::SECCOMP_RET_ALLOW));
    filter
}

const fn load(offset: u32) -> libc::sock_filter {
    instruction(LOAD, (0, 0), offset)
}

const fn unless(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(JUMP_IF_EQUAL, (0, skipped), value)
}

const fn jump_if(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(JUMP_IF_EQUAL, (skipped, 0), value)
}

const fn refuse() -> libc::sock_filter {
    returning(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned())
}

const fn returning(action: u32) -> libc::sock_filter {
    instruction(RETURN, (0, 0), action)
}

const fn instruction(code: u16, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the filter for a call, as the kernel does.
    fn is_refused(architecture: u32, number: u32, request: u32) -> bool {
        let filter = filter();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = filter[at];
            at += 1;
            let skipped = match step.code {
                LOAD => {
                    loaded = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        REQUEST => request,
                        other => panic!("loads {other}"),
                    };
                    0
                }
                RETURN => return step.k != libc::SECCOMP_RET_ALLOW,
                _ if loaded == step.k => step.jt,
                _ => step.jf,
            };
            at += usize::from(skipped);
        }
    }

    #[test]
    fn the_requests_are_refused_in_each_architecture_and_nothing_else_is() {
        for (architecture, ioctl) in IOCTL {
            for request in REQUESTS {
                assert!(is_refused(architecture, ioctl, request));
                assert!(!is_refused(architecture, ioctl + 1, request));
                assert!(!is_refused(architecture + 1, ioctl, request));
            }
            assert!(!is_refused(architecture, ioctl, 0x5413));
        }
        let of_this_one = |number: u32| libc::c_long::from(number) == libc::SYS_ioctl;
        assert!(IOCTL.iter().any(|(_, number)| of_this_one(*number)));
    }

    #[test]
    fn the_kernel_takes_the_filter() {
        // The filter applies only to the thread that installs it.
        let refused = std::thread::spawn(|| {
            let installed = refuse_terminal_input();
            if let Err(error) = installed {
                assert!(!rustix::process::geteuid().is_root(), "{error}");
                return;
            }
            let terminal = std::fs::File::open("/dev/null").unwrap();
            // SAFETY: TIOCSTI reads one byte at the pointer.
            let done = unsafe {
                libc::ioctl(
                    std::os::fd::AsRawFd::as_raw_fd(&terminal),
                    libc::TIOCSTI,
                    c"x".as_ptr(),
                )
            };
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!((done, error), (-1, Some(libc::EPERM)));
            // The filter passes any other request to the device. SAFETY: TIOCGWINSZ writes a
            // `winsize` at the pointer.
            let done = unsafe {
                let mut size: libc::winsize = std::mem::zeroed();
                libc::ioctl(
                    std::os::fd::AsRawFd::as_raw_fd(&terminal),
                    libc::TIOCGWINSZ,
                    &raw mut size,
                )
            };
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!((done, error), (-1, Some(libc::ENOTTY)));
        });
        refused.join().unwrap();
    }
}
