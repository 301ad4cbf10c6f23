//! Lists of referrers in several pages.

use serde_json::{Value, json};

use super::fake::{Answer, Fake};
use super::referrers::{Place, index};

/// Returns the relative address of a page.
fn page(number: usize) -> Option<String> {
    Some(format!("?artifactType=x&page={number}"))
}

#[test]
fn a_list_of_referrers_is_read_to_its_last_page() {
    let place = Place::new(true);
    place.push(b"old", "2026-01-02T00:00:00Z");
    place.push(b"new", "2026-02-02T00:00:00Z");
    place.push(b"older", "2026-01-01T00:00:00Z");
    // Three artifacts on five pages. The second and the fourth page are empty, as on registries
    // that filter pages.
    place.set_pages(|number, manifests| {
        let entries = match number % 2 {
            0 => &manifests[number / 2..=number / 2],
            _ => &[],
        };
        (index(entries), page(number + 1).filter(|_| number < 4))
    });
    let (found, pages) = place.found_in_pages();
    assert_eq!((found.as_deref(), pages), (Some(&b"new"[..]), 5));
    // The newest artifact is on the last page.
    place.push(b"oldest", "2025-01-01T00:00:00Z");
    place.set_pages(|number, manifests| {
        let last = manifests.len() - 1 - number;
        let of_page = &manifests[last..=last];
        (index(of_page), page(number + 1).filter(|_| last > 0))
    });
    let (found, pages) = place.found_in_pages();
    assert_eq!((found.as_deref(), pages), (Some(&b"new"[..]), 4));
}

#[test]
fn lists_of_referrers_that_do_not_end_or_go_on_elsewhere_are_not_used() {
    let place = Place::new(true);
    place.push(b"good", "2026-01-02T00:00:00Z");
    let other = Fake::start(|_| Answer::new(200, index(&[])));
    let elsewhere = |url: String| move |_| Some(url.clone());
    let own = place.server.authority();
    type Next = Box<dyn Fn(usize) -> Option<String> + Send>;
    let cases: [(&str, usize, usize, Next); 8] = [
        // The first page has no number.
        ("the same page", 0, 2, Box::new(|_| page(0))),
        ("a loop", 0, 5, Box::new(|number| page((number + 1) % 4))),
        ("no end", 0, 64, Box::new(|number| page(number + 1))),
        (
            "long pages",
            3 << 20,
            3,
            Box::new(|number| page(number + 1)),
        ),
        (
            "another port",
            0,
            1,
            Box::new(elsewhere(format!("http://{}/v2/a/x", other.authority()))),
        ),
        (
            "another host",
            0,
            1,
            Box::new(elsewhere(format!("//{}/x", other.authority()))),
        ),
        (
            "a password",
            0,
            1,
            Box::new(elsewhere(format!(
                "http://u:p@{own}/v2/a/referrers/x?page=1"
            ))),
        ),
        ("no URL", 0, 1, Box::new(elsewhere("http://[".to_owned()))),
    ];
    for (case, padding, expected, next) in cases {
        place.set_pages(move |number, manifests| {
            let mut page: Value = serde_json::from_slice(&index(manifests)).unwrap();
            page["annotations"] = json!({"padding": " ".repeat(padding)});
            (serde_json::to_vec(&page).unwrap(), next(number))
        });
        let (found, pages) = place.found_in_pages();
        // SOCI indexes are searched for as well.
        assert_eq!((found, pages), (None, 2 * expected), "{case}");
    }
    assert_eq!(other.log().len(), 0);
    place.registry.lock().unwrap().pages = None;
    assert_eq!(place.found().as_deref(), Some(&b"good"[..]));
}
