//! A part as a table with bars, for a terminal of 100 columns.

use super::model::{DemoPart, Row, grouped, ratio, seconds};

/// Columns that no line exceeds.
const WIDTH: usize = 100;
/// Columns of a bar.
const BAR: usize = 16;
const INDENT: &str = "   ";

/// The characters that the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Bars in eighths of a column.
    Unicode,
    /// Bars of `#`.
    Ascii,
}

impl Charset {
    /// Returns the characters of the locale.
    pub fn of_locale() -> Self {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"].iter();
        let set = names.filter_map(|name| std::env::var(name).ok());
        Self::of_name(
            &set.into_iter()
                .find(|value| !value.is_empty())
                .unwrap_or_default(),
        )
    }

    fn of_name(locale: &str) -> Self {
        let name = locale.to_ascii_lowercase();
        match name.contains("utf-8") || name.contains("utf8") {
            true => Self::Unicode,
            false => Self::Ascii,
        }
    }

    /// Returns a bar for a part of the longest one.
    #[allow(clippy::as_conversions)] // From 0 to 128: nothing is lost but the fraction.
    fn bar(self, part: f64) -> String {
        const EIGHTHS: [&str; 8] = [
            "", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}",
        ];
        let eighths = (part.clamp(0.0, 1.0) * ratio(8 * crate::size::count_of(BAR), 1)).round();
        // A figure that is not 0 is seen.
        let eighths = (eighths as usize).max(usize::from(part > 0.0));
        match self {
            Self::Unicode => {
                let end = EIGHTHS.get(eighths % 8).copied().unwrap_or_default();
                format!("{}{end}", "\u{2588}".repeat(eighths / 8))
            }
            Self::Ascii if (1..8).contains(&eighths) => "|".to_string(),
            Self::Ascii => "#".repeat(eighths / 8),
        }
    }
}

/// Formats the table, the comparison and the remarks.
pub fn text(part: &DemoPart, charset: Charset) -> String {
    let label = part
        .rows
        .iter()
        .map(|row| row.what.len())
        .max()
        .unwrap_or(0);
    let mut lines = vec![format!(
        "{INDENT}{:label$}  {:>10}   {:BAR$}  {:>9}",
        "",
        "time",
        "",
        part.name.counts()
    )];
    let slowest = longest(part, |row| Some(row.seconds));
    let most = longest(part, |row| row.count.map(|count| ratio(count, 1)));
    for row in &part.rows {
        let mark = if row.extrapolated { '*' } else { ' ' };
        let count = row.count.map_or_else(|| "-".to_string(), grouped);
        let share = row.count.map_or(0.0, |count| ratio(count, 1) / most);
        lines.push(format!(
            "{INDENT}{:label$}  {:>10} {mark} {:BAR$}  {count:>9} {mark} {}",
            row.what,
            seconds(row.seconds),
            charset.bar(row.seconds / slowest),
            charset.bar(share),
        ));
    }
    let mut text = vec![String::new()];
    text.extend(lines.iter().map(|line| line.trim_end().to_string()));
    text.push(String::new());
    let left_out = part.left_out.iter().map(|what| format!("Left out: {what}"));
    let sentences = part.summary().into_iter().chain([part.original()]);
    let remarks = part.all_notes().into_iter().chain(left_out);
    for sentence in sentences.chain(remarks) {
        wrap(&sentence, &mut text);
    }
    text.join("\n")
}

fn longest(part: &DemoPart, of: impl Fn(&Row) -> Option<f64>) -> f64 {
    let most = part.rows.iter().filter_map(of).fold(0.0, f64::max);
    most.max(f64::MIN_POSITIVE)
}

/// Adds a sentence in lines of the width, indented.
pub fn wrap(sentence: &str, lines: &mut Vec<String>) {
    let mut line = INDENT.to_string();
    for word in sentence.split_whitespace() {
        let is_first = line.trim_end().is_empty();
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, INDENT.to_string()));
        }
        if !line.trim_end().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::super::model::{PartName, RowRole};
    use super::*;

    fn part() -> DemoPart {
        let mut part = DemoPart::new(PartName::Exfat, "Removes.");
        let row = |id, role, seconds, count, extrapolated| Row {
            id,
            role,
            what: "legacy: a write for each cluster".into(),
            seconds,
            count,
            extrapolated,
        };
        part.rows = vec![
            row("a", RowRole::Legacy, 41.25, Some(32_772), true),
            row("b", RowRole::Ours, 0.005, Some(4), false),
            row("c", RowRole::Reference, 20.0, None, false),
        ];
        part.notes
            .push("A remark that is longer than a line. ".repeat(5));
        part.left_out.push("a mount: there is no /dev/fuse".into());
        part
    }

    #[test]
    fn bars_are_as_long_as_the_figures() {
        assert_eq!(Charset::Unicode.bar(1.0).chars().count(), BAR);
        assert_eq!(Charset::Ascii.bar(1.0), "#".repeat(BAR));
        assert_eq!(Charset::Ascii.bar(0.5), "#".repeat(BAR / 2));
        assert_eq!(Charset::Unicode.bar(1e-6), "\u{258f}");
        assert_eq!(Charset::Ascii.bar(1e-6), "|");
        assert_eq!(Charset::Ascii.bar(0.0), "");
        assert_eq!(Charset::of_name("en_GB.UTF-8"), Charset::Unicode);
        assert_eq!(Charset::of_name("C"), Charset::Ascii);
        assert_eq!(Charset::of_name("C.utf8"), Charset::Unicode);
    }

    #[test]
    fn lines_are_short_and_complete() {
        for charset in [Charset::Unicode, Charset::Ascii] {
            let text = text(&part(), charset);
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(WIDTH), "{text}");
            assert_eq!(text.is_ascii(), charset == Charset::Ascii, "{text}");
            for word in [
                "41.25 s *",
                "32,772 *",
                "Left out: a mount",
                "32,775 -> 13 writes",
            ] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
    }
}
