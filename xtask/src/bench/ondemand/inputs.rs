//! The images that are measured, the server that has them, and what was found about them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use forerun_measure::counters::Counters;
use forerun_measure::process::remove;
use forerun_testkit::rng::Rng;
use forerun_testkit_servers::fault_proxy::Log;
use forerun_testkit_servers::{Auth, DockerRegistry, Nginx};
use serde_json::{Value, json};

use super::rows::{OndemandContender, OndemandImage, OndemandRow};
use super::{OndemandOptions, interpreter};
use crate::bench::comparison::Row as _;
use crate::bench::program::program_in;
use crate::process;

/// Length of the file in the image of a web server, in MB.
const WEB_MB: u64 = 250;

/// The program, and the servers and caches that it is measured with.
pub struct OndemandInputs {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    /// The server of the images that come through the link.
    pub server: Nginx,
    /// The registry of the image that is all here before anything is measured, where one is. Each
    /// chunk from a registry is verified as it comes, and once by each process that reads it.
    registry: Option<DockerRegistry>,
    /// The traffic of the link in the last run of each kind.
    carried: RefCell<BTreeMap<(OndemandRow, OndemandContender), Carried>>,
}

/// The traffic of the link in one run.
#[derive(Clone, Copy, Debug)]
struct Carried {
    requests: usize,
    bytes: u64,
    twice: u64,
    image: u64,
}

impl OndemandInputs {
    /// Makes what is not there, and starts the server.
    pub fn prepare(root: &Path, options: &OndemandOptions, rows: &[OndemandRow]) -> Result<Self> {
        let dir = options.dir.clone();
        let forerun = program_in(root, &dir, options.program.as_deref())?;
        let served = dir.join("served");
        fs::create_dir_all(&served).with_context(|| served.display().to_string())?;
        let server =
            Nginx::serve(&served).context("nginx serves the images: install nginx-light")?;
        let mut inputs = Self {
            dir,
            forerun,
            server,
            registry: None,
            carried: RefCell::default(),
        };
        // Of another run, whose server and images were others.
        remove(&inputs.complete_cache())?;
        remove(&inputs.list())?;
        for image in OndemandImage::ALL {
            if rows.iter().any(|row| row.image() == image) {
                let megabytes = match image {
                    OndemandImage::Local => options.local,
                    OndemandImage::Web => WEB_MB,
                    OndemandImage::Coming => options.coming,
                    OndemandImage::Interpreter => 0,
                };
                inputs.make(image, megabytes * 1_000_000)?;
            }
        }
        if rows.iter().any(|row| row.image() == OndemandImage::Local) {
            let registry = DockerRegistry::start(Auth::None);
            inputs.registry = Some(registry.context("install docker-registry")?);
            let mut push = Command::new(&inputs.forerun);
            push.args(["push", "--quiet"])
                .arg(inputs.image(OndemandImage::Local));
            process::output(push.arg(inputs.address(OndemandImage::Local)))?;
        }
        Ok(inputs)
    }

    /// Returns the image as it is served.
    pub fn image(&self, image: OndemandImage) -> PathBuf {
        self.dir.join("served").join(image.name())
    }

    /// Returns the address of an image without the link.
    pub fn address(&self, image: OndemandImage) -> String {
        let registry = self
            .registry
            .as_ref()
            .filter(|_| image == OndemandImage::Local);
        match registry {
            Some(registry) => format!("oci://{}/bench/local:1", registry.authority()),
            None => self.server.url_of(image.name()),
        }
    }

    /// Returns the directory that an image was made of.
    pub fn source(&self, image: OndemandImage) -> PathBuf {
        self.dir.join("sources").join(image.name())
    }

    /// Returns the cache that is filled before anything is measured.
    pub fn complete_cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// Returns the list of what the interpreter needs.
    pub fn list(&self) -> PathBuf {
        self.dir.join("accesses")
    }

    fn make(&self, image: OndemandImage, len: u64) -> Result<()> {
        let (source, path) = (self.source(image), self.image(image));
        let file = source.join("file");
        let is_made = match image {
            OndemandImage::Local | OndemandImage::Web | OndemandImage::Coming => {
                file.metadata().is_ok_and(|known| known.len() == len)
            }
            OndemandImage::Interpreter => source.is_dir(),
        };
        if !is_made {
            eprintln!("making {}", source.display());
            remove(&source)?;
            remove(&path)?;
            let part = source.with_extension("part");
            remove(&part)?;
            fs::create_dir_all(&part)?;
            match image {
                OndemandImage::Local | OndemandImage::Web | OndemandImage::Coming => {
                    noise(&part.join("file"), len)?
                }
                OndemandImage::Interpreter => interpreter::copy_to(&part)?,
            }
            fs::rename(&part, &source)?;
        }
        // Made anew each time: another program may lay it out differently.
        let mut pack = Command::new(&self.forerun);
        pack.args(["pack", "--quiet", "--force", "--format", "erofs"]);
        process::output(pack.arg(&source).arg(&path))?;
        Ok(())
    }

    /// Takes note of what the link carried, and returns that as counters.
    pub fn carried(
        &self,
        row: OndemandRow,
        contender: OndemandContender,
        log: &Log,
    ) -> Result<Counters> {
        let carried = Carried {
            requests: log.requests(),
            bytes: log.sent(),
            twice: log.all_sent_twice(),
            image: self.image(row.image()).metadata()?.len(),
        };
        self.carried.borrow_mut().insert((row, contender), carried);
        let counters = [
            ("link_requests", u64::try_from(carried.requests)?),
            ("link_bytes", carried.bytes),
            ("link_bytes_twice", carried.twice),
            ("image_bytes", carried.image),
        ];
        Ok(counters
            .map(|(name, count)| (name.to_string(), count))
            .into())
    }

    /// Describes the images for people.
    pub fn text(&self) -> String {
        let images = OndemandImage::ALL.iter().filter_map(|&image| {
            let len = self.image(image).metadata().ok()?.len();
            Some(format!("{} of {} MB", image.name(), len / 1_000_000))
        });
        let images: Vec<String> = images.collect();
        format!("images {}", images.join(", "))
    }

    /// Returns the traffic of the link, for people.
    pub fn remarks(&self) -> String {
        let carried = self.carried.borrow();
        let lines = carried.iter().map(|((row, contender), carried)| {
            let Carried {
                requests,
                bytes,
                twice,
                image,
            } = carried;
            let verdict = match twice {
                0 => "met",
                _ => "MISSED",
            };
            format!(
                "Carried for {}, {contender}: {bytes} bytes of an image of {image}, in {requests} \
                 requests; twice: {twice}, {verdict}.\n",
                row.what()
            )
        });
        lines.collect()
    }

    /// Returns the facts for programs.
    pub fn facts(&self) -> Value {
        let carried = self.carried.borrow();
        let all = carried.iter().map(|((row, contender), carried)| {
            json!({
                "row": row.name(),
                "contender": contender.to_string(),
                "requests": carried.requests,
                "bytes": carried.bytes,
                "bytes_twice": carried.twice,
                "image_bytes": carried.image,
            })
        });
        json!({ "carried": all.collect::<Vec<_>>() })
    }
}

/// Writes a file that nothing can make smaller.
fn noise(path: &Path, len: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut rng = Rng::new(1);
    let mut left = usize::try_from(len)?;
    while left > 0 {
        let bytes = rng.next_u64().to_le_bytes();
        let part = bytes.len().min(left);
        out.write_all(&bytes[..part])?;
        left -= part;
    }
    out.flush()?;
    Ok(())
}
