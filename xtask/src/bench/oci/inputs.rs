//! The images that are measured, and the registry that has them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use forerun_measure::process::remove;
use forerun_testkit::generate;
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link};
use forerun_testkit_servers::{Auth, DockerRegistry};
use serde_json::{Value, json};

use super::OciOptions;
use super::containers::{CONTAINER, make_system};
use super::images::{TAG, archive, layout};
use super::rows::{LayerForm, OciContender, OciRow};
use crate::bench::ondemand::interpreter;
use crate::bench::program::program_in;
use crate::process;

/// For people.
pub const LINK_TEXT: &str = "3 MB/s, for containers 100 MB/s, 20 ms";
/// Bytes that the link carries in a second, and that of a cluster.
pub const RATE: u64 = 3_000_000;
pub const FAST: u64 = 100_000_000;
/// Files of the lowest of the layers that are listed, and about how long each is.
const MANY: u64 = 40_000;
const MANY_MEAN: u64 = 2_000;
/// Files of each layer above it.
const FEW: u64 = 2_000;
/// Length of a file that fills the image up.
const FILLER: u64 = 1_000_000;
/// Most memory that a conversion may take.
const MEMORY: u64 = 512 << 20;

/// The program, and the registry and images that it is measured with.
pub struct OciInputs {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    registry: Option<DockerRegistry>,
    /// Bytes of the index of the gzip layers, and of the layers.
    index: Option<(u64, u64)>,
    /// The most memory that a contender had.
    peaks: RefCell<BTreeMap<(OciRow, OciContender), u64>>,
}

impl OciInputs {
    /// Makes what is not there, and starts the registry.
    pub fn prepare(root: &Path, options: &OciOptions, rows: &[OciRow]) -> Result<Self> {
        let dir = options.dir.clone();
        let forerun = program_in(root, &dir, options.program.as_deref())?;
        let mut inputs = Self {
            dir,
            forerun,
            registry: None,
            index: None,
            peaks: RefCell::default(),
        };
        // Of another run, whose program and images were others.
        remove(&inputs.kept_cache())?;
        let pulled = rows.iter().filter_map(|row| row.form());
        let pulled: Vec<LayerForm> = pulled.collect();
        let has_container = rows.contains(&OciRow::Container);
        if has_container || !pulled.is_empty() {
            inputs.make_python(options.image * 1_000_000)?;
            let registry = DockerRegistry::start(Auth::None);
            inputs.registry = Some(registry.context("install docker-registry")?);
        }
        for form in LayerForm::ALL {
            if pulled.contains(&form) {
                inputs.push(form.name())?;
            }
        }
        if has_container {
            inputs.make_container()?;
            inputs.push(CONTAINER)?;
        }
        if rows.contains(&OciRow::Kept) {
            inputs.keep_index()?;
        }
        if rows.contains(&OciRow::Random) {
            inputs.make_archive(options.archive * 1_000_000)?;
        }
        if rows.contains(&OciRow::List) || rows.contains(&OciRow::Convert) {
            inputs.make_many()?;
        }
        Ok(inputs)
    }

    /// Returns the directory of a layer, as it was before it was packed.
    pub fn layer(&self, image: &str, number: usize) -> PathBuf {
        self.dir.join("layers").join(image).join(number.to_string())
    }

    /// Returns the layout of an image.
    pub fn layout(&self, image: &str) -> PathBuf {
        self.dir.join("layouts").join(image)
    }

    /// Returns the archive that is read at random places; the file in it is `file`.
    pub fn archive(&self) -> PathBuf {
        self.dir.join("archive.tar.gz")
    }

    /// Returns the cache that has the indexes of layers, and no layer.
    pub fn kept_cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// Starts the link, and returns it with the name of an image behind it, without `oci://`.
    pub fn link(&self, image: &str, rate: u64) -> Result<(FaultProxy, String)> {
        let registry = self.registry.as_ref().context("no registry was started")?;
        let proxy = FaultProxy::start(&registry.authority());
        proxy.set_link(Link {
            rtt: Duration::from_millis(20),
            bytes_per_second: Some(rate),
        });
        let name = format!("{}/bench/{image}:{TAG}", proxy.authority());
        Ok((proxy, name))
    }

    /// Makes an image of an interpreter above files that fill it up, in all forms.
    fn make_python(&self, len: u64) -> Result<()> {
        let (lower, upper) = (self.layer("python", 0), self.layer("python", 1));
        let wanted = (len / FILLER).to_string();
        let mark = self.dir.join("layers/python/made");
        if fs::read_to_string(&mark).is_ok_and(|made| made == wanted) {
            return Ok(());
        }
        remove(&self.dir.join("layers/python"))?;
        remove(&self.layout(CONTAINER))?;
        fs::create_dir_all(lower.join("usr/share"))?;
        fs::create_dir_all(&upper)?;
        interpreter::copy_to(&upper)?;
        let interpreter = crate::bench::tree::count(&upper)?.1;
        for number in 0..len.saturating_sub(interpreter) / FILLER {
            let path = lower.join(format!("usr/share/file-{number}"));
            // As much of it is text as of a system's files.
            let half = usize::try_from(FILLER / 2)?;
            let bytes = [generate::text(half), generate::bytes(number, half)].concat();
            fs::write(path, bytes)?;
        }
        let archives = self.archives("python", 2)?;
        for form in LayerForm::ALL {
            eprintln!("making {}", self.layout(form.name()).display());
            layout(&self.layout(form.name()), &archives, form)?;
        }
        fs::write(mark, wanted)?;
        Ok(())
    }

    /// Makes an image of the same layers, with one more that lets the interpreter run in a container.
    fn make_container(&self) -> Result<()> {
        let out = self.layout(CONTAINER);
        if out.join("index.json").exists() {
            return Ok(());
        }
        remove(&self.dir.join("layers").join(CONTAINER))?;
        eprintln!("making {}", out.display());
        let system = self.layer(CONTAINER, 0);
        make_system(&self.layer("python", 1), &system)?;
        let mut archives = self.archives("python", 2)?;
        archives.extend(self.archives(CONTAINER, 1)?);
        layout(&out, &archives, LayerForm::Estargz)
    }

    /// Makes an image of many files in three layers, the upper ones with files in the place of others.
    fn make_many(&self) -> Result<()> {
        let out = self.layout("many");
        if out.join("index.json").exists() {
            return Ok(());
        }
        eprintln!("making {}", out.display());
        remove(&self.dir.join("layers/many"))?;
        for (number, files) in [MANY, FEW, FEW].into_iter().enumerate() {
            let dir = self.layer("many", number);
            fs::create_dir_all(&dir)?;
            generate::spread(&dir, files, MANY_MEAN)?;
        }
        layout(&out, &self.archives("many", 3)?, LayerForm::Gzip)
    }

    /// Makes archives of the layers of an image, the lowest first.
    fn archives(&self, image: &str, count: usize) -> Result<Vec<PathBuf>> {
        let made = (0..count).map(|number| {
            let dir = self.layer(image, number);
            let path = dir.with_extension("tar");
            archive(&dir, &path)?;
            Ok(path)
        });
        made.collect()
    }

    fn make_archive(&self, len: u64) -> Result<()> {
        let (dir, out) = (self.dir.join("archived"), self.archive());
        let file = dir.join("file");
        let is_made = file.metadata().is_ok_and(|known| known.len() == len);
        if is_made && out.exists() {
            return Ok(());
        }
        eprintln!("making {}", out.display());
        fs::create_dir_all(&dir)?;
        generate::big_file(&file, len)?;
        let mut tar = Command::new("tar");
        tar.args(["--use-compress-program=gzip -1", "-C"]).arg(&dir);
        process::run(tar.arg("-cf").arg(&out).arg("file"))
    }

    /// Stores an image in the registry.
    fn push(&self, name: &str) -> Result<()> {
        let registry = self.registry.as_ref().context("no registry was started")?;
        let mut copy = Command::new("skopeo");
        copy.args(["copy", "--quiet", "--preserve-digests"]);
        copy.arg("--dest-tls-verify=false");
        copy.arg(format!("oci:{}:{TAG}", self.layout(name).display()));
        let to = format!("docker://{}/bench/{name}:{TAG}", registry.authority());
        process::run(copy.arg(to))
    }

    /// Fills the cache with the indexes of the gzip layers, and drops the layers.
    fn keep_index(&mut self) -> Result<()> {
        let registry = self.registry.as_ref().context("no registry was started")?;
        let name = LayerForm::Gzip.name();
        let address = format!("oci://{}/bench/{name}:{TAG}", registry.authority());
        let (cache, index) = (self.kept_cache(), self.dir.join("index"));
        let mut make = Command::new(&self.forerun);
        make.args(["index", "--quiet", "--force", "--cache-dir"])
            .arg(&cache);
        process::run(make.arg(address).arg(&index))?;
        let mut drop_layers = Command::new(&self.forerun);
        drop_layers.args(["cache", "gc", "--quiet", "--cache-dir"]);
        process::run(drop_layers.arg(&cache))?;
        let blobs = fs::read_dir(self.layout(name).join("blobs/sha256"))?;
        let mut layers = 0;
        for blob in blobs {
            layers += blob?.metadata()?.len();
        }
        self.index = Some((index.metadata()?.len(), layers));
        Ok(())
    }

    /// Takes note of the memory of a run.
    pub fn had(&self, row: OciRow, contender: OciContender, peak: Option<u64>) {
        let mut peaks = self.peaks.borrow_mut();
        let most = peaks.entry((row, contender)).or_default();
        *most = (*most).max(peak.unwrap_or(0));
    }

    fn peak(&self, row: OciRow, contender: OciContender) -> Option<u64> {
        let peaks = self.peaks.borrow();
        peaks
            .get(&(row, contender))
            .copied()
            .filter(|peak| *peak > 0)
    }

    /// Describes the images for people.
    pub fn text(&self) -> String {
        let lens = LayerForm::ALL.iter().filter_map(|form| {
            let blobs = fs::read_dir(self.layout(form.name()).join("blobs/sha256")).ok()?;
            let lens = blobs.flatten().filter_map(|blob| blob.metadata().ok());
            let len: u64 = lens.map(|metadata| metadata.len()).sum();
            Some(format!("{} of {} MB", form.name(), len / 1_000_000))
        });
        let lens: Vec<String> = lens.collect();
        format!("images {}", lens.join(", "))
    }

    /// Returns what is no time, for people.
    pub fn remarks(&self) -> String {
        let verdict = |is_met| if is_met { "met" } else { "MISSED" };
        let mut text = String::new();
        if let Some((index, layers)) = self.index {
            text += &format!(
                "Index of the gzip layers: {index} bytes for {layers}; at most 1 %: {}.\n",
                verdict(index * 100 <= layers)
            );
        }
        let (ours, theirs) = (OciContender::Forerun, OciContender::Ratarmount);
        let peaks = [ours, theirs].map(|contender| self.peak(OciRow::Random, contender));
        if let [Some(ours), Some(theirs)] = peaks {
            text += &format!(
                "Memory for reads at random places: {ours} bytes, ratarmount {theirs}; at most 0.2: {}.\n",
                verdict(ours * 5 <= theirs)
            );
        }
        if let Some(peak) = self.peak(OciRow::Convert, ours) {
            text += &format!(
                "Memory for the conversion: {peak} bytes; at most {MEMORY}: {}.\n",
                verdict(peak <= MEMORY)
            );
        }
        text
    }

    /// Returns the facts for programs.
    pub fn facts(&self) -> Value {
        let peaks = self.peaks.borrow();
        let peaks = peaks.iter().map(|((row, contender), peak)| {
            use crate::bench::comparison::Row as _;
            json!({"row": row.name(), "contender": contender.to_string(), "peak_bytes": peak})
        });
        json!({
            "index_bytes": self.index.map(|(index, _)| index),
            "layer_bytes": self.index.map(|(_, layers)| layers),
            "peaks": peaks.collect::<Vec<_>>(),
        })
    }
}
