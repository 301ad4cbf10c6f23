//! Damaged payloads are refused with a message, or programs that read them get an error.

use std::fs;

use crate::common::{Fixture, RUNTIME, errors};

/// Runs an AppImage with this payload in several ways. Returns the runtime's messages.
fn run(fixture: &Fixture, payload: &[u8], what: &str) -> Vec<String> {
    let path = fixture.temp.path().join("hostile");
    // Any ELF file may precede the payload, because a separate runtime opens it.
    let mut bytes = fs::read(RUNTIME).unwrap();
    bytes.extend_from_slice(payload);
    fs::write(&path, bytes).unwrap();
    let run = |arguments: &[&str]| {
        let output = fixture
            .command_of(RUNTIME.as_ref(), true)
            .env("TARGET_APPIMAGE", &path)
            .args(arguments)
            .output()
            .unwrap();
        let errors = errors(&output);
        assert!(!errors.contains("panicked"), "{what}: {errors}");
        assert!(
            output.status.code().is_some(),
            "{what}: {:?}",
            output.status
        );
        errors
    };
    let messages = vec![run(&["print"]), run(&["--appimage-extract"])];
    let _not_made = fs::remove_dir_all(fixture.temp.path().join("squashfs-root"));
    messages
}

#[test]
fn payloads_that_are_no_image_are_named() {
    let Some(fixture) = Fixture::new("zstd") else {
        return;
    };
    let whole = fs::read(fixture.temp.path().join("payload")).unwrap();
    for (what, payload, expected) in [
        ("none", &[][..], "without an image"),
        ("text", &[b'#'; 200], "are not a SquashFS image"),
        ("zeros", &[0; 8192], "are not a SquashFS image"),
        ("short", &whole[..50], "the image in this AppImage"),
        ("cut off", &whole[..4096], "the image in this AppImage"),
    ] {
        for message in run(&fixture, payload, what) {
            assert!(message.contains(expected), "{what}: {message}");
        }
    }
    fixture.becomes_clean("no images");
}

#[test]
fn no_byte_of_the_superblock_brings_a_panic() {
    let Some(fixture) = Fixture::new("zstd") else {
        return;
    };
    let whole = fs::read(fixture.temp.path().join("payload")).unwrap();
    for at in (4..96).step_by(3) {
        let mut payload = whole.clone();
        payload[at] ^= 0xff;
        let _any = run(&fixture, &payload, &format!("byte {at}"));
    }
    fixture.becomes_clean("superblocks");
}

#[test]
fn damaged_contents_are_an_error_of_the_reader() {
    let Some(fixture) = Fixture::new("zstd") else {
        return;
    };
    let mut payload = fs::read(fixture.temp.path().join("payload")).unwrap();
    for byte in &mut payload[200..1000] {
        *byte ^= 0x55;
    }
    let messages = run(&fixture, &payload, "contents");
    assert!(messages[1].contains("usr/bin/"), "{messages:?}");
    fixture.becomes_clean("contents");
}
