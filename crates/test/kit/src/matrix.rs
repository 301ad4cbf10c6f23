//! Tables of a writer's options. Each row makes an image, which other readers judge.
//!
//! A table must vary every option. The options are the fields in the `Debug` text of the rows, so a
//! new field of the type fails the test until a row sets it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use forerun_build::Tree;

use crate::everything::{Xattrs, xattrs_of};
use crate::tree::{Keeps, TreeModel};
use crate::trees::scanned;
use crate::{TempDir, temp_dir};

#[derive(Clone, Debug)]
pub struct Row<O> {
    pub name: String,
    pub options: O,
}

impl<O> Row<O> {
    pub fn new(name: impl Into<String>, options: O) -> Self {
        Self {
            name: name.into(),
            options,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Judged {
    by: Vec<&'static str>,
    not_by: Vec<(&'static str, String)>,
}

impl Judged {
    pub fn by(&mut self, judge: &'static str) {
        self.by.push(judge);
    }

    /// Records a judge that cannot read such an image, and why.
    pub fn not_by(&mut self, judge: &'static str, why: impl Into<String>) {
        self.not_by.push((judge, why.into()));
    }
}

/// A host tree: in the form for writers, and the tree and attributes that judges must see in an
/// image.
#[derive(Debug)]
pub struct Sample {
    pub tree: Tree,
    pub model: TreeModel,
    pub xattrs: Xattrs,
    /// The writer reads contents from here.
    _dir: TempDir,
}

impl Sample {
    pub fn new(populate: impl FnOnce(&Path)) -> Self {
        let dir = temp_dir("matrix");
        populate(dir.path());
        let model = TreeModel::of_host(dir.path()).unwrap();
        Self {
            tree: scanned(dir.path()),
            xattrs: xattrs_of(dir.path(), &model),
            model,
            _dir: dir,
        }
    }

    /// Fails the test unless `root` has this tree, its link counts and, if `has_xattrs`, its
    /// extended attributes.
    pub fn assert_same(&self, root: &Path, has_xattrs: bool) {
        let model = TreeModel::of_host(root).unwrap();
        self.expected(has_xattrs)
            .assert_same(&model, &Keeps::EVERYTHING);
        self.model.assert_link_counts(root);
        let found = xattrs_of(root, &model);
        if has_xattrs {
            assert_eq!(found, self.xattrs)
        } else {
            assert!(found.is_empty(), "{found:?}")
        }
    }

    /// Returns the nodes of an image. Without extended attributes, files that lose their access
    /// control list have the rights that it gave their own group, because the group bits of the
    /// mode were those of the mask.
    pub fn expected(&self, has_xattrs: bool) -> TreeModel {
        let mut model = self.model.clone();
        if has_xattrs {
            return model;
        }
        for (path, xattrs) in &self.xattrs {
            let Some(value) = xattrs.get(&b"system.posix_acl_access"[..]) else {
                continue;
            };
            let rights = |tag: u8| {
                let entry = value[4..].chunks(8).find(|entry| entry[0] == tag);
                entry.map_or(7, |entry| u16::from(entry[2]))
            };
            let node = model.nodes.get_mut(path).unwrap();
            node.mode = node.mode & !0o070 | (rights(0x04) & rights(0x10)) << 3;
        }
        model
    }
}

/// Returns whether tables have every combination of options, which takes minutes.
pub fn every_combination() -> bool {
    std::env::var_os("FORERUN_MATRIX").is_some_and(|value| value == "all")
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Table<'t> {
    pub format: &'t str,
    /// Options whose fields count as one value.
    pub whole: &'t [&'t str],
    /// Paths of options that have one value in all rows, with the reason.
    pub fixed: &'t [(&'t str, &'t str)],
}

/// Judges all rows, each in its own directory, with one thread per CPU. The judge panics if an
/// image differs. Prints how many rows each judge read, and the rows that a judge cannot read.
pub fn judge_all<O: Debug + Sync>(
    table: Table<'_>,
    rows: &[Row<O>],
    judge: impl Fn(&Row<O>, &Path) -> Judged + Sync,
) {
    let format = table.format;
    let options: Vec<&O> = rows.iter().map(|row| &row.options).collect();
    assert_varied(table, &options);
    let names: BTreeSet<&str> = rows.iter().map(|row| &row.name[..]).collect();
    assert_eq!(names.len(), rows.len(), "{format}: two rows have one name");
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let dir = temp_dir(format);
            let outcome = catch_unwind(AssertUnwindSafe(|| judge(row, dir.path())));
            outcomes.lock().unwrap().insert(row.name.clone(), outcome);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(rows.len()) {
            scope.spawn(work);
        }
    });
    report(format, outcomes.into_inner().unwrap());
}

/// Checks that the rows vary every option, for a table whose rows are judged together.
pub fn assert_varied<O: Debug>(table: Table<'_>, rows: &[O]) {
    let format = table.format;
    let mut fixed = never_varied(rows, table.whole);
    for (path, _) in table.fixed {
        let at = fixed.iter().position(|found| found == path);
        fixed.remove(at.unwrap_or_else(|| panic!("{format}: rows differ in {path}")));
    }
    assert!(
        fixed.is_empty(),
        "{format}: no two rows differ in {fixed:?}"
    );
}

type RowOutcome = Result<Judged, Box<dyn Any + Send>>;

fn report(format: &str, outcomes: BTreeMap<String, RowOutcome>) {
    let (mut counts, mut failed) = (BTreeMap::<_, usize>::new(), Vec::new());
    let (mut text, rows) = (String::new(), outcomes.len());
    for (name, outcome) in outcomes {
        match outcome {
            Ok(judged) => {
                if judged.by.is_empty() {
                    failed.push(format!("{name}: no reader judged it"));
                }
                for judge in judged.by {
                    *counts.entry(judge).or_default() += 1;
                }
                for (judge, why) in judged.not_by {
                    text += &format!("  {name}: not by {judge}: {why}\n");
                }
            }
            Err(panic) => {
                let message = panic.downcast_ref::<String>().map(String::as_str);
                let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
                failed.push(format!("{name}: {}", message.unwrap_or("a panic")));
            }
        }
    }
    // The test harness shows println output of failed tests only.
    let _best_effort = writeln!(
        std::io::stderr(),
        "{format}: {rows} rows, judged {counts:?}: {} differences\n{text}",
        failed.len()
    );
    assert!(failed.is_empty(), "{format}:\n{}", failed.join("\n"));
}

/// Returns the paths of options that have one value in all rows.
fn never_varied<O: Debug>(rows: &[O], whole: &[&str]) -> Vec<String> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for options in rows {
        for (path, value) in options_of(&format!("{options:#?}"), whole) {
            values.entry(path).or_default().insert(value);
        }
    }
    // The name of a struct is not an option. The variant of an enum is one if a variant has no
    // fields.
    let is_fixed = |found: &BTreeSet<String>| {
        found.len() < 2 && !found.iter().all(|value| value.ends_with(HOLDS))
    };
    let fixed = values.into_iter().filter(|(_, found)| is_fixed(found));
    fixed.map(|(path, _)| path).collect()
}

/// Marks the name of a value with fields.
const HOLDS: &str = "..";

/// Returns the options in the `Debug` text of a struct: path and value. The fields of a variant are
/// below it: `encoding.Zstd.level`. An option with fields has its name and [`HOLDS`] as its value.
fn options_of(text: &str, whole: &[&str]) -> BTreeMap<String, String> {
    let mut options = BTreeMap::<String, String>::new();
    // The names that each open bracket adds to the path.
    let mut stack: Vec<Vec<&str>> = Vec::new();
    for line in text.lines().skip(1) {
        let line = line.trim().trim_end_matches(',');
        if let ")" | "}" | "]" = line {
            stack.pop();
            continue;
        }
        let (name, value) = match line.split_once(": ") {
            Some((name, value)) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                (Some(name), value)
            }
            _ => (None, line),
        };
        let opened = value.strip_suffix(['(', '{', '[']).map(str::trim);
        let value = opened.unwrap_or(value);
        let path: Vec<&str> = stack.iter().flatten().copied().chain(name).collect();
        match path.first() {
            Some(first) if whole.contains(first) => {
                *options.entry((*first).to_string()).or_default() += value;
            }
            _ if opened.is_none() => *options.entry(path.join(".")).or_default() += value,
            _ => *options.entry(path.join(".")).or_default() += &format!("{value}{HOLDS}"),
        }
        if opened.is_some() {
            let below = [name, Some(value).filter(|value| !value.is_empty())];
            stack.push(below.into_iter().flatten().collect());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Codec {
        None,
        Level { level: u8 },
    }

    #[derive(Clone, Debug)]
    #[expect(dead_code, reason = "only their text is looked at")]
    struct Options {
        codec: Codec,
        size: Option<u32>,
        list: Vec<u8>,
        flag: bool,
        inner: Option<Inner>,
    }

    #[derive(Clone, Debug)]
    #[expect(dead_code, reason = "only its text is looked at")]
    struct Inner {
        depth: u32,
    }

    fn options() -> Options {
        Options {
            codec: Codec::None,
            size: None,
            list: Vec::new(),
            flag: false,
            inner: None,
        }
    }

    #[test]
    fn options_are_found_in_the_text() {
        let with = Options {
            codec: Codec::Level { level: 3 },
            size: Some(7),
            list: vec![1, 2],
            flag: true,
            inner: Some(Inner { depth: 5 }),
        };
        let found = options_of(&format!("{with:#?}"), &[]);
        let found: Vec<_> = found.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        assert_eq!(
            found,
            [
                ("codec", "Level.."),
                ("codec.Level.level", "3"),
                ("flag", "true"),
                ("inner", "Some.."),
                ("inner.Some", "Inner.."),
                ("inner.Some.Inner.depth", "5"),
                ("list", "..12"),
                ("size", "Some.."),
                ("size.Some", "7"),
            ]
        );
        let whole = options_of(&format!("{with:#?}"), &["inner", "list", "size"]);
        assert_eq!(whole["inner"], "SomeInner5");
        assert_eq!(whole["list"], "12");
        assert_eq!(whole["size"], "Some7");
        assert_eq!(whole.len(), 6);
    }

    #[test]
    fn an_option_that_no_row_varies_is_named() {
        let rows = [
            options(),
            Options {
                codec: Codec::Level { level: 3 },
                list: vec![1],
                ..options()
            },
        ];
        let fixed = never_varied(&rows, &["list", "size"]);
        assert_eq!(fixed, ["codec.Level.level", "flag", "inner", "size"]);
    }

    #[test]
    #[should_panic(expected = "second: it differs")]
    fn a_row_that_differs_fails_the_table() {
        let row = |name, flag| Row::new(name, flag);
        let rows = [row("first", false), row("second", true)];
        judge_all(Table::default(), &rows, |row, _| {
            assert!(!row.options, "it differs");
            let mut judged = Judged::default();
            judged.by("a judge");
            judged
        });
    }
}
