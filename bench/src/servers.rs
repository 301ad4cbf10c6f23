//! Images in a registry on this machine, behind a proxy that simulates a link.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::figures::Row;
use crate::inputs::Inputs;
use crate::programs::{drop_caches, has, output, remove, timed, turns};

const GROUP: &str = "servers";
/// Bytes per second of a link to a server in the same country, and of one to a distant registry.
const FAST: u64 = 100_000_000;
const SLOW: u64 = 3_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(20);
const PIECE: usize = 16 << 10;
/// A larger program, the first command of a container.
const PROGRAM: &str = "import argparse, asyncio, csv, decimal, http.client, json, logging.handlers, tarfile, \
                       unittest.mock, urllib.request, xml.dom.minidom, zipfile";
const COMMAND: &str = "import json";

pub fn measure(inputs: &Inputs, rounds: usize) -> Result<Vec<Row>> {
    if !has(&[
        "docker-registry",
        "skopeo",
        "umoci",
        "mkfs.erofs",
        "python3",
    ]) {
        return Ok(Vec::new());
    }
    let registry = Registry::start(&inputs.dir.join("registry"))?;
    let mut rows = Vec::new();
    let big = inputs.image("big.erofs", &["mkfs.erofs", "--quiet", "{}", "big"])?;
    push(inputs, &big, &name(registry.address, "big"))?;
    let text = "read an image through the link, from start to end";
    let fast = link(registry.address, FAST)?;
    let len = f64::from(u32::try_from(big.metadata()?.len())?);
    let seconds = turns(
        text,
        rounds,
        || {
            mounted(inputs, &name(fast, "big"), &[], |dir| {
                let mut cat = Command::new("cat");
                cat.arg(dir.join("file"));
                cat
            })
        },
        || Ok(len / f64::from(u32::try_from(FAST)?)),
    )?;
    rows.push(Row::new(GROUP, text, "the speed of the link", seconds));

    inputs.image("python", &["sh", "-euc", COPY_PYTHON, "{}", PROGRAM])?;
    let image = inputs.image(
        "python.erofs",
        &["mkfs.erofs", "--quiet", "-zlz4hc", "{}", "python"],
    )?;
    push(inputs, &image, &name(registry.address, "python"))?;
    let start = |name: &str, options: &[&str], script: &str| {
        mounted(inputs, name, options, |dir| interpreter(dir, script))
    };
    let list = inputs.dir.join("python.list");
    remove(&list)?;
    let list = list.to_str().context("a name in UTF-8")?;
    start(
        &name(registry.address, "python"),
        &["--record", list],
        PROGRAM,
    )?;
    let text = "start Python through the link";
    let python_name = name(fast, "python");
    let seconds = turns(
        text,
        rounds,
        || start(&python_name, &["--prefetch", list], PROGRAM),
        || start(&python_name, &[], PROGRAM),
    )?;
    rows.push(Row::new(GROUP, text, "without a recorded list", seconds));

    let container = name(registry.address, "container").replace("oci://", "docker://");
    let mut make = Command::new("sh");
    make.args(["-euc", MAKE_CONTAINER, &container]);
    output(make.current_dir(&inputs.dir))?;
    let index = inputs.dir.join("container.index");
    let mut make = inputs.forerun(&["index", "--quiet", "--force", "--cache-dir"]);
    make.arg(inputs.dir.join("cache-index"))
        .arg(name(registry.address, "container"));
    output(make.arg(&index))?;
    let slow = link(
        registry.address,
        if inputs.scale.files > 1000 {
            SLOW
        } else {
            FAST
        },
    )?;
    let index = index.to_str().context("a name in UTF-8")?;
    let text = "first command of a container image, gzip, with an index";
    let container = name(slow, "container");
    let pulled = inputs.dir.join("pulled");
    let seconds = turns(
        text,
        rounds,
        || start(&container, &["--layer-index", index], COMMAND),
        || {
            remove(&pulled)?;
            drop_caches()?;
            let mut copy = Command::new("skopeo");
            copy.args(["copy", "--quiet", "--src-tls-verify=false"]);
            copy.arg(container.replace("oci://", "docker://"));
            timed(copy.arg(format!("oci:{}:v", pulled.display())))
        },
    )?;
    rows.push(Row::new(GROUP, text, "a full pull by skopeo", seconds));
    Ok(rows)
}

/// A registry, which ends when dropped.
struct Registry {
    address: SocketAddr,
    server: Child,
}

impl Registry {
    fn start(dir: &Path) -> Result<Self> {
        remove(dir)?;
        fs::create_dir_all(dir)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = format!(
            "version: 0.1\nlog: {{accesslog: {{disabled: true}}, level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{address}\"}}\n",
            dir.display()
        );
        fs::write(dir.join("config.yml"), config)?;
        let mut server = Command::new("docker-registry");
        server.arg("serve").arg(dir.join("config.yml"));
        let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        for _ in 0..500 {
            if TcpStream::connect(address).is_ok() {
                return Ok(Self { address, server });
            }
            thread::sleep(Duration::from_millis(20));
        }
        server.kill()?;
        bail!("docker-registry does not listen");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.server.kill();
        let _ended = self.server.wait();
    }
}

/// Starts a proxy that delays a server's answers like a link with a round trip. Returns its
/// address.
fn link(server: SocketAddr, rate: u64) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    // When the line will have carried everything sent so far.
    let line = Arc::new(Mutex::new(Instant::now()));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let line = Arc::clone(&line);
            // A side that disconnects ends the connection.
            thread::spawn(move || drop(carry(client, server, rate, &line)));
        }
    });
    Ok(address)
}

/// Carries the bytes of both sides of a connection.
fn carry(
    client: TcpStream,
    server: SocketAddr,
    rate: u64,
    line: &Mutex<Instant>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut requests, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = requests.read(&mut buffer) {
            thread::sleep(ROUND_TRIP);
            if to_server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ended = to_server.shutdown(std::net::Shutdown::Write);
    });
    let (mut answers, mut to_client) = (server, client);
    let mut buffer = vec![0; PIECE];
    loop {
        let count = answers.read(&mut buffer)?;
        if count == 0 {
            return to_client.shutdown(std::net::Shutdown::Both);
        }
        let arrives = {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            let time = Duration::from_nanos(count as u64 * 1_000_000_000 / rate);
            *line = (*line).max(Instant::now()) + time;
            *line
        };
        thread::sleep(arrives.saturating_duration_since(Instant::now()));
        to_client.write_all(&buffer[..count])?;
    }
}

/// Mounts a remote image with a separate cache. Returns the seconds of mounting and of the workload.
fn mounted(
    inputs: &Inputs,
    name: &str,
    options: &[&str],
    work: impl FnOnce(&Path) -> Command,
) -> Result<f64> {
    let (dir, cache) = (inputs.dir.join("mnt"), inputs.dir.join("cache"));
    fs::create_dir_all(&dir)?;
    remove(&cache)?;
    drop_caches()?;
    // Loading the program into memory is not measured.
    output(&mut inputs.forerun(&["--version"]))?;
    let mut mount = inputs.forerun(&["mount", "--cache-dir"]);
    let seconds = timed(mount.arg(cache).args(options).arg(name).arg(&dir))?;
    let done = timed(&mut work(&dir));
    output(inputs.forerun(&["umount"]).arg(&dir))?;
    Ok(seconds + done?)
}

/// Returns the name of an image in the registry at this address, or behind it.
fn name(address: SocketAddr, image: &str) -> String {
    format!("oci://{address}/bench/{image}:v")
}

fn push(inputs: &Inputs, image: &Path, name: &str) -> Result<()> {
    output(inputs.forerun(&["push", "--quiet"]).arg(image).arg(name)).map(drop)
}

/// Copies this machine's interpreter and its library into a directory. Modules that were never
/// loaded are compiled there, because a mount would compile them again each time.
const COPY_PYTHON: &str = r#"
    mkdir -p "$0/bin" "$0/lib"
    cp "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$0/bin/python3"
    cp --archive --dereference "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" "$0/lib"
    rm -rf "$0"/lib/*/site-packages "$0"/lib/*/dist-packages "$0"/lib/*/test
    env -i PYTHONHOME="$0" "$0/bin/python3" -s -S -c "$1""#;

/// Returns the command of the interpreter in `dir`, isolated from this machine's modules.
fn interpreter(dir: &Path, script: &str) -> Command {
    let mut command = Command::new(dir.join("bin/python3"));
    command.env_clear().env("PYTHONHOME", dir);
    command.args(["-s", "-S", "-c", script]);
    command
}

/// Makes a container image of one layer, and copies it to the registry.
const MAKE_CONTAINER: &str = r#"
    rm -rf layout
    tar -C python -cf layer.tar .
    umoci init --layout layout
    umoci new --image layout:v
    umoci raw add-layer --image layout:v layer.tar
    skopeo copy --quiet --dest-tls-verify=false oci:layout:v "$0""#;
