use super::*;
use crate::tuning::TREE_FILE;
use forerun_testkit::{MemFsBuilder, Piece};

const ALL: usize = usize::MAX;

/// Creates three directories of four files, 100 bytes each, and a file after them.
fn tree() -> (Arc<dyn FileSystem>, Vec<NodeId>) {
    let mut builder = MemFsBuilder::new();
    let mut files = Vec::new();
    for dir in ["a", "b", "c"] {
        for file in 0..4 {
            let path = format!("{dir}/{file}");
            files.push(builder.file(&path, [Piece::Stored(vec![1; 100])]));
        }
    }
    files.push(builder.file("z", [Piece::Stored(vec![1; 100])]));
    (builder.build().driver(), files)
}

fn one_directory(count: u32) -> (Arc<dyn FileSystem>, Vec<NodeId>) {
    let mut builder = MemFsBuilder::new();
    let file = |n| builder.file(&format!("{n:04}"), [Piece::Stored(vec![1; 5000])]);
    let files = (0..count).map(file).collect();
    (builder.build().driver(), files)
}

fn list(ahead: &TreeAhead, fs: &dyn FileSystem, dir: NodeId) {
    let mut entries = Vec::new();
    let mut dirs = Vec::new();
    fs.read_dir(dir, DirCursor::START, &mut |entry| {
        entries.push((entry.node, entry.next));
        if entry.kind == FileType::Directory {
            dirs.push(entry.node);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    ahead.listed(dir, &entries);
    dirs.into_iter().for_each(|dir| list(ahead, fs, dir));
}

fn planned(walk: &Mutex<Walk>) -> Vec<NodeId> {
    lock(walk).planned.iter().map(|&(node, _)| node).collect()
}

#[test]
fn a_walk_goes_on_across_directories_and_ends_with_the_tree() {
    let (fs, files) = tree();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    assert!(ahead.on_read(files[0]).is_none(), "one file is no order");
    let walk = ahead.on_read(files[1]).unwrap();
    ahead.go_on(&*fs, &|_| {}, &walk);
    assert_eq!(planned(&walk), files[2..]);
    assert!(ahead.on_read(files[5]).is_some());
    assert_eq!(planned(&walk), files[6..], "what was passed is forgotten");
}

#[test]
fn files_in_no_order_start_nothing() {
    let (fs, files) = tree();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    assert!(ahead.on_read(files[0]).is_none() && ahead.on_read(files[1]).is_none());
    list(&ahead, &*fs, fs.root());
    for &file in [3, 2, 7, 6, 11, 12].map(|at| &files[at]) {
        assert!(ahead.on_read(file).is_none());
    }
}

#[test]
fn the_window_bounds_what_is_planned_and_grows() {
    let (fs, files) = one_directory(2000);
    let ahead = TreeAhead::new(2 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    ahead.on_read(files[0]);
    let walk = ahead.on_read(files[1]).unwrap();
    let (mut most, mut misses) = (0, 0);
    for &file in &files[2..] {
        ahead.go_on(&*fs, &|_| {}, &walk);
        let now = planned(&walk);
        misses += usize::from(now.first() != Some(&file));
        most = most.max(now.len());
        ahead.on_read(file);
    }
    assert_eq!(misses, 0, "each file was planned before it was read");
    assert!(most > 300 && most <= (2 << 20) / 5000 + 1, "{most}");
}

#[test]
fn endless_directories_end_a_step() {
    let mut builder = MemFsBuilder::new();
    let file = builder.file("d/f", [Piece::Stored(vec![1; 10])]);
    let dir = builder.dir("d/x");
    builder.raw_entry(dir, b"x", dir);
    let second = builder.file("d/g", [Piece::Stored(vec![1; 10])]);
    let fs = builder.build().driver();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    let mut entries = Vec::new();
    let parent = fs.lookup(fs.root(), b"d").unwrap().unwrap();
    fs.read_dir(parent, DirCursor::START, &mut |entry| {
        entries.push((entry.node, entry.next));
        ControlFlow::Continue(())
    })
    .unwrap();
    ahead.listed(parent, &entries);
    ahead.on_read(file);
    let walk = ahead.on_read(second).unwrap();
    ahead.go_on(&*fs, &|_| {}, &walk);
    assert!(planned(&walk).is_empty());
}

#[test]
fn what_was_shown_is_handed_over_once_and_marks_are_left_out() {
    let mut builder = MemFsBuilder::new();
    let files: Vec<_> = (0..100)
        .map(|n| builder.file(&format!("{n:03}"), [Piece::Stored(vec![1; 3000])]))
        .collect();
    let fs = builder.build().driver();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    ahead.on_read(files[0]);
    let walk = ahead.on_read(files[1]).unwrap();
    assert!(ahead.upcoming(ALL).is_empty(), "nothing is planned yet");
    ahead.go_on(&*fs, &|_| {}, &walk);
    let mut handed = ahead.upcoming(5);
    assert_eq!(handed.len(), 5, "no more than is taken");
    handed.extend(ahead.upcoming(ALL));
    // The first file is left out, since its reader may be requesting it. So is one file in each
    // eighth of the window.
    let marks = usize::try_from(TREE_WINDOW / MARKS_IN_WINDOW / 3000).unwrap() + 1;
    let expected: Vec<_> = (3..100)
        .filter(|at| (at - 2) % marks != 0)
        .map(|at| files[at])
        .collect();
    assert_eq!(handed, expected);
    assert!(ahead.upcoming(ALL).is_empty(), "once");
}

#[test]
fn what_was_not_shown_is_not_handed_over() {
    let (fs, files) = tree();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    let first = fs.lookup(fs.root(), b"a").unwrap().unwrap();
    list(&ahead, &*fs, first);
    ahead.on_read(files[0]);
    let walk = ahead.on_read(files[1]).unwrap();
    ahead.go_on(&*fs, &|_| {}, &walk);
    assert_eq!(planned(&walk), files[2..4], "above, the way is not known");
    assert_eq!(ahead.upcoming(ALL), files[3..4]);
    assert!(ahead.upcoming(ALL).is_empty());
}

#[test]
fn of_a_directory_just_shown_the_first_files_come_at_once() {
    let (fs, files) = tree();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    ahead.on_read(files[0]);
    let walk = ahead.on_read(files[1]).unwrap();
    ahead.go_on(&*fs, &|_| {}, &walk);
    let dir = |name: &[u8]| fs.lookup(fs.root(), name).unwrap().unwrap();
    assert!(ahead.upcoming_in(dir(b"b"), 2).is_empty(), "not yet");
    assert_eq!(ahead.upcoming_in(dir(b"a"), 1), files[2..3]);
    assert_eq!(ahead.upcoming_in(dir(b"a"), 2), files[3..4]);
    assert_eq!(ahead.upcoming_in(dir(b"b"), 2), files[4..6]);
    assert_eq!(ahead.upcoming(ALL), files[6..]);
    assert!(!ahead.was_read(files[6]));
    ahead.on_read(files[6]);
    assert!(ahead.was_read(files[6]));
}

#[test]
fn two_readers_of_one_tree_plan_each_file_once() {
    let mut builder = MemFsBuilder::new();
    let files: Vec<_> = (0..3000)
        .map(|n| builder.file(&format!("{n:04}"), [Piece::Stored(vec![1; 3000])]))
        .collect();
    let fs = builder.build().driver();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    let mut plans = std::collections::HashMap::<NodeId, usize>::new();
    let mut walks = 0;
    // Two readers take alternate hundreds, as two children of xargs would.
    for hundreds in files.chunks(200) {
        let (first, second) = hundreds.split_at(100);
        for &file in first.iter().zip(second).flat_map(|(a, b)| [a, b]) {
            let Some(walk) = ahead.on_read(file) else {
                continue;
            };
            walks += usize::from(lock(&walk).begins_in.is_some());
            let before = planned(&walk).len();
            ahead.go_on(&*fs, &|_| {}, &walk);
            for node in planned(&walk).split_off(before) {
                *plans.entry(node).or_default() += 1;
            }
        }
    }
    assert!(plans.len() > 2800, "{} files were planned", plans.len());
    assert!(plans.values().all(|&times| times == 1));
    assert!(walks <= 2, "{walks} walks");
}

#[test]
fn what_is_read_a_second_time_is_planned_again() {
    let (fs, files) = tree();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    for _ in 0..2 {
        let mut planned_now = 0;
        for &file in &files {
            if let Some(walk) = ahead.on_read(file) {
                let before = planned(&walk).len();
                ahead.go_on(&*fs, &|_| {}, &walk);
                planned_now += planned(&walk).len() - before;
            }
        }
        assert!(planned_now >= files.len() - 3, "{planned_now}");
    }
}

#[test]
fn walks_that_wait_for_a_thread_are_not_pushed_out() {
    let mut builder = MemFsBuilder::new();
    let mut files = Vec::new();
    for dir in 0..40 {
        for file in 0..2 {
            let path = format!("{dir:02}/{file}");
            files.push(builder.file(&path, [Piece::Stored(vec![1; 3000])]));
        }
    }
    let fs = builder.build().driver();
    let ahead = TreeAhead::new(1 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    let begun: Vec<_> = files
        .iter()
        .filter_map(|&file| ahead.on_read(file))
        .collect();
    assert_eq!(begun.len(), TREE_WALKS / 2);
    assert!(begun.iter().all(|walk| Arc::strong_count(walk) == 2));
}

#[test]
fn inodes_are_asked_for_together_and_more_as_the_window_grows() {
    let (fs, files) = one_directory(3000);
    let ahead = TreeAhead::new(8 << 20, TREE_FILE);
    list(&ahead, &*fs, fs.root());
    ahead.on_read(files[0]);
    let mut walk = ahead.on_read(files[1]).unwrap();
    let asked = Mutex::new(Vec::<Vec<NodeId>>::new());
    for &file in &files[2..] {
        ahead.go_on(&*fs, &|nodes| lock(&asked).push(nodes.to_vec()), &walk);
        let asked = lock(&asked).iter().map(Vec::len).sum::<usize>();
        assert!(
            planned(&walk).len() <= asked,
            "asked for before it is looked at"
        );
        walk = ahead.on_read(file).unwrap_or(walk);
    }
    let asked = asked.into_inner().unwrap();
    assert_eq!(asked.concat(), files[2..], "each once, in order");
    assert_eq!(asked[0].len(), 64);
    assert!(asked.iter().any(|nodes| nodes.len() == 512));
}
