//! Open files of images: `Read`, `BufRead`, `Seek`, threads, limits.

use std::io::{BufRead, ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;

use forerun::build::{ErofsOptions, ExfatOptions, RomfsOptions, SquashfsOptions, Tree};
use forerun::{File, Image, Limits, OpenOptions, ReadAt, Writer};
use forerun_io::Counter;
use forerun_testkit::generate;

use crate::paths::{file, image};

const LEN: usize = 1_000_003;

fn contents(seed: u64) -> Vec<u8> {
    generate::bytes(seed, LEN)
}

fn images(options: &OpenOptions) -> [Image; 4] {
    let mut tree = Tree::default();
    tree.add(Tree::ROOT, b"one", file(&contents(1))).unwrap();
    tree.add(Tree::ROOT, b"two", file(&contents(2))).unwrap();
    let lines: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    tree.add(Tree::ROOT, b"lines", file(lines.as_bytes()))
        .unwrap();
    [
        Writer::Squashfs(SquashfsOptions::default()),
        Writer::Erofs(ErofsOptions::default()),
        Writer::Romfs(RomfsOptions::default()),
        Writer::Exfat(ExfatOptions::default()),
    ]
    .map(|writer| image(&tree, &writer, options))
}

#[test]
fn reads_of_any_size_return_the_file() {
    let expected = contents(1);
    for image in images(&OpenOptions::new()) {
        assert!(image.read("one").unwrap() == expected, "{}", image.format());
        for step in [777, 4096, 128 << 10, 300_000, 2 * LEN] {
            let mut file = image.file("one").unwrap();
            let (mut all, mut part) = (Vec::new(), vec![0; step]);
            loop {
                let read = file.read(&mut part).unwrap();
                all.extend_from_slice(&part[..read]);
                if read == 0 {
                    break;
                }
            }
            assert!(all == expected, "{} in steps of {step}", image.format());
        }
        let mut all = Vec::new();
        image.file("one").unwrap().read_to_end(&mut all).unwrap();
        assert!(all == expected);
        let lines = image.file("lines").unwrap().lines();
        let last = lines.map(Result::unwrap).enumerate().last().unwrap();
        assert_eq!(last, (49_999, "line 49999".to_string()));
    }
}

#[test]
fn small_reads_in_order_ask_the_engine_for_long_ranges() {
    for image in images(&OpenOptions::new()) {
        let mut file = image.file("one").unwrap();
        let served = || image.reader().observer().stats().get(Counter::ServedBytes);
        let mut byte = [0];
        file.read_exact(&mut byte).unwrap();
        let once = served();
        for _ in 0..100_000 {
            file.read_exact(&mut byte).unwrap();
        }
        assert_eq!(served(), once, "{}", image.format());
    }
}

#[test]
fn a_file_seeks_anywhere_and_reads_nothing_past_the_end() {
    let expected = contents(1);
    for image in images(&OpenOptions::new()) {
        let mut file = image.file("/one").unwrap();
        let mut part = [0; 10];
        for (to, position) in [
            (SeekFrom::Start(500_000), 500_000),
            (SeekFrom::Current(-300_010), 200_000),
            (SeekFrom::End(-10), LEN as u64 - 10),
            (SeekFrom::Start(3), 3),
        ] {
            assert_eq!(file.seek(to).unwrap(), position);
            file.read_exact(&mut part).unwrap();
            let at = position as usize;
            assert_eq!(part, expected[at..at + 10], "{} {to:?}", image.format());
            assert_eq!(file.stream_position().unwrap(), position + 10);
        }
        for past in [
            SeekFrom::End(0),
            SeekFrom::End(5),
            SeekFrom::Start(u64::MAX),
        ] {
            file.seek(past).unwrap();
            assert_eq!(file.read(&mut part).unwrap(), 0, "{past:?}");
            assert!(file.fill_buf().unwrap().is_empty());
            assert_eq!(file.read(&mut vec![0; 1 << 20]).unwrap(), 0);
        }
        let position = file.stream_position().unwrap();
        for wrong in [SeekFrom::End(-2_000_000), SeekFrom::Current(1)] {
            let error = file.seek(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(file.stream_position().unwrap(), position);
        }
        file.rewind().unwrap();
        file.read_exact(&mut part).unwrap();
        assert_eq!(part, expected[..10]);
    }
}

#[test]
fn reads_at_offsets_leave_the_position_alone() {
    let expected = contents(1);
    for image in images(&OpenOptions::new()) {
        let mut file = image.file("one").unwrap();
        let mut part = [0; 10];
        assert_eq!(file.read_at(700_000, &mut part).unwrap(), 10);
        assert_eq!(part, expected[700_000..700_010]);
        assert_eq!(file.read_at(LEN as u64 - 4, &mut part).unwrap(), 4);
        assert_eq!(file.read_at(LEN as u64 + 4, &mut part).unwrap(), 0);
        assert_eq!(file.stream_position().unwrap(), 0);
        file.read_exact(&mut part).unwrap();
        assert_eq!(part, expected[..10]);
        file.read_exact_at(1, &mut part).unwrap();
        assert_eq!(part, expected[1..11]);
        let error = file.read_exact_at(LEN as u64, &mut part).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_file_moves_to_another_thread_and_outlives_its_image() {
    const fn assert_sendable<T: Send + Sync + 'static>() {}
    const { assert_sendable::<File>() };
    let expected = contents(2);
    for image in images(&OpenOptions::new()) {
        let mut file = image.file("two").unwrap();
        drop(image);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            file.read_to_end(&mut all).unwrap();
            all
        });
        assert!(reader.join().unwrap() == expected);
    }
}

#[test]
fn files_are_read_at_once_by_their_own_positions() {
    let expected = [contents(1), contents(2)];
    for image in images(&OpenOptions::new()) {
        std::thread::scope(|scope| {
            for (name, expected) in ["one", "two"].into_iter().zip(&expected) {
                let mut file = image.file(name).unwrap();
                let mut same = file.clone();
                for file in [&mut file, &mut same] {
                    let mut file = file.clone();
                    scope.spawn(move || {
                        let mut all = Vec::new();
                        file.read_to_end(&mut all).unwrap();
                        assert!(all == *expected, "{name}");
                    });
                }
            }
        });
        let (mut one, mut two) = (image.file("one").unwrap(), image.file("two").unwrap());
        let mut parts = [[0; 1000], [0; 1000]];
        for at in (0..100_000).step_by(1000) {
            one.read_exact(&mut parts[0]).unwrap();
            two.read_exact(&mut parts[1]).unwrap();
            assert_eq!(parts[0], expected[0][at..at + 1000]);
            assert_eq!(parts[1], expected[1][at..at + 1000]);
        }
    }
}

#[test]
fn a_file_over_the_limit_is_read_in_parts_only() {
    let mut limits = Limits::default();
    limits.read_bytes = LEN as u64 - 1;
    for image in images(&OpenOptions::new().limits(limits.clone())) {
        let error = image.read("one").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        let text =
            "length of a file that is read as a whole, 1000003 bytes, exceeds the limit of 1000002";
        assert!(error.to_string().contains(text), "{error}");
        let mut all = Vec::new();
        image.file("one").unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), LEN);
    }
}

#[test]
fn text_that_is_not_utf_8_is_invalid_data() {
    let [image, ..] = images(&OpenOptions::new());
    let error = image.read_to_string("one").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(matches!(error.cause(), forerun::Cause::NotUtf8(_)));
}

#[test]
fn an_image_inside_an_image_is_opened() {
    let mut bytes = Vec::new();
    let mut tree = Tree::default();
    tree.add(Tree::ROOT, b"file", file(b"deep")).unwrap();
    let writer = Writer::Erofs(ErofsOptions::default());
    writer.write(&tree, &mut bytes, &Arc::default()).unwrap();
    let mut outer = Tree::default();
    outer.add(Tree::ROOT, b"inner", file(&bytes)).unwrap();
    let writer = Writer::Squashfs(SquashfsOptions::default());
    let outer = image(&outer, &writer, &OpenOptions::new());
    let inner = Arc::new(outer.file("inner").unwrap());
    let inner = Image::from_source(inner, &OpenOptions::new()).unwrap();
    assert_eq!(inner.read("file").unwrap(), b"deep");
}
