//! Runs every target over its seeds and stored inputs, as libFuzzer would, and checks that the
//! table of targets matches the files of each target.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use forerun_fuzzing::{TARGETS, Target, find, kept};
use forerun_testkit::mutate::{each, mutate};
use forerun_testkit::rng::Rng;
use forerun_testkit::workspace_root;
use forerun_vfs::Error;

/// Mutations of all seeds of a target together.
const ROUNDS: usize = 1000;
/// Targets whose inputs are decisions, requests or whole directories. Each input takes
/// milliseconds, and the stored inputs reach more code than mutated seeds do.
const NOT_MUTATED: [&str; 13] = [
    "cache_directory",
    "codec_encode",
    "composefs_written",
    "erofs_written",
    "exfat_model",
    "exfat_operations",
    "exfat_written",
    "fuse_image",
    "fuse_volume",
    "layers_merge",
    "romfs_written",
    "squashfs_written",
    "undo_changes",
];

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn names() -> BTreeSet<String> {
    let names = TARGETS.iter().map(|target| target.name.to_string());
    names.collect()
}

#[test]
fn each_target_has_a_program() {
    assert_eq!(names().len(), TARGETS.len(), "two targets have one name");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--no-deps", "--offline"]);
    cargo.arg("--manifest-path");
    let output = cargo
        .arg(workspace_root().join("fuzz/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let programs = metadata["packages"][0]["targets"].as_array().unwrap();
    let programs: BTreeSet<String> = programs
        .iter()
        .filter(|program| program["kind"][0] == "bin")
        .map(|program| program["name"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(programs, names());
}

#[test]
fn each_target_has_kept_inputs_in_bounds() {
    let (mut found, mut total) = (BTreeSet::new(), 0);
    for entry in fs::read_dir(kept::directory()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let target = name.strip_suffix(".tar.zst");
        found.insert(target.unwrap_or(&name).to_string());
        total += entry.metadata().unwrap().len();
    }
    assert_eq!(found, names());
    assert!(total <= kept::TOTAL.try_into().unwrap(), "{total} bytes");
}

#[test]
fn seeds_their_mutations_and_kept_inputs_are_no_findings() {
    // A thread that answers requests catches a panic, but libFuzzer would stop at it.
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        shown(info);
    }));
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    let work = || {
        while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = replay(target);
            findings.lock().unwrap().extend(found);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(work);
        }
    });
    let findings = findings.into_inner().unwrap();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "panics that were caught");
}

/// Runs all inputs of a target and returns the findings, which are also written to files for `cargo
/// fuzz run`.
fn replay(target: &Target) -> Vec<String> {
    let seeds = target.seeds().unwrap();
    let kept = kept::read(target).unwrap_or_else(|error| panic!("{error}"));
    assert!(!seeds.is_empty() && !kept.is_empty(), "{}", target.name);
    let mut findings = Vec::new();
    let rounds = if NOT_MUTATED.contains(&target.name) {
        0
    } else {
        ROUNDS / seeds.len()
    };
    let mutated = seeds.iter().flat_map(|(name, seed)| {
        let mut rng = Rng::new(seed.len().try_into().unwrap());
        (0..rounds).map(move |round| (format!("{name}-{round}"), mutate(seed, &mut rng)))
    });
    for (name, bytes) in mutated.chain(seeds.iter().cloned()).chain(kept) {
        if let Err(finding) = target.replay(&bytes) {
            let file = format!("{}-{name}", target.name);
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
            fs::write(&path, bytes).unwrap();
            findings.push(format!("{}: {finding}: {}", target.name, path.display()));
        }
    }
    findings
}

/// Returns the errors that a driver reports for an image.
type Walk = fn(&[u8]) -> Vec<Error>;

#[test]
fn images_to_start_from_are_sound_and_mutations_of_them_are_not() {
    let formats: [(&str, Walk, &[&str]); 6] = [
        (
            "romfs_walk",
            forerun_romfs::fuzzing::walk,
            &["corrupt", "directory_loop"],
        ),
        (
            "squashfs_walk",
            forerun_squashfs::fuzzing::walk,
            &["corrupt", "directory_loop", "unsupported"],
        ),
        (
            "erofs_walk",
            forerun_erofs::fuzzing::walk,
            &["corrupt", "unsupported"],
        ),
        (
            "cramfs_walk",
            forerun_cramfs::fuzzing::walk,
            &["corrupt", "directory_loop", "unsupported"],
        ),
        (
            "composefs_walk",
            forerun_composefs::fuzzing::walk,
            &["corrupt"],
        ),
        (
            "exfat_walk",
            forerun_exfat::fuzzing::walk,
            &["corrupt", "unknown_format"],
        ),
    ];
    for (target, walk, kinds) in formats {
        let mut found = BTreeSet::new();
        for (name, seed) in find(target).unwrap().seeds().unwrap() {
            for error in walk(&seed) {
                // composefs: files with unknown digest, and bytes that do not match their digest.
                let told = error.to_string();
                let expected = told.contains("no digest") || told.contains("5a/5a5a");
                assert!(expected, "{target} {name}: {error}");
            }
            each(&seed, 400, |bytes| {
                found.extend(walk(bytes).iter().map(Error::kind));
            });
        }
        for kind in kinds {
            assert!(found.contains(kind), "{target}: {found:?}");
        }
    }
}
