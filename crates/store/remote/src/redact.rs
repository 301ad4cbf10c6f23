//! Removes possible secrets from addresses: user, password, query and fragment.
//!
//! It accepts any text, because messages also quote refused addresses, and arguments that contain
//! an address.

/// Longest text in a message, in characters.
const LONGEST: usize = 200;

/// Removes user, password, query and fragment from the address in `text`. A text without `://` stays as it
/// is.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let rest = rest.get(..end).unwrap_or_default();
    // URL parsers skip further slashes before the host, and treat a backslash as a slash.
    let begin = rest.find(|c| !is_slash(c)).unwrap_or(rest.len());
    let (slashes, rest) = rest.split_at(begin);
    let (authority, path) = rest.split_at(rest.find(is_slash).unwrap_or(rest.len()));
    // In an image name, `@` starts a digest; before the first slash, it ends credentials.
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{slashes}{host}{path}")
}

#[must_use]
pub fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    let rest = rest.trim_start_matches(is_slash);
    let end = rest.find(|c| is_slash(c) || c == '?' || c == '#');
    let authority = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.and_then(|user| user.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty())
}

/// Hides secrets as [`without_secrets`] does, and shortens the text for a message.
pub(crate) fn for_message(text: &str) -> String {
    plain(&without_secrets(text), LONGEST)
}

/// Returns whether a character is safe to print. Control characters, line separators and direction
/// marks are not: with them, a text can look like another one.
#[must_use]
pub fn is_plain(c: char) -> bool {
    let tricky = matches!(
        c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    !c.is_control() && !tricky
}

/// Makes text from a server or document safe to print, and truncates it to `most` characters.
pub(crate) fn plain(text: &str, most: usize) -> String {
    text.chars().filter(|c| is_plain(*c)).take(most).collect()
}

fn is_slash(c: char) -> bool {
    c == '/' || c == '\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_servers_shows_as_itself() {
        let text = "a\u{202e}b\u{1b}[31m\u{61c}\u{2066}c\u{e9}\nd";
        assert_eq!(plain(text, 100), "ab[31mc\u{e9}d");
        assert_eq!(plain(text, 2), "ab");
    }

    #[test]
    fn secrets_are_removed_wherever_a_parser_finds_them() {
        for (text, shown, password) in [
            ("https://u:p@h:1/a?sig=1#f", "https://h:1/a", true),
            ("--mirror=https://u:p@h/a", "--mirror=https://h/a", true),
            ("https:///u:p@h/a", "https:///h/a", true),
            ("https://\\u:p@h\\a", "https://\\h\\a", true),
            ("https://u:p@q@h/a", "https://h/a", true),
            ("https://u@h/a", "https://h/a", false),
            ("https://u:@h/a", "https://h/a", false),
            ("https://h/a@b:c", "https://h/a@b:c", false),
            ("oci://h/a@sha256:12", "oci://h/a@sha256:12", false),
            ("a?b", "a?b", false),
        ] {
            assert_eq!(without_secrets(text), shown);
            assert_eq!(has_password(text), password, "{text}");
        }
    }
}
