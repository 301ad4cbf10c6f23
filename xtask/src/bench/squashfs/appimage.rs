//! Starts of an AppImage: the time until the application's `main()` runs.
//!
//! Files are in memory, as the disk would be most of the time otherwise. A user without rights starts them, as users do. The application
//! ends at once, and what is left of a start is gone before the next one begins: neither is a part of the time.

use std::env::consts::ARCH;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use forerun_measure::active::temp_dir;
use forerun_measure::process;
use forerun_measure::programs::find_program;
use forerun_measure::run::Run;
use forerun_testkit::generate::write_bytes;

use super::inputs::MKSQUASHFS;
use super::rows::SquashfsContender;
use crate::bench::work::NOBODY;

/// Length of what the application has beside its program. It cannot be compressed.
const LEN: u64 = 200_000_000;
/// Starts in a run: one takes milliseconds.
const STARTS: u32 = 20;
/// Longest wait until a runtime has removed what it made.
const PATIENCE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(1);

/// AppImages of one application, behind several runtimes.
pub struct AppImages {
    dir: PathBuf,
}

/// The type 2 runtime of the AppImage project, by the name of its release for this machine.
pub const OTHER_RUNTIME: &str = match cfg!(target_arch = "aarch64") {
    true => "runtime-aarch64",
    false => "runtime-x86_64",
};

impl AppImages {
    /// Makes them anew where a runtime has changed.
    pub fn prepare(root: &Path, dir: &Path, runtime: Option<&Path>) -> Result<Self> {
        let image = dir.join("app.sqsh");
        if !image.exists() {
            make_image(dir, &image)?;
        }
        let ours = match runtime {
            Some(runtime) => runtime.to_path_buf(),
            None => build(root)?,
        };
        let this = Self {
            dir: dir.to_path_buf(),
        };
        this.join(SquashfsContender::Forerun, &ours, &image)?;
        if let Some(other) = find_program(OTHER_RUNTIME) {
            this.join(SquashfsContender::OtherRuntime, &other, &image)?;
        }
        Ok(this)
    }

    fn path(&self, contender: SquashfsContender) -> PathBuf {
        let name = match contender {
            SquashfsContender::OtherRuntime => "other",
            _ => "forerun",
        };
        self.dir.join(format!("{name}.AppImage"))
    }

    /// Puts the image behind a runtime.
    fn join(&self, of: SquashfsContender, runtime: &Path, image: &Path) -> Result<()> {
        let (path, program) = (self.path(of), fs::read(runtime));
        let program = program.with_context(|| runtime.display().to_string())?;
        let mut out = File::create(&path).with_context(|| path.display().to_string())?;
        io::copy(&mut program.as_slice(), &mut out)?;
        io::copy(&mut File::open(image)?, &mut out)?;
        out.set_permissions(fs::Permissions::from_mode(0o755))?;
        Ok(out.sync_all()?)
    }

    /// Returns where the image begins.
    fn offset(&self, of: SquashfsContender) -> Result<u64> {
        let image = self.dir.join("app.sqsh").metadata()?.size();
        let whole = self.path(of).metadata()?.size();
        whole.checked_sub(image).context("no image behind it")
    }

    /// Measures some starts.
    pub fn measure(&self, contender: SquashfsContender) -> Result<Run> {
        let home = temp_dir("start")?;
        let (dir, log) = (home.path().join("tmp"), home.path().join("log"));
        fs::create_dir(&dir)?;
        for place in [home.path(), &dir] {
            chown(place, Some(NOBODY), Some(NOBODY))?;
        }
        let mut seconds = 0.0;
        // Once more, before the others: files and programs are in memory then.
        for start in 0..=STARTS {
            let took = self.start(contender, &dir, &log);
            let said = fs::read_to_string(&log).unwrap_or_default();
            let took = took.with_context(|| said.trim().to_string())?;
            ensure!(said.is_empty(), "{}", said.trim());
            seconds += if start == 0 { 0.0 } else { took };
        }
        Ok(Run {
            seconds,
            found: format!("{STARTS} starts"),
            ..Run::default()
        })
    }

    /// Starts the application once. Returns the seconds until it ran.
    fn start(&self, contender: SquashfsContender, dir: &Path, log: &Path) -> Result<f64> {
        let run = |mut command: Command| {
            // To a file: a process in the background would keep a pipe open.
            let log = File::options().create(true).append(true).open(log)?;
            // Not by setpriv, which would take a part of the time of all.
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
            command.env("TMPDIR", dir).stdin(Stdio::null());
            command.stdout(log.try_clone()?).stderr(log);
            let status = process::spawn(&mut command).and_then(|mut child| child.wait());
            let status = status.with_context(|| process::describe(&command))?;
            ensure!(
                status.success(),
                "{}: {status}",
                process::describe(&command)
            );
            Ok(())
        };
        let path = self.path(contender);
        let is_mount = contender == SquashfsContender::Squashfuse;
        let mnt = dir.join("mnt");
        if is_mount {
            fs::create_dir(&mnt)?;
            chown(&mnt, Some(NOBODY), Some(NOBODY))?;
        }
        let start = Instant::now();
        if is_mount {
            let mut mount = Command::new("squashfuse_ll");
            mount
                .arg("-o")
                .arg(format!("offset={}", self.offset(contender)?));
            mount.arg(&path).arg(&mnt);
            run(mount)?;
            run(Command::new(mnt.join("AppRun")))?;
        } else {
            run(Command::new(&path))?;
        }
        let seconds = start.elapsed().as_secs_f64();
        if is_mount {
            let mut unmount = Command::new("fusermount3");
            unmount.args(["-u", "-z", "-q"]).arg(&mnt);
            run(unmount)?;
            fs::remove_dir(&mnt)?;
        }
        wait_until_empty(dir)?;
        Ok(seconds)
    }
}

/// Waits until a runtime has removed what it made.
fn wait_until_empty(dir: &Path) -> Result<()> {
    let start = Instant::now();
    while let Some(left) = fs::read_dir(dir)?.next() {
        let left = left?.path();
        ensure!(start.elapsed() < PATIENCE, "{} is left", left.display());
        thread::sleep(STEP);
    }
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf> {
    process::run(Command::new("make").arg("runtime").current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join(format!(
        "{ARCH}-unknown-linux-musl/runtime/appimage/forerun-runtime"
    )))
}

/// Packs an application that ends at once.
fn make_image(dir: &Path, image: &Path) -> Result<()> {
    eprintln!("making {}", image.display());
    let app = dir.join("app");
    fs::create_dir_all(&app)?;
    let Some(program) = find_program("true") else {
        bail!("no program is named true");
    };
    fs::copy(program, app.join("AppRun"))?;
    let mut data = BufWriter::new(File::create(app.join("data"))?);
    write_bytes(&mut data, 1, LEN)?;
    data.into_inner()?.sync_all()?;
    let part = image.with_extension("part");
    let mut command = Command::new("mksquashfs");
    command.arg(&app).arg(&part).args(MKSQUASHFS);
    command.args(["-comp", "zstd", "-Xcompression-level", "1"]);
    process::output(&mut command)?;
    fs::remove_dir_all(&app)?;
    Ok(fs::rename(&part, image)?)
}

/// Returns why starts by this contender cannot be measured, if they cannot.
pub fn missing(contender: SquashfsContender) -> Option<String> {
    let needed = match contender {
        SquashfsContender::OtherRuntime => OTHER_RUNTIME,
        SquashfsContender::Squashfuse => "squashfuse_ll",
        _ => return None,
    };
    let is_there = find_program(needed).is_some();
    (!is_there).then(|| format!("{needed} is not in PATH"))
}
