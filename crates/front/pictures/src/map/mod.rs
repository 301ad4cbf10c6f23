//! A map of an image: the contents of each part, and the largest files and directories.

mod layout;
mod squares;
mod survey;
mod svg;
mod tree;

use forerun_engine::Reader;
use forerun_vfs::{Error, Result};
use serde_json::{Value, json};

use crate::{page, text};
use layout::Layout;
use tree::{Tree, TreeNode};

pub use layout::Kind;
pub use tree::Sums;

const BODY: &str = include_str!("../../assets/map.html");
const SCRIPT: &str = include_str!("../../assets/map.js");

const LISTED: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRuns {
    /// Path without a leading slash.
    pub path: Vec<u8>,
    /// Number of contiguous runs in the image.
    pub runs: u64,
    pub size: u64,
}

#[derive(Clone, Debug)]
pub struct ImageMap {
    format: &'static str,
    is_exact: bool,
    layout: Layout,
    tree: Tree,
    fragmented: Vec<FileRuns>,
}

impl ImageMap {
    /// Surveys an image. Reads only the metadata for a walk and for the extents of files. Calls
    /// `failed` with the path of each file or directory that could not be read.
    ///
    /// # Errors
    /// [`Error::Limit`] if the files have too many extents.
    pub fn survey(reader: &Reader, failed: &mut dyn FnMut(Vec<u8>, Error)) -> Result<Self> {
        survey::survey(reader, failed)
    }

    #[must_use]
    pub const fn format(&self) -> &'static str {
        self.format
    }

    /// Returns whether the totals are exact. They are approximate if the image has more than a
    /// million separate ranges or more than two million files.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.is_exact
    }

    #[must_use]
    pub fn kinds(&self) -> Vec<(Kind, u64)> {
        Kind::ALL.into_iter().zip(self.layout.total.kinds).collect()
    }

    /// Returns the bytes of metadata by the format's name for it.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        self.layout
            .named
            .iter()
            .map(|(&name, &bytes)| (name, bytes))
            .collect()
    }

    #[must_use]
    pub const fn shared(&self) -> u64 {
        self.layout.total.shared
    }

    /// Returns the number of free runs and the length of the longest, `None` if the format does not
    /// report free space.
    #[must_use]
    pub fn free_runs(&self) -> Option<(u64, u64)> {
        self.layout.free.map(|free| (free.runs, free.longest))
    }

    #[must_use]
    pub fn total(&self) -> Sums {
        self.tree
            .nodes
            .first()
            .map_or(Sums::default(), |root| root.sums)
    }

    /// Returns the top-level directories with their totals, largest first, and the totals of
    /// everything else.
    #[must_use]
    pub fn directories(&self) -> (Vec<(Vec<u8>, Sums)>, Sums) {
        let nodes = self.tree.nodes.iter().enumerate();
        let mut dirs: Vec<_> = nodes
            .filter(|(index, node)| *index > 0 && node.parent == 0 && node.is_dir)
            .map(|(_, node)| (node.name.clone(), node.sums))
            .collect();
        dirs.sort_by(|(a_name, a), (b_name, b)| {
            (b.stored.max(b.size), a_name).cmp(&(a.stored.max(a.size), b_name))
        });
        dirs.truncate(LISTED);
        let mut rest = self.total();
        for (_, sums) in &dirs {
            rest.subtract(sums);
        }
        (dirs, rest)
    }

    #[must_use]
    pub fn fragmented(&self) -> &[FileRuns] {
        &self.fragmented
    }

    /// Returns the figures described in docs/json.md.
    #[must_use]
    pub fn json(&self) -> Value {
        let kinds = self.kinds().into_iter();
        let kinds = kinds.map(|(kind, bytes)| json!({ "kind": kind.name(), "bytes": bytes }));
        let named = self.named().into_iter();
        let named = named.map(|(name, bytes)| json!({ "name": name, "bytes": bytes }));
        let (dirs, rest) = self.directories();
        let dirs = dirs.iter().map(|(name, sums)| {
            let mut dir = json!({ "path": format!("/{}", text::name(name)) });
            put(&mut dir, sums);
            dir
        });
        let mut total = json!({});
        put(&mut total, &self.total());
        let mut other = json!({});
        put(&mut other, &rest);
        let free = self.layout.free.map(|free| {
            let lengths = (0_u32..).zip(free.lengths).filter(|(_, count)| *count > 0);
            let lengths: Vec<_> = lengths
                .map(|(log, count)| json!({ "from": 1_u64.checked_shl(log).unwrap_or(0), "count": count }))
                .collect();
            json!({ "runs": free.runs, "longest_bytes": free.longest, "lengths": lengths })
        });
        let fragmented = self.fragmented.iter().map(|file| {
            let path = [b"/", file.path.as_slice()].concat();
            json!({ "path": text::path(&path), "runs": file.runs, "bytes": file.size })
        });
        json!({
            "format": self.format,
            "exact": self.is_exact,
            "image_bytes": self.layout.total.kinds.iter().fold(0_u64, |sum, n| sum.saturating_add(*n)),
            "kinds": kinds.collect::<Vec<_>>(),
            "metadata": named.collect::<Vec<_>>(),
            "shared_bytes": self.shared(),
            "total": total,
            "directories": dirs.collect::<Vec<_>>(),
            "elsewhere": other,
            "free": free,
            "most_fragmented": fragmented.collect::<Vec<_>>(),
        })
    }

    #[must_use]
    pub fn page(&self, title: &str) -> String {
        let bins = |of: &dyn Fn(&layout::Bin) -> u64| -> Value {
            self.layout
                .bins
                .iter()
                .map(|bin| Value::from(of(bin)))
                .collect()
        };
        let kinds = (0..Kind::ALL.len())
            .map(|index| bins(&|bin| bin.kinds.get(index).copied().unwrap_or(0)));
        let data = json!({
            "figures": self.json(),
            "width": self.layout.width,
            "bins": kinds.collect::<Vec<_>>(),
            "shared": bins(&|bin| bin.shared),
            "nodes": self.tree.nodes.iter().map(node).collect::<Vec<_>>(),
        });
        page::page(&format!("Map of {title}"), BODY, &data, SCRIPT)
    }

    /// Returns the map as a static SVG picture.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        svg::draw(self, title)
    }
}

/// Converts a node to JSON: parent, name, whether it is a directory, its totals, and the totals of
/// its small entries.
fn node(node: &TreeNode) -> Value {
    let (sums, rest) = (&node.sums, &node.rest);
    json!([
        node.parent,
        text::name(&node.name),
        u8::from(node.is_dir),
        sums.size,
        sums.stored,
        sums.holes,
        sums.shared,
        sums.files,
        [rest.size, rest.stored, rest.files],
    ])
}

fn put(object: &mut Value, sums: &Sums) {
    for (name, value) in [
        ("files", sums.files),
        ("others", sums.others),
        ("bytes", sums.size),
        ("stored_bytes", sums.stored),
        ("in_image_bytes", sums.in_image()),
        ("hole_bytes", sums.holes),
        ("shared_bytes", sums.shared),
        ("inline_bytes", sums.inline),
        ("outside_bytes", sums.outside),
        ("runs", sums.runs),
        ("fragmented_files", sums.fragmented),
    ] {
        object[name] = value.into();
    }
}
