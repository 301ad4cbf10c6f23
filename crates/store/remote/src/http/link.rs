//! The `Link` header (RFC 8288), which gives the next page of a list.

use crate::http::parameter;

/// Length limit of a header, in bytes.
const MAX_HEADER: usize = 8 * 1024;
const SPACES: [char; 2] = [' ', '\t'];

/// Returns the target of the first link in `header` with the relation `next`. The target is an
/// unchecked URL reference.
pub fn next(header: &str) -> Option<&str> {
    if header.len() > MAX_HEADER {
        return None;
    }
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (target, parameters) = rest.strip_prefix('<')?.split_once('>')?;
        let (is_next, behind) = is_next(parameters)?;
        if is_next {
            return Some(target);
        }
        rest = behind.strip_prefix(',')?;
    }
}

/// Parses the parameters of a link. Returns whether its relation is `next`, and the text after the
/// parameters.
fn is_next(parameters: &str) -> Option<(bool, &str)> {
    let mut relation: Option<String> = None;
    let mut rest = parameters.trim_start_matches(SPACES);
    while let Some(parameter) = rest.strip_prefix(';') {
        let parameter = parameter.trim_start_matches(SPACES);
        let end = parameter.find([' ', '\t', ',', ';', '=']);
        let (name, behind) = parameter.split_at(end.unwrap_or(parameter.len()));
        rest = behind.trim_start_matches(SPACES);
        if let Some(value) = rest.strip_prefix('=') {
            let value = value.trim_start_matches(SPACES);
            let (value, behind) = parameter::value(value, &[' ', '\t', ',', ';'])?;
            if name.eq_ignore_ascii_case("rel") {
                // A second `rel` does not count.
                relation.get_or_insert(value);
            }
            rest = behind.trim_start_matches(SPACES);
        }
    }
    let relations = relation.unwrap_or_default();
    let mut relations = relations.split_ascii_whitespace();
    let is_next = relations.any(|relation| relation.eq_ignore_ascii_case("next"));
    Some((is_next, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_that_of_the_link_with_this_relation() {
        for (header, expected) in [
            ("</v2/a?n=1&last=b>; rel=\"next\"", Some("/v2/a?n=1&last=b")),
            ("<x>; rel=next", Some("x")),
            ("<x> ;REL = \"prev Next\"", Some("x")),
            (
                "<p>; rel=\"prev\", <n>;title=\"a, <b>; rel=next\";rel=next",
                Some("n"),
            ),
            ("<p,q>; rel=prev , , <n;m>; rel=next; other", Some("n;m")),
            ("<x>; title=\"\\\"\"; rel=next", Some("x")),
            ("<>; rel=next", Some("")),
            // Only the first relation of a link counts.
            ("<x>; rel=prev; rel=next", None),
            ("<x>; rel=nextpage", None),
            ("<x>; rel", None),
            ("<x>; title=\"rel=next", None),
            ("<x>", None),
            ("<x", None),
            ("x; rel=next", None),
            ("<p>; rel=prev <n>; rel=next", None),
            ("", None),
            (",,,", None),
            ("<x>;;;", None),
        ] {
            assert_eq!(next(header), expected, "{header}");
        }
        let long = format!("<{}>; rel=next", "x".repeat(MAX_HEADER));
        assert_eq!(next(&long), None);
    }
}
