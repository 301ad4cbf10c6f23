//! Long and hostile traces: pages are bounded and totals exact.

use std::time::Duration;

use forerun_io::{BlobId, Event, EventKind, Purpose, Structure};
use forerun_pictures::{LARGEST_PAGE, TracePicture, TraceRecord};

const DEMAND: EventKind = EventKind::SourceRead {
    purpose: Purpose::Demand,
    ok: true,
};

fn event(kind: EventKind, n: u64, offset: u64, len: u64) -> TraceRecord {
    TraceRecord::Event(Event {
        at: Duration::from_micros(n),
        took: Duration::from_micros(n % 100),
        kind,
        structure: Structure::Data,
        blob: BlobId::IMAGE,
        offset,
        len,
        node: matches!(kind, EventKind::FileRead { .. }).then_some(n % 50_000),
    })
}

/// Event kinds that cover all classes.
const KINDS: [EventKind; 8] = [
    DEMAND,
    EventKind::SourceRead {
        purpose: Purpose::Metadata,
        ok: true,
    },
    EventKind::SourceRead {
        purpose: Purpose::Readahead,
        ok: false,
    },
    EventKind::Decode { ok: true },
    EventKind::Fetch { ok: true },
    EventKind::Write { ok: true },
    EventKind::CacheHit,
    EventKind::FileRead { ok: true },
];

#[test]
fn a_long_trace_of_absurd_numbers_makes_a_small_page() {
    let mut picture = TracePicture::new();
    let name = b"</script>\"'&\x1b\xff<!-- ".repeat(12);
    for n in 0..300_000 {
        let kind = KINDS[usize::try_from(n % 8).unwrap()];
        picture.add(&event(kind, u64::MAX - n, u64::MAX - n, u64::MAX));
        if n < 50_000 {
            let (node, dir) = (n, n + 1);
            let name = name.clone();
            picture.add(&TraceRecord::Name { node, dir, name });
        }
    }
    let page = picture.page("<odd> & 'name'\"");
    assert!(page.len() <= LARGEST_PAGE, "{}", page.len());
    assert!(page.is_ascii());
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("<odd>"));
    let figures = picture.json();
    assert_eq!(figures["events"], 300_000);
    for class in figures["classes"].as_array().unwrap() {
        assert_eq!(class["count"], 37_500, "{class}");
        assert_eq!(class["bytes"], u64::MAX, "{class}");
    }
    assert_eq!(figures["classes"][2]["failed"], 37_500);
}

#[test]
fn sums_are_those_of_all_events() {
    let mut picture = TracePicture::new();
    for n in 0..10_000 {
        picture.add(&event(DEMAND, 2 * n, n * 4096, 4096));
    }
    picture.add(&event(EventKind::CacheHit, 20_000, 0, 1));
    picture.add(&event(EventKind::CacheWait, 20_000, 0, 1));
    picture.add(&event(EventKind::CacheMiss, 20_000, 0, 1));
    picture.add(&event(EventKind::Flush { ok: true }, 20_000, 0, 0));
    picture.add(&TraceRecord::Comment);
    let figures = picture.json();
    let data = &figures["classes"][1];
    assert_eq!(data["class"], "data");
    assert_eq!(
        (&data["count"], &data["bytes"]),
        (&10_000.into(), &40_960_000.into())
    );
    assert_eq!(
        data["sizes"],
        serde_json::json!([{"from": 4096, "count": 10_000}])
    );
    assert_eq!(
        figures["cache"],
        serde_json::json!({"hits": 1, "waits": 1, "misses": 1})
    );
    assert_eq!(
        (&figures["flushes"], &figures["micros"]),
        (&1.into(), &20_000.into())
    );
    assert!(picture.page("t").contains("\"every\":8"));
}

#[test]
fn files_have_their_names() {
    let mut picture = TracePicture::new();
    for (node, dir, name) in [(5, 1, &b"dir"[..]), (6, 5, b"a \xff")] {
        let name = name.to_vec();
        picture.add(&TraceRecord::Name { node, dir, name });
    }
    for (node, took) in [(6, 50), (7, 20), (6, 5)] {
        picture.add(&TraceRecord::Event(Event {
            at: Duration::from_micros(100),
            took: Duration::from_micros(took),
            kind: EventKind::FileRead { ok: true },
            structure: Structure::Data,
            blob: BlobId::IMAGE,
            offset: 0,
            len: 10,
            node: Some(node),
        }));
    }
    let figures = picture.json();
    let files = figures["slowest_files"].as_array().unwrap();
    assert_eq!(files[0]["path"], "/dir/a \\377");
    assert_eq!(
        (&files[0]["reads"], &files[0]["micros"]),
        (&2.into(), &55.into())
    );
    assert_eq!(files[0]["slowest_micros"], 50);
    assert_eq!(
        (&files[1]["node"], &files[1]["path"]),
        (&7.into(), &serde_json::Value::Null)
    );
}
