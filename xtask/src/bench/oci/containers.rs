//! Containers: a containerd of its own, with our snapshotter, and with its own one for overlayfs.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use forerun_measure::process::{Running, collect, remove, spawn};
use forerun_measure::run::Run;
use forerun_testkit_servers::containerd_config;

use super::inputs::{FAST, OciInputs};
use crate::bench::work::drop_all;
use crate::process;

/// The image of a container, as a layout and in the registry.
pub const CONTAINER: &str = "container";
/// The programs that it takes.
pub const PROGRAMS: [&str; 4] = ["containerd", "ctr", "ctr-remote", "runc"];
/// The command of the container. What a container prints just before its end does not always reach `ctr`.
const COMMAND: &str = "import json, ssl; \
    print(json.dumps(ssl.OPENSSL_VERSION), file=open('/printed/text', 'w'))";
/// How long a process may take to listen at its socket.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the layer that a container needs beside the interpreter in `python`: its libraries, and the files that runc looks
/// for.
pub fn make_system(python: &Path, dir: &Path) -> Result<()> {
    for name in ["proc", "sys", "dev", "run", "tmp", "etc", "printed"] {
        fs::create_dir_all(dir.join(name))?;
    }
    fs::write(dir.join("etc/passwd"), "root:x:0:0::/:/bin/python3\n")?;
    fs::write(dir.join("etc/group"), "root:x:0:\n")?;
    let mut ldd = Command::new("ldd");
    ldd.arg(python.join("bin/python3"));
    let mut find = Command::new("find");
    let found = process::output(find.arg(python).args(["-name", "*.so"]))?;
    let said = process::output(ldd.args(found.lines()))?;
    for line in said.lines() {
        // `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` of the loader.
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        let Some(path) = path.filter(|path| !path.ends_with(':')) else {
            continue;
        };
        let to = dir.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a library is in a directory")?)?;
        fs::copy(path, &to).with_context(|| path.to_owned())?;
    }
    Ok(())
}

/// A containerd, and a snapshotter, which have nothing yet.
struct Node {
    dir: PathBuf,
    forerun: PathBuf,
    processes: Vec<Running>,
}

impl Node {
    fn start(inputs: &OciInputs) -> Result<Self> {
        let dir = inputs.dir.join("containerd");
        remove(&dir)?;
        fs::create_dir_all(dir.join("printed"))?;
        let mut node = Self {
            dir,
            forerun: inputs.forerun.clone(),
            processes: Vec::new(),
        };
        let config = containerd_config(&node.dir, "s.sock")?;
        let mut snapshotter = Command::new(&node.forerun);
        snapshotter.args(["snapshotter", "--quiet", "--address"]);
        snapshotter.arg(node.dir.join("s.sock"));
        snapshotter.arg("--root").arg(node.dir.join("snapshots"));
        node.run(&mut snapshotter, "s.sock")?;
        let mut containerd = Command::new("containerd");
        containerd.arg("--config").arg(config);
        node.run(&mut containerd, "c.sock")?;
        Ok(node)
    }

    /// Starts a process, and waits until it listens.
    fn run(&mut self, command: &mut Command, socket: &str) -> Result<()> {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(spawn(quiet)?);
        let (start, socket) = (Instant::now(), self.dir.join(socket));
        while UnixStream::connect(&socket).is_err() {
            if start.elapsed() > PATIENCE {
                bail!("nothing listens at {}", socket.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn client(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut client = Command::new(program);
        client.arg("--address").arg(self.dir.join("c.sock"));
        process::output(client.args(arguments))
    }

    fn printed(&self) -> PathBuf {
        self.dir.join("printed/text")
    }

    /// Pulls the image, as far as this snapshotter needs it, and runs the command.
    fn container(&self, image: &str, snapshotter: &str) -> Result<()> {
        let of = ["--snapshotter", snapshotter];
        let (program, pull) = match snapshotter {
            "overlayfs" => ("ctr", "pull"),
            _ => ("ctr-remote", "rpull"),
        };
        let pull = [&["images", pull, "--plain-http"], &of[..], &[image]].concat();
        self.client(program, &pull)?;
        let mount = format!(
            "type=bind,src={},dst=/printed,options=bind:rw",
            self.dir.join("printed").display()
        );
        let name = format!("forerun-bench-{}", std::process::id());
        let run = ["run", "--rm", "--env", "PYTHONHOME=/", "--mount", &mount];
        let command = [image, &name, "/bin/python3", "-s", "-S", "-c", COMMAND];
        self.client("ctr", &[&run[..], &of, &command].concat())?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for mut process in self.processes.drain(..) {
            let _ended = process.kill();
            let _ended = process.wait();
        }
        let chains = fs::read_dir(self.dir.join("snapshots/chains"));
        for chain in chains.into_iter().flatten().flatten() {
            let mut unmount = Command::new(&self.forerun);
            unmount.args(["umount", "--lazy", "--quiet"]);
            let _taken = collect(unmount.arg(chain.path()));
        }
    }
}

/// Runs a container of an image of which nothing is here, until its command has ended.
pub fn cold(inputs: &OciInputs, snapshotter: &str) -> Result<Run> {
    let node = Node::start(inputs)?;
    let (_link, image) = inputs.link(CONTAINER, FAST)?;
    drop_all()?;
    // What is measured is not how the programs get into memory.
    process::output(Command::new(&inputs.forerun).arg("--version"))?;
    for program in PROGRAMS {
        process::output(Command::new(program).arg("--version"))?;
    }
    let start = Instant::now();
    node.container(&image, snapshotter)?;
    let seconds = start.elapsed().as_secs_f64();
    let found = fs::read_to_string(node.printed())?;
    node.client("ctr", &["images", "rm", "--sync", &image])?;
    Ok(Run {
        seconds,
        found,
        ..Run::default()
    })
}
