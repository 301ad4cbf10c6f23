//! Assembles an HTML page: one file with style, data and script.

use serde_json::Value;

pub const LARGEST_PAGE: usize = 2_000_000;

const STYLE: &str = include_str!("../assets/page.css");
const COMMON: &str = include_str!("../assets/common.js");

/// Assembles a page. `title` is plain text, `body` is markup, and `script` draws `data` unless it
/// is empty.
pub fn page(title: &str, body: &str, data: &Value, script: &str) -> String {
    let title = markup(title);
    let data = json(data);
    let (without, script) = match script {
        "" => ("", String::new()),
        script => (
            "<noscript><p>The pictures are drawn by a script in this page.</p></noscript>\n",
            format!("<script>\n{COMMON}{script}</script>\n"),
        ),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{without}{body}\
         <script type=\"application/json\" id=\"data\">{data}</script>\n{script}</body>\n</html>\n"
    )
}

/// Formats JSON as ASCII that is safe in a script element.
fn json(data: &Value) -> String {
    let text = data.to_string();
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' | '>' | '&' | '\u{7f}'.. => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    safe.push_str(&format!("\\u{unit:04x}"));
                }
            }
            char => safe.push(char),
        }
    }
    safe
}

pub fn markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            char => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn data_cannot_end_its_element() {
        let page = page(
            "<b>&\"'",
            "",
            &json!({"name": "</script><!-- \u{e9}\u{1f600}"}),
            "draw();",
        );
        assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;"));
        assert!(page.contains(r#"{"name":"\u003c/script\u003e\u003c!-- \u00e9\ud83d\ude00"}"#));
        assert_eq!(page.matches("</script>").count(), 2);
    }
}
