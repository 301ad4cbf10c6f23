//! The sockets of serving processes: `forerun status` asks for their status, `forerun restart` for
//! a successor.
//!
//! They are in a directory of the user, so only the user and root can connect. An empty question
//! asks for the status, and the answer is one line of JSON. For `restart`, the question is the
//! device number of the mount.
//!
//! Only a process of this user is believed. Its answer is limited in length and in time.
//!
//! A socket's name starts with the process id, for people, and has a random end, because ids are
//! reused and processes of several PID namespaces may have the same one. A socket gets that name
//! only once its process listens, so a socket without a listener is left over from a dead process.
//! The next process that asks removes it.

mod runtime_dir;
mod silent;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use tempfile::TempPath;

use crate::confine::directory_of;
use runtime_dir::Directory;
pub use silent::Silent;

/// Time limit for a program that asks and does not read the answer.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for an answer, which usually takes milliseconds. If disk or memory stalls, a process
/// may not run for seconds. A stopped process never answers, and the user waits this long.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for programs that ask again soon.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of processes asked at the same time.
const ASKED_AT_ONCE: usize = 32;
/// A socket without its final name after this time belongs to a dead process. It is created before
/// the image is opened, which may take long on a slow server.
const NAMED_WITHIN: Duration = Duration::from_secs(600);
const MAX_QUESTION: usize = 64;
const MAX_ANSWER: usize = 1 << 20;
/// Pause between attempts to reach a process that many others ask.
const PAUSE: Duration = Duration::from_millis(5);
/// Suffix of a socket's name.
const NAMED: &str = "sock";
/// Suffix before its process listens.
const UNNAMED: &str = "new";

pub struct Unnamed {
    listener: UnixListener,
    path: TempPath,
}

/// Creates the socket, for a process that can create none later.
pub fn open() -> io::Result<Unnamed> {
    let dir = runtime_dir::place().make()?;
    let opened = Directory::open(dir.clone());
    opened.map_err(|error| io::Error::other(format!("{}: {error}", dir.display())))?;
    listen(&dir)
}

fn listen(dir: &Path) -> io::Result<Unnamed> {
    let pid = std::process::id();
    let made = tempfile::Builder::new()
        .prefix(&format!("{pid}-"))
        .suffix(&format!(".{UNNAMED}"))
        .rand_bytes(8)
        .make_in(dir, |path| UnixListener::bind(path))?;
    std::fs::set_permissions(made.path(), Permissions::from_mode(0o600))?;
    let (listener, path) = made.into_parts();
    Ok(Unnamed { listener, path })
}

impl Unnamed {
    pub fn name(self) -> io::Result<(UnixListener, PathBuf)> {
        let socket = self.path.with_extension(NAMED);
        self.path.persist(&socket).map_err(|error| error.error)?;
        Ok((self.listener, socket))
    }

    pub fn directory(&self) -> &Path {
        directory_of(&self.path)
    }
}

/// Reads a question: empty for the status, or the device number of the mount to restart.
pub fn question(asker: &UnixStream) -> io::Result<String> {
    asker.set_write_timeout(Some(QUESTION_TIMEOUT))?;
    let question = read_all(asker, MAX_QUESTION, Instant::now() + QUESTION_TIMEOUT)?;
    asker.set_read_timeout(None)?;
    Ok(question)
}

/// Asks a process of this user. `question` is empty or a device number. Takes at most `patience`.
pub fn ask(socket: &Path, question: &str, patience: Duration) -> io::Result<String> {
    let until = Instant::now() + patience;
    let mut stream = connect(socket, until)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.uid != rustix::process::geteuid() {
        let why = "a process of another user listens there";
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(question.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    read_all(&stream, MAX_ANSWER, until)
}

/// Connects like [`UnixStream::connect`], but only until a deadline. That function waits forever
/// for a process that accepts no connections.
fn connect(socket: &Path, until: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let stream =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&stream, &address) {
            Ok(()) => {
                let stream = UnixStream::from(stream);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads to the end, at most `most` bytes and no longer than `until`.
fn read_all(mut stream: &UnixStream, most: usize, until: Instant) -> io::Result<String> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        if bytes.len() > most {
            return Err(io::Error::new(ErrorKind::InvalidData, "it says too much"));
        }
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

pub struct StatusAnswer {
    pub socket: PathBuf,
    pub mount: Value,
}

#[derive(Default)]
pub struct Asked {
    pub answers: Vec<StatusAnswer>,
    /// The processes that did not answer in time.
    pub silent: Vec<Silent>,
    /// Ids of killed processes. Their sockets were removed.
    pub gone: Vec<u64>,
}

/// Asks all serving processes, each for at most `patience`. Removes sockets without a listener.
pub fn ask_all(patience: Duration) -> Asked {
    ask_all_in(runtime_dir::place().all(), patience)
}

fn ask_all_in(paths: Vec<PathBuf>, patience: Duration) -> Asked {
    let mut asked = Asked::default();
    for path in paths {
        let name = path.display().to_string();
        match Directory::open(path) {
            Ok(dir) => ask_all_of(&dir, patience, &mut asked),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("{name} is ignored: {error}"),
        }
    }
    asked
}

fn ask_all_of(dir: &Directory, patience: Duration, asked: &mut Asked) {
    let mut sockets = Vec::new();
    let entries = std::fs::read_dir(dir.at(OsStr::new("."))).into_iter();
    for entry in entries.flatten().flatten() {
        let name = entry.file_name();
        let (by_descriptor, socket) = (dir.at(&name), dir.path().join(&name));
        let extension = socket.extension();
        if extension.is_some_and(|extension| extension == UNNAMED) && is_left_over(&by_descriptor) {
            let _gone_already = std::fs::remove_file(&by_descriptor);
        }
        if extension.is_some_and(|extension| extension == NAMED) {
            sockets.push((by_descriptor, socket));
        }
    }
    // In parallel, so that a silent process does not delay the others.
    for sockets in sockets.chunks(ASKED_AT_ONCE) {
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let ask = |socket| {
                let thread = std::thread::Builder::new().name("asking".to_string());
                let asking = thread.spawn_scoped(scope, move || ask_patiently(socket, patience));
                // If no thread can be started, this thread asks.
                asking.map_or_else(
                    |_| Asking::Done(ask_patiently(socket, patience)),
                    Asking::Thread,
                )
            };
            let asking: Vec<_> = sockets.iter().map(|(socket, _)| ask(socket)).collect();
            asking.into_iter().map(Asking::outcome).collect()
        });
        for ((by_descriptor, socket), outcome) in sockets.iter().zip(outcomes) {
            let Some(answer) = outcome else { continue };
            match answer.and_then(|answer| Ok(serde_json::from_str(&answer)?)) {
                Ok(mount) => asked.answers.push(StatusAnswer {
                    socket: socket.clone(),
                    mount,
                }),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let _gone_already = std::fs::remove_file(by_descriptor);
                    asked.gone.push(silent::pid_of(socket));
                }
                // The process has just ended.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    asked.silent.push(Silent::at(socket));
                }
                Err(error) => tracing::warn!("{}: {error}", socket.display()),
            }
        }
    }
}

/// A question to a serving process: pending in a thread, or answered.
enum Asking<'scope> {
    Thread(ScopedJoinHandle<'scope, io::Result<String>>),
    Done(io::Result<String>),
}

impl Asking<'_> {
    fn outcome(self) -> Option<io::Result<String>> {
        match self {
            Self::Thread(thread) => thread.join().ok(),
            Self::Done(outcome) => Some(outcome),
        }
    }
}

/// Asks for the status, and asks again if the process ended before it answered. A socket of an
/// ending process may still accept questions, and asking again shows whether the process is gone.
fn ask_patiently(socket: &Path, patience: Duration) -> io::Result<String> {
    let until = Instant::now() + patience;
    let mut answer = ask(socket, "", patience);
    while answer.as_ref().map_or_else(is_cut_off, String::is_empty) && Instant::now() < until {
        std::thread::sleep(PAUSE);
        let left = until.saturating_duration_since(Instant::now());
        answer = ask(socket, "", left.max(PAUSE));
    }
    answer
}

/// Returns whether the other process closed the connection before it answered.
fn is_cut_off(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn is_left_over(socket: &Path) -> bool {
    let made = socket.symlink_metadata().and_then(|made| made.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > NAMED_WITHIN))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use forerun_testkit::temp_dir;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn names_are_never_the_same() {
        let dir = temp_dir("sockets");
        let (one, first) = listen(dir.path()).unwrap().name().unwrap();
        let (_two, second) = listen(dir.path()).unwrap().name().unwrap();
        assert_ne!(first, second);
        let pid = format!("{}-", std::process::id());
        for name in [&first, &second] {
            assert!(
                name.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with(&pid)
            );
        }
        let answering = std::thread::spawn(move || {
            let (mut asker, _) = one.accept().unwrap();
            asker.write_all(b"{\"pid\":1}\n").unwrap();
        });
        assert_eq!(ask(&first, "", ANSWER_TIMEOUT).unwrap(), "{\"pid\":1}\n");
        answering.join().unwrap();
    }

    #[test]
    fn what_is_left_over_is_removed() {
        let dir = temp_dir("sockets-left");
        let at = |name: &str| dir.path().join(name);
        for name in [
            "7.sock",
            "7-abcdefgh.sock",
            "8-abcdefgh.new",
            "9-abcdefgh.new",
        ] {
            drop(UnixListener::bind(at(name)).unwrap());
        }
        std::fs::write(at("other"), "").unwrap();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let long_ago = rustix::fs::Timespec {
            tv_sec: i64::try_from(now - 1000).unwrap(),
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: long_ago,
            last_modification: long_ago,
        };
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, at("8-abcdefgh.new"), &times, flags).unwrap();
        let (listener, socket) = listen(dir.path()).unwrap().name().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut asker, _) = listener.accept().unwrap();
            asker.write_all(b"{\"pid\":1}\n").unwrap();
        });
        let told = ask_all_in(vec![dir.path().to_path_buf()], ANSWER_TIMEOUT).answers;
        answering.join().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0].socket, &told[0].mount["pid"]),
            (&socket, &1.into())
        );
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        left.retain(|entry| entry.as_ref().unwrap().path() != socket);
        let mut left: Vec<_> = left
            .into_iter()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["9-abcdefgh.new", "other"]);
    }

    #[test]
    fn answers_without_end_are_given_up() {
        let dir = temp_dir("sockets-endless");
        let (listener, socket) = listen(dir.path()).unwrap().name().unwrap();
        let answering = std::thread::spawn(move || {
            // Single bytes never exceed the time limit of one read.
            for piece in [&b" "[..], &[b' '; 8192]] {
                let (mut asker, _) = listener.accept().unwrap();
                while asker.write_all(piece).is_ok() {
                    std::thread::sleep(PAUSE / 5);
                }
            }
        });
        let asked = |patience| ask(&socket, "", patience).unwrap_err().kind();
        assert_eq!(asked(Duration::from_millis(200)), ErrorKind::TimedOut);
        assert_eq!(asked(Duration::from_secs(600)), ErrorKind::InvalidData);
        answering.join().unwrap();
    }

    #[test]
    fn a_process_that_accepts_nothing_is_given_up() {
        let dir = temp_dir("sockets-full");
        let (_listener, socket) = listen(dir.path()).unwrap().name().unwrap();
        let now = Instant::now();
        let mut asking = Vec::new();
        while let Ok(stream) = connect(&socket, now) {
            asking.push(stream);
        }
        let error = ask(&socket, "", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn silent_processes_are_named_and_delay_no_other() {
        let dir = temp_dir("sockets-silent");
        let silent: Vec<_> = (0..5)
            .map(|_| listen(dir.path()).unwrap().name().unwrap())
            .collect();
        let (listener, _) = listen(dir.path()).unwrap().name().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut asker, _) = listener.accept().unwrap();
            asker.write_all(b"{\"pid\":1}\n").unwrap();
        });
        let asked = ask_all_in(vec![dir.path().to_path_buf()], Duration::from_millis(500));
        answering.join().unwrap();
        assert_eq!((asked.answers.len(), asked.silent.len()), (1, 5));
        for process in &asked.silent {
            assert_eq!(process.pid, u64::from(std::process::id()));
            assert_eq!(process.rows()[0]["answering"], false);
        }
        assert!(silent.iter().all(|(_, socket)| socket.exists()));
    }

    #[test]
    fn processes_that_end_while_they_are_asked() {
        for is_accepted in [false, true] {
            let dir = temp_dir("sockets-ending");
            let (listener, socket) = listen(dir.path()).unwrap().name().unwrap();
            let ending = std::thread::spawn(move || {
                if is_accepted {
                    let (asker, _) = listener.accept().unwrap();
                    // Drops the listener first, so that the next question is refused.
                    drop(listener);
                    drop(asker);
                } else {
                    let mut asked = [PollFd::new(&listener, PollFlags::IN)];
                    poll(&mut asked, None).unwrap();
                }
            });
            let asked = ask_all_in(vec![dir.path().to_path_buf()], ANSWER_TIMEOUT);
            assert!(asked.answers.is_empty() && asked.silent.is_empty());
            ending.join().unwrap();
            assert!(!socket.exists());
        }
    }
}
