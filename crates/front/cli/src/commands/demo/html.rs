//! The results as a page of its own: no script, no font and no picture comes from elsewhere. Light or
//! dark, as the reader's browser prefers.

use std::fmt::Write as _;

use super::json;
use super::model::{DemoPart, Row, RowRole, grouped, ratio, seconds};
use super::report::DemoReport;

const STYLE: &str = include_str!("style.css");

/// Makes the page.
pub fn page(report: &DemoReport) -> String {
    let mut page = String::new();
    page += "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    page += "<meta name=\"color-scheme\" content=\"light dark\">\n";
    page += "<title>forerun demo</title>\n<style>\n";
    page += STYLE;
    page += "</style>\n</head>\n<body>\n<main>\n<h1>forerun demo</h1>\n";
    page += "<p class=\"lead\">Each system is measured the legacy way and with forerun, on files that the \
             demo made on this machine.</p>\n";
    for part in &report.parts {
        add_part(&mut page, part);
    }
    page += "<footer>\n";
    for note in report.notes() {
        paragraph(&mut page, "note", &note);
    }
    page += "</footer>\n</main>\n";
    let data = json::value(report).to_string();
    // No end tag can be spelled in it.
    let data = data.replace('<', "\\u003c");
    let _ = writeln!(
        page,
        "<script type=\"application/json\" id=\"results\">{data}</script>"
    );
    page += "</body>\n</html>\n";
    page
}

fn add_part(page: &mut String, part: &DemoPart) {
    let id = part.name.id();
    let _ = writeln!(
        page,
        "<section id=\"{id}\">\n<h2>{}</h2>",
        escape(part.name.title())
    );
    paragraph(page, "what", &part.what);
    let _ = writeln!(
        page,
        "<table>\n<thead><tr><td></td><th colspan=\"2\" scope=\"colgroup\">time</th>\
         <th colspan=\"2\" scope=\"colgroup\">{}</th></tr></thead>\n<tbody>",
        part.name.counts()
    );
    let slowest = part.rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let most = part
        .rows
        .iter()
        .filter_map(|row| row.count)
        .max()
        .unwrap_or(0);
    for row in &part.rows {
        add_row(page, row, slowest, most);
    }
    *page += "</tbody>\n</table>\n";
    if let Some(summary) = part.summary() {
        paragraph(page, "summary", &summary);
    }
    paragraph(page, "original", &part.original());
    for note in part.all_notes() {
        paragraph(page, "note", &note);
    }
    for what in &part.left_out {
        paragraph(page, "note", &format!("Left out: {what}"));
    }
    *page += "</section>\n";
}

fn add_row(page: &mut String, row: &Row, slowest: f64, most: u64) {
    let mark = if row.extrapolated { "&#8201;*" } else { "" };
    let count = row.count.map_or_else(|| "-".to_string(), grouped);
    let count_mark = if row.count.is_some() { mark } else { "" };
    let share = row.count.map_or(0.0, |count| ratio(count, most));
    let _ = writeln!(
        page,
        "<tr class=\"{}\"><th scope=\"row\">{}</th><td class=\"figure\">{}{mark}</td>{}\
         <td class=\"figure\">{count}{count_mark}</td>{}</tr>",
        row.role.id(),
        escape(&row.what),
        seconds(row.seconds),
        bar(row.role, row.seconds / slowest.max(f64::MIN_POSITIVE)),
        bar(row.role, share),
    );
}

/// Makes a cell with a bar for a part of the longest one. A figure that is not 0 is seen.
fn bar(role: RowRole, part: f64) -> String {
    let percent = part.clamp(0.0, 1.0) * 100.0;
    let least = if part > 0.0 { "min-width:2px;" } else { "" };
    format!(
        "<td class=\"bar\"><div class=\"{}\" style=\"{least}width:{percent:.2}%\"></div></td>",
        role.id()
    )
}

fn paragraph(page: &mut String, class: &str, text: &str) {
    let _ = writeln!(page, "<p class=\"{class}\">{}</p>", escape(text));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::model::PartName;
    use super::*;

    #[test]
    fn texts_and_data_are_escaped() {
        let mut part = DemoPart::new(PartName::Romfs, "Reads <b> & \"c\".");
        part.left_out
            .push("</script><script>alert(1)</script>".into());
        let report = DemoReport {
            parts: vec![part],
            no_mount: Some("</main>".into()),
            dropped_all: false,
            seconds: 1.0,
        };
        let page = page(&report);
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert_eq!(page.matches("</main>").count(), 1, "{page}");
        assert!(
            page.contains("Reads &lt;b&gt; &amp; &quot;c&quot;."),
            "{page}"
        );
    }
}
