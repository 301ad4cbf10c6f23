//! The machinery of power cuts against a volume that is right and against the same volume with one
//! mistake each: the first passes, every mistake is found.

use std::sync::Arc;

use forerun_testkit::MemVolume;
use forerun_testkit::memvolume::recorded::{self, Mistake};
use forerun_testkit::powercut::{
    Bounds, Campaign, Operation, Outcome, Scene, Setting, Snapshot, Subject, Workload,
};
use forerun_testkit::rng::Rng;

const LEN: usize = 256 << 10;

fn scene(ballast: u64) -> Scene {
    let empty = Snapshot::new(recorded::format(LEN));
    let setting = Setting {
        cluster: recorded::CLUSTER,
        fillers: 2,
        brim: 0,
        ballast,
    };
    let open =
        |device, dirsync| Ok(Arc::new(MemVolume::recorded(device, dirsync, Mistake::None)?) as _);
    Scene::prepare("toy", &empty, &setting, &open).unwrap()
}

fn campaign(scenes: &[Scene], workloads: &[Workload], mistake: Mistake, threads: usize) -> Outcome {
    let subject = Subject {
        open: &|device, dirsync| Ok(Arc::new(MemVolume::recorded(device, dirsync, mistake)?) as _),
        check: &|state, _| recorded::check(state).map(|()| None),
    };
    let campaign = Campaign {
        bounds: Bounds {
            samples: 64,
            ..Bounds::default()
        },
        recovery_one_in: 16,
        threads,
    };
    campaign.run(scenes, workloads, subject)
}

fn workloads(scenes: &[Scene], pairs: usize) -> Vec<Workload> {
    let mut workloads = Vec::new();
    let mut rng = Rng::new(3);
    for (number, scene) in scenes.iter().enumerate() {
        let mut sequences = scene.singles();
        sequences.extend((0..pairs).map(|_| scene.sample(2, &mut rng)));
        for (index, operations) in sequences.into_iter().enumerate() {
            workloads.push(Workload {
                scene: number,
                dirsync: index % 2 == 0,
                operations,
            });
        }
    }
    workloads
}

#[test]
fn a_volume_without_mistakes_passes() {
    let scenes = [scene(0), scene(180 << 10)];
    let workloads = workloads(&scenes, 60);
    let outcome = campaign(&scenes, &workloads, Mistake::None, 0);
    outcome.assert_good();
    assert!(outcome.states > 1000, "{}", outcome.summary());
    assert!(outcome.recovery_states > 100, "{}", outcome.summary());
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let scenes = [scene(0)];
    let workloads = workloads(&scenes, 20);
    let one = campaign(&scenes, &workloads, Mistake::NoFlushBeforeCommit, 1);
    let two = campaign(&scenes, &workloads, Mistake::NoFlushBeforeCommit, 2);
    assert_eq!(
        (one.built, one.compared, one.bad_states),
        (two.built, two.compared, two.bad_states)
    );
    assert_eq!(format!("{:?}", one.bad), format!("{:?}", two.bad));
}

/// Asserts that a mistake is found, and that the reason given for it says what it is.
fn is_caught(mistake: Mistake, operations: Vec<Operation>, dirsync: bool, reason: &str) {
    let scenes = [scene(0)];
    let workload = Workload {
        scene: 0,
        dirsync,
        operations,
    };
    let right = campaign(&scenes, std::slice::from_ref(&workload), Mistake::None, 1);
    right.assert_good();
    let wrong = campaign(&scenes, &[workload], mistake, 1);
    assert!(
        wrong.bad_states > 0,
        "{mistake:?} was not found: {}",
        wrong.summary()
    );
    let reasons: Vec<String> = wrong.bad.iter().map(ToString::to_string).collect();
    assert!(
        reasons.iter().any(|given| given.contains(reason)),
        "{mistake:?} for another reason: {reasons:#?}"
    );
}

fn append() -> Operation {
    Operation::Write {
        file: "A/one".into(),
        offset: 1124,
        len: 700,
    }
}

fn rename() -> Operation {
    Operation::Rename {
        from: "A/one".into(),
        to: "B/cross".into(),
    }
}

#[test]
fn data_that_comes_after_its_metadata_is_caught() {
    let mistake = Mistake::NoFlushBeforeCommit;
    is_caught(mistake, vec![append()], false, "which never stood there");
}

#[test]
fn an_acknowledgement_before_the_flush_is_caught() {
    let synced = vec![append(), Operation::Sync("A/one".into())];
    is_caught(
        Mistake::NoFlushAfterCommit,
        synced,
        false,
        "1124 bytes long",
    );
}

#[test]
fn a_sync_that_does_nothing_is_caught() {
    let synced = vec![append(), Operation::Sync("A/one".into())];
    is_caught(Mistake::SyncDoesNothing, synced, false, "1124 bytes long");
}

#[test]
fn metadata_overwritten_in_place_is_caught() {
    is_caught(
        Mistake::OneSlot,
        vec![append()],
        false,
        "is gone, and nothing removed it",
    );
}

#[test]
fn a_rename_that_loses_the_file_is_caught() {
    let mistake = Mistake::RenameInTwoSteps;
    is_caught(
        mistake,
        vec![rename()],
        false,
        "is gone, and nothing removed it",
    );
}

#[test]
fn a_rename_that_shows_both_names_is_caught() {
    let mistake = Mistake::RenameDoubles;
    is_caught(mistake, vec![rename()], false, "there under another name");
}

#[test]
fn bytes_of_a_removed_file_are_caught() {
    let operations = vec![
        Operation::Unlink("A/one".into()),
        Operation::Write {
            file: "B/cross".into(),
            offset: 256,
            len: 1500,
        },
    ];
    is_caught(
        Mistake::ReusesFreed,
        operations,
        false,
        "which never stood there",
    );
}

#[test]
fn bytes_between_the_end_and_a_later_write_are_caught() {
    let operations = vec![Operation::Write {
        file: "B/cross".into(),
        offset: 3000,
        len: 10,
    }];
    let mistake = Mistake::ForgetsGap;
    is_caught(mistake, operations, false, "which never stood there");
}

#[test]
fn an_operation_that_dirsync_does_not_keep_is_caught() {
    let operations = vec![Operation::Unlink("A/one".into())];
    let mistake = Mistake::IgnoresDirsync;
    is_caught(mistake, operations, true, "A/one");
}

#[test]
fn every_mistake_is_found_by_workloads_drawn_at_random() {
    let scenes = [scene(0)];
    let workloads = workloads(&scenes, 150);
    for mistake in [
        Mistake::NoFlushBeforeCommit,
        Mistake::NoFlushAfterCommit,
        Mistake::OneSlot,
        Mistake::RenameInTwoSteps,
        Mistake::RenameDoubles,
        Mistake::ReusesFreed,
        Mistake::ForgetsGap,
        Mistake::SyncDoesNothing,
        Mistake::IgnoresDirsync,
    ] {
        let outcome = campaign(&scenes, &workloads, mistake, 0);
        assert!(outcome.bad_states > 0, "{mistake:?}: {}", outcome.summary());
    }
}
