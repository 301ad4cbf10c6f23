//! Kills a process at random points and opens the cache again: it serves no wrong byte, and fetches
//! no durable chunk twice.
//!
//! The child is this test binary, with its task in the environment.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use forerun_cache::Waited;
use forerun_testkit::rng::Rng;
use forerun_testkit::{children, temp_dir};

use crate::common::{CHUNK_LEN, compare, image, quiet, spec, store};

/// Variable with the child's task: the directory, the seed, and whether there is a table.
const TASK: &str = "FORERUN_CACHE_CRASH";
const CHUNKS: u64 = 256;
const LEN: usize = 255 * CHUNK_LEN + 1000;
const KILLS: u64 = 200;

/// Starts this binary again to run `test`, which is ignored otherwise.
fn child(test: &str, task: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "--ignored", "--nocapture", test])
        .env(TASK, task)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    children::spawn(&mut child).unwrap()
}

fn task() -> Vec<String> {
    let task = std::env::var(TASK).unwrap();
    task.split('|').map(String::from).collect()
}

/// Fetches random chunks until it is killed, and prints which are durable.
#[test]
#[ignore = "run by the other tests as a process of its own"]
fn child_that_stores() {
    let task = task();
    let seed: u64 = task[1].parse().unwrap();
    let bytes = image(1, LEN);
    let cache = quiet(Path::new(&task[0]));
    let blob = cache.blob(spec(&bytes, task[2] == "table")).unwrap();
    let mut out = std::io::stdout();
    let mut rng = Rng::new(seed);
    writeln!(out, "\nready").unwrap();
    loop {
        let start = rng.below(CHUNKS);
        let claim = blob
            .claim(&[start..(start + 1 + rng.below(6)).min(CHUNKS)])
            .unwrap();
        let mine = claim.mine().to_vec();
        for run in &mine {
            store(&blob, &bytes, run.clone());
        }
        drop(claim);
        if rng.below(4) == 0 {
            blob.flush().unwrap();
            let known = blob.known_present(0..CHUNKS);
            let known: Vec<_> = known.into_iter().flatten().map(|n| n.to_string()).collect();
            writeln!(out, "durable {}", known.join(" ")).unwrap();
        }
    }
}

/// Claims everything and never stores anything.
#[test]
#[ignore = "run by the other tests as a process of its own"]
fn child_that_claims() {
    let task = task();
    let cache = quiet(Path::new(&task[0]));
    let blob = cache.blob(spec(&image(1, LEN), true)).unwrap();
    let claim = blob.claim(&[0..CHUNKS]).unwrap();
    assert!(claim.busy().is_empty());
    println!("\nready");
    // After a spurious wake-up, wait again for the kill.
    while claim.busy().is_empty() {
        thread::park();
    }
}

/// Waits for a line of the child's output.
fn wait_for(child: &mut Child, line: &str) -> BufReader<impl Read + use<>> {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while text.trim() != line {
        text.clear();
        assert_ne!(reader.read_line(&mut text).unwrap(), 0, "the child ended");
    }
    reader
}

#[test]
fn killed_at_200_points_it_serves_no_wrong_byte_and_keeps_what_was_durable() {
    let bytes = image(1, LEN);
    let mut rng = Rng::new(7);
    let (mut completed, mut durable_seen) = (0, 0);
    for with_table in [true, false] {
        let mut dir = temp_dir("cache");
        for round in 0..KILLS / 2 {
            let kind = if with_table { "table" } else { "plain" };
            let seed = rng.next_u64();
            let task = format!("{}|{seed}|{kind}", dir.path().display());
            let mut child = child("crash::child_that_stores", &task);
            let mut reader = wait_for(&mut child, "ready");
            thread::sleep(Duration::from_micros(rng.below(6000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let mut told = String::new();
            reader.read_to_string(&mut told).unwrap();
            // Use complete lines only; the last one is the newest.
            let whole = told.rfind('\n').map_or("", |end| &told[..end]);
            let durable = whole
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("durable"));
            let numbers = durable.unwrap_or_default().split_whitespace();
            let durable: BTreeSet<u64> = numbers.map(|number| number.parse().unwrap()).collect();
            durable_seen += durable.len();

            let blob = quiet(dir.path()).blob(spec(&bytes, with_table)).unwrap();
            if with_table {
                let known = blob.known_present(0..CHUNKS);
                let known: BTreeSet<u64> = known.into_iter().flatten().collect();
                assert!(durable.is_subset(&known), "round {round}");
            }
            let served: BTreeSet<u64> = compare(&blob, &bytes).into_iter().collect();
            assert!(durable.is_subset(&served), "round {round}");
            // No claim is left.
            let claim = blob.claim(&[0..CHUNKS]).unwrap();
            assert!(claim.busy().is_empty(), "round {round}");
            drop(claim);
            if blob.is_complete() {
                completed += 1;
                drop(blob);
                dir = temp_dir("cache");
            }
        }
    }
    // Otherwise the kills came too early to test anything.
    assert!(durable_seen > 0, "nothing was ever durable");
    println!("{KILLS} kills, {completed} times complete, {durable_seen} durable chunks told");
}

#[test]
fn claims_of_the_dead_are_free() {
    let dir = temp_dir("cache");
    let task = format!("{}", dir.path().display());
    let mut child = child("crash::child_that_claims", &task);
    let reader = wait_for(&mut child, "ready");
    let bytes = image(1, LEN);
    let blob = quiet(dir.path()).blob(spec(&bytes, true)).unwrap();
    let claim = blob.claim(&[5..9]).unwrap();
    assert_eq!((claim.mine().len(), claim.busy()), (0, &[5..9_u64][..]));
    drop(claim);
    assert_eq!(blob.poll(5).unwrap(), Waited::TimedOut);
    thread::scope(|scope| {
        let waits = scope.spawn(|| blob.wait(5, Duration::from_secs(60)).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(waits.join().unwrap(), Waited::Free);
    });
    let claim = blob.claim(&[5..9]).unwrap();
    assert_eq!((claim.mine(), claim.busy().len()), (&[5..9_u64][..], 0));
    drop(reader);
}
