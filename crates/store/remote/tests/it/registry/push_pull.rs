//! Pushing to and pulling from docker-registry.

use std::os::unix::fs::MetadataExt as _;

use forerun_cache::{ChunkTable, Digest};
use forerun_io::MemorySource;
use forerun_remote::pull::{PullOptions, Pulled, pull};
use forerun_remote::push::{PushOptions, push};
use forerun_remote::{Identity, Progress, RemoteError, runtime};
use forerun_testkit_servers::fault_proxy::{Exchange, Fault, FaultProxy};
use forerun_testkit_servers::{Auth, DockerRegistry};

use super::support::{
    CHUNK, PART, auth_file, image, logged_in, name, open, options, push_as, push_options, read,
    registry,
};

pub fn pull_options() -> PullOptions {
    PullOptions::default()
}

#[test]
fn what_is_pushed_comes_back() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let image = image(20 * PART as usize + 123);
    let registry = registry(options());
    let tag = name(&server.authority(), "some/where:v1");
    let mut reports = Vec::new();
    let options = PushOptions {
        format: Some("erofs".into()),
        ..push_options()
    };
    let source = MemorySource::new(&*image);
    let pushed = push(&registry, &source, &tag, &options, &mut |p| reports.push(p)).unwrap();
    // Two parts are all zeros, so they are the same blob.
    assert_eq!((pushed.parts, pushed.uploaded), (21, 20));
    let table = ChunkTable::of_source(&source, CHUNK).unwrap();
    assert_eq!(pushed.root, table.root());
    assert_eq!(reports.len(), 21);
    let last = reports.last().unwrap();
    assert_eq!(
        (last.done, last.total),
        (image.len() as u64, image.len() as u64)
    );
    assert_eq!(last.transferred, image.len() as u64 - PART);

    for name in [&tag, &pushed.name] {
        let layout = open(&registry, name).unwrap();
        assert_eq!(layout.len, image.len() as u64);
        assert_eq!(layout.identity, Identity::Root(table.root()));
        assert_eq!(layout.parts.len(), 21);
        assert_eq!(layout.format.as_deref(), Some("erofs"));
        let part = read(&layout, 3, 0, 10..5000).unwrap();
        let start = 3 * PART as usize;
        assert!(part == image[start + 10..start + 5000]);
        let last = read(&layout, 20, 0, 0..123).unwrap();
        assert!(last == image[20 * PART as usize..]);
        let blob = &layout.parts[20].blob;
        let said = runtime::wait_for(blob.mirrors[0].describe()).unwrap();
        assert_eq!(said, blob.description);
    }

    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let layout = open(&registry, &tag).unwrap();
    let mut last = Progress::default();
    let pulled = pull(&layout, &output, &pull_options(), &mut |p| last = p).unwrap();
    assert_eq!(
        pulled,
        Pulled {
            len: image.len() as u64,
            verified: true,
            is_container: false,
        }
    );
    assert!(std::fs::read(&output).unwrap() == image);
    assert_eq!((last.done, last.total), (pulled.len, pulled.len));
    let written = output.metadata().unwrap();
    assert!(
        written.blocks() * 512 < pulled.len - PART,
        "zeros are holes"
    );
    // An existing file is not replaced without `overwrite`, and no other file is left behind.
    assert!(pull(&layout, &output, &pull_options(), &mut |_| ()).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let overwrite = PullOptions {
        overwrite: true,
        ..pull_options()
    };
    pull(&layout, &output, &overwrite, &mut |_| ()).unwrap();
}

fn count(entries: &[Exchange], method: &str) -> usize {
    entries
        .iter()
        .filter(|entry| entry.method == method)
        .count()
}

fn body(entry: &Exchange) -> u64 {
    entry
        .header("content-length")
        .map_or(0, |len| len.parse().unwrap())
}

#[test]
fn a_second_version_sends_what_changed() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let proxy = FaultProxy::start(&server.url());
    let registry = registry(options());
    let mut image = image(20 * PART as usize + 123);
    let first = push_as(&registry, &image, &name(&proxy.authority(), "a:v1")).unwrap();
    let entries = proxy.log().entries;
    // 20 distinct parts, the table, the configuration, the manifest.
    assert_eq!((count(&entries, "POST"), count(&entries, "PUT")), (22, 23));

    proxy.forget();
    let again = push_as(&registry, &image, &name(&proxy.authority(), "a:again")).unwrap();
    assert_eq!(
        again.name.digest, first.name.digest,
        "the same image makes the same manifest"
    );
    assert_eq!((again.uploaded, again.uploaded_bytes), (0, 0));
    let entries = proxy.log().entries;
    assert_eq!((count(&entries, "POST"), count(&entries, "PUT")), (0, 1));

    proxy.forget();
    let at = 3 * PART as usize + 77;
    image[at] ^= 1;
    let second = push_as(&registry, &image, &name(&proxy.authority(), "a:v2")).unwrap();
    assert_ne!(second.name.digest, first.name.digest);
    assert_eq!(second.uploaded, 1);
    let entries = proxy.log().entries;
    // The part, the table and the configuration; then the manifest.
    assert_eq!((count(&entries, "POST"), count(&entries, "PUT")), (3, 4));
    let sent: u64 = entries.iter().map(body).sum();
    let table = ChunkTable::of_source(&MemorySource::new(&*image), CHUNK)
        .unwrap()
        .into_bytes();
    assert!(sent < PART + table.len() as u64 + 10_000, "{sent} bytes");
    let layout = open(&registry, &second.name).unwrap();
    assert!(read(&layout, 3, 0, 0..PART).unwrap() == image[3 * PART as usize..4 * PART as usize]);
}

#[test]
fn a_tag_that_moves_does_not_mix_two_images() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let registry = registry(options());
    let tag = name(&server.authority(), "a:latest");
    let old = image(5 * PART as usize);
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0x55).collect();
    push_as(&registry, &old, &tag).unwrap();
    let layout = open(&registry, &tag).unwrap();
    push_as(&registry, &new, &tag).unwrap();
    for part in 0..5 {
        let start = part * PART as usize;
        assert!(read(&layout, part, 0, 0..PART).unwrap() == old[start..start + PART as usize]);
    }
    let layout = open(&registry, &tag).unwrap();
    assert!(read(&layout, 0, 0, 0..PART).unwrap() == new[..PART as usize]);
}

#[test]
fn long_parts_are_sent_in_pieces() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let proxy = FaultProxy::start(&server.url());
    let registry = registry(options());
    let tag = name(&proxy.authority(), "a:v1");
    let image = image((40 << 20) + 5);
    let options = PushOptions {
        part_len: 40 << 20,
        ..PushOptions::default()
    };
    let pushed = push(
        &registry,
        &MemorySource::new(&*image),
        &tag,
        &options,
        &mut |_| (),
    )
    .unwrap();
    assert_eq!(pushed.parts, 2);
    assert_eq!(count(&proxy.log().entries, "PATCH"), 3);
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let layout = open(&registry, &tag).unwrap();
    pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
    assert!(std::fs::read(&output).unwrap() == image);
}

#[test]
fn images_of_one_chunk_and_less_have_a_table_too() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let registry = registry(options());
    let dir = tempfile::tempdir().unwrap();
    for len in [1, 4095, 4096, 4097] {
        let tag = name(&server.authority(), &format!("a:v{len}"));
        let image = image(len);
        push_as(&registry, &image, &tag).unwrap();
        let layout = runtime::wait_for(registry.open(&tag, true)).unwrap();
        let output = dir.path().join(len.to_string());
        pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
        assert!(std::fs::read(&output).unwrap() == image, "{len}");
    }
    let nothing = push_as(&registry, &[], &name(&server.authority(), "a:v0"));
    assert!(
        matches!(nothing, Err(RemoteError::Refused { .. })),
        "{nothing:?}"
    );
}

#[test]
fn a_blob_by_its_digest_is_an_image_without_a_table() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let registry = registry(options());
    let image = image(3 * PART as usize);
    push_as(&registry, &image, &name(&server.authority(), "a:v1")).unwrap();
    let part = Digest::of(&image[..PART as usize]);
    let by_digest = name(&server.authority(), &format!("a@{part}"));
    let layout = open(&registry, &by_digest).unwrap();
    assert_eq!(
        (layout.len, layout.identity.clone()),
        (PART, Identity::Blob(part))
    );
    assert!(layout.table.is_none());
    let error = runtime::wait_for(registry.open(&by_digest, true))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no table of digests"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let pulled = pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
    assert!(pulled.verified);
    assert!(std::fs::read(&output).unwrap() == image[..PART as usize]);
    let none = name(
        &server.authority(),
        &format!("a@{}", Digest::of(b"nothing")),
    );
    for missing in [
        none,
        name(&server.authority(), "a:none"),
        name(&server.authority(), "none:v1"),
    ] {
        let error = open(&registry, &missing).unwrap_err();
        assert!(matches!(error, RemoteError::NotFound { .. }), "{error}");
    }
}

#[test]
fn passwords_are_sent_where_they_belong() {
    let Some(server) = DockerRegistry::start(Auth::Basic) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let tag = name(&server.authority(), "a:v1");
    let image = image(3 * PART as usize);
    let wrong = auth_file(dir.path(), &server.authority(), "guess");
    for (files, sent) in [(vec![], false), (vec![wrong], true)] {
        let options = forerun_remote::RegistryOptions {
            auth_files: Some(files),
            ..options()
        };
        let error = push_as(&registry(options), &image, &tag).unwrap_err();
        assert!(
            matches!(error, RemoteError::Denied { status: 401, has_credentials, .. } if has_credentials == sent),
            "{error:?}"
        );
        assert!(!error.to_string().contains("guess"), "{error}");
    }
    let registry = registry(logged_in(dir.path(), &server.authority()));
    push_as(&registry, &image, &tag).unwrap();
    let layout = open(&registry, &tag).unwrap();
    assert!(read(&layout, 0, 0, 0..PART).unwrap() == image[..PART as usize]);
    // After a reload the credentials file is read again: it is wrong now, then right again.
    auth_file(dir.path(), &server.authority(), "guess");
    registry.reload();
    let error = read(&layout, 0, 0, 0..PART).unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
    logged_in(dir.path(), &server.authority());
    read(&layout, 0, 0, 0..PART).unwrap();
}

#[test]
fn a_token_that_allows_no_push_is_an_error() {
    let Some(server) = DockerRegistry::start(Auth::Token) else {
        return;
    };
    let tag = name(&server.authority(), "a/b:v1");
    let error = push_as(&registry(options()), &image(PART as usize), &tag).unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
}

#[test]
fn tokens_are_asked_for_once() {
    let Some(server) = DockerRegistry::start(Auth::Token) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let tag = name(&server.authority(), "a/b:v1");
    let image = image(10 * PART as usize);
    let user = registry(logged_in(dir.path(), &server.authority()));
    push_as(&user, &image, &tag).unwrap();
    assert_eq!(server.tokens_given(), 1);
    let output = dir.path().join("image");
    let layout = open(&registry(options()), &tag).unwrap();
    pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
    assert!(std::fs::read(&output).unwrap() == image);
    assert_eq!(server.tokens_given(), 2);
}

#[test]
fn every_fault_of_one_request_is_overcome_or_told() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let proxy = FaultProxy::start(&server.url());
    let registry = registry(options());
    let image = image(4 * PART as usize + 9);
    let tag = name(&proxy.authority(), "a:v1");
    push_as(&registry, &image, &tag).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let overwrite = PullOptions {
        overwrite: true,
        ..pull_options()
    };
    proxy.forget();
    pull(
        &open(&registry, &tag).unwrap(),
        &output,
        &overwrite,
        &mut |_| (),
    )
    .unwrap();
    let requests = proxy.log().requests();
    let faults = [
        Fault::ResetBeforeHead,
        Fault::ResetAt { after: 10 },
        Fault::Truncate { after: 10 },
        Fault::WrongBytes { offset: 3, len: 1 },
        Fault::Status {
            code: 500,
            retry_after: None,
        },
        Fault::Status {
            code: 429,
            retry_after: Some(0),
        },
        Fault::Garbage,
    ];
    for fault in faults {
        for request in 0..requests {
            proxy.forget();
            proxy.clear_faults();
            proxy.fault_at(request, fault.clone());
            let outcome = open(&registry, &tag)
                .and_then(|layout| pull(&layout, &output, &overwrite, &mut |_| ()));
            assert!(outcome.is_ok(), "{fault:?} at {request}: {outcome:?}");
            assert!(
                std::fs::read(&output).unwrap() == image,
                "{fault:?} at {request}"
            );
        }
    }
}

#[test]
fn pushes_survive_faults() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let proxy = FaultProxy::start(&server.url());
    let registry = registry(options());
    let mut image = image(3 * PART as usize);
    push_as(&registry, &image, &name(&proxy.authority(), "a:v0")).unwrap();
    let requests = proxy.log().requests();
    for fault in [
        Fault::ResetBeforeHead,
        Fault::ResetAt { after: 0 },
        Fault::Status {
            code: 503,
            retry_after: None,
        },
    ] {
        for request in 0..requests {
            // The image changes every time, so that all of it has to be sent.
            for part in image.chunks_mut(PART as usize) {
                part[0] = part[0].wrapping_add(1);
            }
            proxy.forget();
            proxy.clear_faults();
            proxy.fault_at(request, fault.clone());
            let tag = name(&proxy.authority(), "a:v1");
            let pushed = push_as(&registry, &image, &tag);
            assert!(pushed.is_ok(), "{fault:?} at {request}: {pushed:?}");
            proxy.clear_faults();
            let layout = open(&registry, &pushed.unwrap().name).unwrap();
            assert!(read(&layout, 2, 0, 0..PART).unwrap() == image[2 * PART as usize..]);
        }
    }
}

#[test]
fn wrong_bytes_are_never_kept() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let proxy = FaultProxy::start(&server.url());
    let registry = registry(options());
    let image = image(4 * PART as usize);
    let tag = name(&proxy.authority(), "a:v1");
    push_as(&registry, &image, &tag).unwrap();
    let layout = open(&registry, &tag).unwrap();
    let part = layout.parts[1].blob.description.digest.unwrap();
    proxy.faults(move |request| {
        let wanted = request.path.ends_with(&part.to_string());
        wanted.then_some(Fault::WrongBytes { offset: 0, len: 1 })
    });
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let error = pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    // Right chunks are kept for the next pull, but not under the output's name.
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["image.part"]);
    // A blob without a table is fetched whole before it is known to be wrong.
    let bare = open(&registry, &name(&proxy.authority(), &format!("a@{part}"))).unwrap();
    let error = pull(&bare, &output, &pull_options(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
