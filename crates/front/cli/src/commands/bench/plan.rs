//! The plan of a measurement: the workloads, and the contenders that run them.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::Value;

use crate::measure::peers::{Peer, Place, lacks_fuse};
use crate::measure::work::PAGE;

/// Bytes of the largest file that cat reads.
pub const CAT_BYTES: u64 = 1 << 30;

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchWork {
    /// Mount, and list the root
    Start,
    /// Read the largest file, cold
    CatCold,
    /// Read the largest file again, from the cache
    CatCached,
    /// Read 4,000 random pages of the largest file with 2 threads, cold
    Random,
    /// List the tree with `ls -lR`, cold
    Ls,
    /// Read all files with one process, cold
    Tree,
    /// Read all files with several processes, cold
    TreeN,
    /// Extract, cold
    Extract,
}

impl BenchWork {
    /// Returns the name in `--only` and JSON.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }

    /// Returns the contents that the workload reads. Workloads with equal contents have equal digests.
    pub const fn contents(self) -> Option<Contents> {
        match self {
            Self::Start => None,
            Self::CatCold | Self::CatCached => Some(Contents::File),
            Self::Random => Some(Contents::Pages),
            Self::Ls | Self::Tree | Self::TreeN | Self::Extract => Some(Contents::Tree),
        }
    }

    /// Returns the length of the file that the workload needs, or 0.
    const fn needs(self) -> u64 {
        match self {
            Self::CatCold | Self::CatCached => 1,
            Self::Random => PAGE,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contents {
    /// The largest file, or its beginning.
    File,
    Pages,
    Tree,
}

impl Contents {
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Pages => "pages",
            Self::Tree => "tree",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    /// forerun: its mount, and `extract`.
    Forerun,
    Library,
    Peer(Peer),
}

impl Contender {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forerun => "forerun",
            Self::Library => "library",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Parses a name given to `--with` or `--without`.
    pub fn parse(name: &str) -> Result<Self, String> {
        let all = || {
            let own = [Self::Forerun, Self::Library];
            own.into_iter().chain(Peer::ALL.map(Self::Peer))
        };
        all()
            .find(|contender| contender.name() == name)
            .ok_or_else(|| {
                let names: Vec<&str> = all().map(Self::name).collect();
                format!("known: {}", names.join(", "))
            })
    }

    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Forerun | Self::Library)
    }

    pub const fn can(self, work: BenchWork) -> bool {
        match (self, work) {
            (Self::Forerun, _) => true,
            // The library's cache ends with its process.
            (Self::Library, BenchWork::CatCached | BenchWork::TreeN) => false,
            (Self::Library, _) => true,
            (Self::Peer(peer), BenchWork::Extract) => !peer.mounts(),
            (Self::Peer(peer), _) => peer.mounts(),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The facts about an image that decide what is measured, from a sandboxed process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub format: String,
    /// Offset of the image in the file.
    pub offset: u64,
    pub files: u64,
    pub bytes: u64,
    /// Path of the largest file, relative to the root.
    pub largest: PathBuf,
    pub largest_bytes: u64,
}

impl Survey {
    pub fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |key: &str| value.get(key)?.as_u64();
        let path = value.get("largest")?.as_array()?.iter();
        let path = path.map(|byte| u8::try_from(byte.as_u64()?).ok());
        let path: Vec<u8> = path.collect::<Option<_>>()?;
        Some(Self {
            format: value.get("format")?.as_str()?.to_string(),
            offset: number("offset")?,
            files: number("files")?,
            bytes: number("bytes")?,
            largest: PathBuf::from(OsString::from_vec(path)),
            largest_bytes: number("largest_bytes")?,
        })
    }

    /// Returns how many bytes of the largest file cat reads.
    pub fn cat_bytes(&self) -> u64 {
        self.largest_bytes.min(CAT_BYTES)
    }
}

/// The workloads and contenders of a measurement, and the reasons for omissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub rows: Vec<(BenchWork, Vec<Contender>)>,
    /// Contenders that cannot take part, and why.
    pub missing: Vec<(Contender, String)>,
    pub left_out: Vec<(BenchWork, String)>,
}

#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Workloads to run. If empty, all of them.
    pub only: Vec<BenchWork>,
    /// Contenders to include. If empty, those that read the format.
    pub with: Vec<Contender>,
    pub without: Vec<Contender>,
}

/// Plans what to measure. `missing` returns why a contender cannot take part.
pub fn plan(
    survey: &Survey,
    choice: &Choice,
    missing: &dyn Fn(Contender) -> Option<String>,
) -> Plan {
    let mut plan = Plan::default();
    let contenders = contenders(survey, choice, missing, &mut plan.missing);
    let all = BenchWork::value_variants();
    let works = match choice.only.as_slice() {
        [] => all,
        only => only,
    };
    for &work in all.iter().filter(|work| works.contains(work)) {
        if survey.largest_bytes < work.needs() {
            let why = format!("no file of the image has {} bytes", work.needs());
            plan.left_out.push((work, why));
            continue;
        }
        // Extraction needs no mount, so mount and library would do the same.
        let is_twice = |by: &Contender| {
            let is_extraction = work == BenchWork::Extract && *by == Contender::Library;
            is_extraction && contenders.contains(&Contender::Forerun)
        };
        let able = contenders.iter().copied();
        let able = able.filter(|by| by.can(work) && !is_twice(by));
        let able: Vec<Contender> = able.collect();
        if able.iter().any(|contender| contender.is_ours()) {
            plan.rows.push((work, able))
        } else {
            plan.left_out.push((work, "needs a mount".to_string()))
        }
    }
    plan
}

fn contenders(
    survey: &Survey,
    choice: &Choice,
    missing: &dyn Fn(Contender) -> Option<String>,
    lacking: &mut Vec<(Contender, String)>,
) -> Vec<Contender> {
    let peers = Peer::of_format(&survey.format).iter();
    let mut asked = vec![Contender::Forerun];
    if choice.with.is_empty() {
        asked.extend(peers.map(|peer| Contender::Peer(*peer)));
    } else {
        asked.extend(choice.with.iter().filter(|by| **by != Contender::Forerun));
    }
    asked.retain(|contender| !choice.without.contains(contender));
    let mut able = Vec::new();
    for contender in asked {
        // The faster `squashfuse_ll` is enough; `squashfuse` is measured only if it is asked for or
        // alone.
        let is_second = contender == Contender::Peer(Peer::Squashfuse)
            && choice.with.is_empty()
            && able.contains(&Contender::Peer(Peer::SquashfuseLl));
        match missing(contender) {
            _ if is_second => {}
            None => able.push(contender),
            Some(why) => lacking.push((contender, why)),
        }
    }
    // If forerun cannot mount, the library takes its place, except for extraction.
    let is_enough = [Contender::Forerun, Contender::Library]
        .iter()
        .any(|by| able.contains(by));
    if !is_enough && !choice.without.contains(&Contender::Library) {
        able.insert(0, Contender::Library);
    }
    able
}

pub fn missing_here(contender: Contender, place: &Place<'_>) -> Option<String> {
    match contender {
        Contender::Forerun => lacks_fuse(),
        Contender::Library => None,
        Contender::Peer(peer) if !Peer::of_format(place.format).contains(&peer) => {
            Some(format!("{} cannot read {}", peer.name(), place.format))
        }
        Contender::Peer(peer) => peer.missing(place),
    }
}
