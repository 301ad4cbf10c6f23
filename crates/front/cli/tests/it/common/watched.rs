//! Measures the CPU time and memory of a process.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limit on the CPU time of a command.
const PROCESSOR: Duration = Duration::from_secs(10);
/// A command that takes longer hangs. Other tests run at the same time.
const HANGS: Duration = Duration::from_secs(120);
/// Limit on the memory of a command, in KiB.
const MEMORY: u64 = 256 << 10;
/// Clock ticks of /proc per second.
const TICKS: u64 = 100;
const INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Watched {
    pub code: Option<i32>,
    pub stderr: String,
    /// Peak resident memory in KiB; 0 if the process ended at once.
    pub peak: u64,
    pub processor: Duration,
}

/// A measured process, which is killed when dropped.
pub struct Running {
    child: Child,
    began: Instant,
    so_far: Watched,
    is_over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

pub fn watch(command: &mut Command, what: &str) -> Watched {
    let mut running = Watched::start(command.stderr(Stdio::piped()));
    let mut pipe = running.child.stderr.take().unwrap();
    let stderr = std::thread::spawn(move || {
        let mut text = Vec::new();
        // Keeps only the start of very long error output.
        let _ = (&mut pipe).take(1 << 20).read_to_end(&mut text);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    });
    while running.is_running(what) {}
    let mut watched = running.ended();
    watched.stderr = stderr.join().unwrap();
    watched
}

impl Watched {
    pub fn start(command: &mut Command) -> Running {
        Running {
            child: command.spawn().unwrap(),
            began: Instant::now(),
            so_far: Self::default(),
            is_over: false,
        }
    }

    /// Fails if the process used too much, was killed, or panicked.
    #[track_caller]
    pub fn judge(&self, what: &str, args: &[&str]) {
        let told = self.stderr.get(..2000).unwrap_or(&self.stderr);
        let is_sound = self.code.is_some_and(|code| code < 100) && !told.contains("panicked");
        assert!(
            is_sound,
            "{what}: {args:?} ended with {:?}: {told}",
            self.code
        );
        let peak = self.peak;
        assert!(peak <= MEMORY, "{what}: {args:?} took {peak} KiB");
        let took = self.processor;
        assert!(took <= PROCESSOR, "{what}: {args:?} took {took:?}");
    }
}

impl Running {
    /// Measures the process after a pause. Usage after the last measurement is missed.
    pub fn is_running(&mut self, what: &str) -> bool {
        if self.is_over {
            return false;
        }
        let dir = format!("/proc/{}", self.child.id());
        let status = fs::read_to_string(format!("{dir}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok());
        self.so_far.peak = peak.unwrap_or(0).max(self.so_far.peak);
        let stat = fs::read_to_string(format!("{dir}/stat")).unwrap_or_default();
        // Fields 12 and 13 after the name, which may contain anything.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
        let processor = Duration::from_millis(ticks * 1000 / TICKS);
        self.so_far.processor = processor.max(self.so_far.processor);
        if let Some(status) = self.child.try_wait().unwrap() {
            self.so_far.code = status.code();
            self.is_over = true;
            return false;
        }
        let took = self.began.elapsed();
        assert!(took < HANGS, "{what}: it has not ended after {took:?}");
        sleep(INTERVAL);
        true
    }

    pub fn ended(mut self) -> Watched {
        assert!(self.is_over);
        std::mem::take(&mut self.so_far)
    }
}
