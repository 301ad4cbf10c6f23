//! Directories packed with format and compressor by name.

use std::fs;
use std::sync::atomic::Ordering;

use forerun::{Image, PackError, PackOptions};

#[test]
fn each_format_and_compressor_holds_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("text"), "hello ".repeat(10_000)).unwrap();
    fs::write(files.join("left-out.o"), "x").unwrap();
    let rows = [
        (
            "squashfs",
            &["gzip", "zstd", "lz4", "lz4hc", "lzo", "xz", "lzma"][..],
        ),
        ("erofs", &["none", "lz4", "lz4hc", "deflate", "zstd"]),
        ("romfs", &["none"]),
        ("exfat", &["none"]),
    ];
    for (format, compressors) in rows {
        for compressor in compressors {
            let image = dir.path().join(format!("{format}-{compressor}"));
            let mut options = PackOptions::new(format);
            options.compressor = Some((*compressor).to_string());
            options.exclude = vec!["*.o".to_string()];
            let packed = options.pack(&files, &image).unwrap();
            assert_eq!(packed.content_bytes, 60_000, "{format} {compressor}");
            assert_eq!(packed.len, fs::metadata(&image).unwrap().len());
            let image = Image::open(&image).unwrap();
            assert_eq!(image.format(), format);
            assert_eq!(image.read("text").unwrap().len(), 60_000);
            assert!(!image.exists("left-out.o").unwrap());
        }
    }
}

#[test]
fn what_no_format_or_compressor_has_is_refused_before_a_file_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let named = |format: &str, compressor: Option<&str>, level| {
        let mut options = PackOptions::new(format);
        options.compressor = compressor.map(str::to_string);
        options.level = level;
        options
    };
    for (options, expected) in [
        (
            named("ext4", None, None),
            "format ext4 cannot be packed; these can:",
        ),
        (
            named("squashfs", Some("brotli"), None),
            "squashfs has no compressor brotli",
        ),
        (
            named("erofs", Some("gzip"), None),
            "erofs has no compressor gzip",
        ),
        (
            named("squashfs", Some("gzip"), Some(10)),
            "level 10: gzip has levels from 1 to 9",
        ),
        (
            named("squashfs", Some("xz"), Some(1)),
            "level 1: xz has no levels",
        ),
        (
            named("romfs", Some("gzip"), None),
            "romfs has no compressor gzip",
        ),
    ] {
        let error = options.pack(dir.path(), &image).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_image_is_replaced_only_if_asked_and_never_left_half() {
    let dir = tempfile::tempdir().unwrap();
    let (files, image) = (dir.path().join("files"), dir.path().join("image"));
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a"), "a").unwrap();
    let mut options = PackOptions::default();
    options.pack(&files, &image).unwrap();
    let before = fs::read(&image).unwrap();
    let error = options.pack(&files, &image).unwrap_err();
    assert!(matches!(error, PackError::Output { .. }), "{error}");

    options.replace = true;
    options.stop.store(true, Ordering::Relaxed);
    let error = options.pack(&files, &image).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
    assert_eq!(fs::read(&image).unwrap(), before);

    fs::write(files.join("b"), "b").unwrap();
    options.stop.store(false, Ordering::Relaxed);
    options.pack(&files, &image).unwrap();
    assert_eq!(Image::open(&image).unwrap().read("b").unwrap(), b"b");
    // No temporary file is left.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}
