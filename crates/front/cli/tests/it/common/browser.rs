//! Pages in a browser: headless Chromium without a network.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun_testkit::{TempDir, require, temp_dir};
use serde_json::Value;

/// Functions for the tests' scripts: rows of tables as lists, and a reader's events.
const HELPERS: &str = r##"
const rows = (id) => Object.fromEntries([...document.querySelectorAll("#" + id + " tr[data-key]")].map((row) =>
  [row.dataset.key, [...row.cells].map((cell) => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value))]));
const at = (id, x, y) => { const box = document.getElementById(id).getBoundingClientRect();
  return { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true, cancelable: true }; };
const send = (id, event) => document.getElementById(id).dispatchEvent(event);
const key = (id, key) => send(id, new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const point = (id, x, y) => send(id, new PointerEvent("pointermove", at(id, x, y)));
const wheel = (id, x, y, deltaY, shiftKey) => send(id, new WheelEvent("wheel", { ...at(id, x, y), deltaY, shiftKey }));
const tipText = () => document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent;
const viewNow = () => JSON.parse(document.documentElement.dataset.view);
"##;

/// Draws again in a page as narrow as a phone, and returns labels of an axis that touch. `draw` is
/// the page's function for that.
pub const TOUCHING_LABELS: &str = r##"
  const touching = [], fill = CanvasRenderingContext2D.prototype.fillText;
  let last = null, labels = 0;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.textAlign === "center") {
      const half = this.measureText(text).width / 2;
      if (last && last.canvas === this.canvas && last.y === y && x - half < last.right) touching.push(last.text + " " + text);
      last = { canvas: this.canvas, text, y, right: x + half };
      labels += 1;
    }
    fill.call(this, text, x, y);
  };
  document.body.style.width = "375px";
  draw();
  return { touching, drawn: labels > 1 };
"##;

pub struct Browser {
    dir: TempDir,
}

impl Browser {
    /// Returns a browser. Without Chromium, reports that and returns `None`.
    pub fn new() -> Option<Self> {
        require::program("chromium")?;
        let dir = temp_dir("browser");
        Some(Self { dir })
    }

    /// Opens a copy of a page and runs `script` in it. Returns the object that the script returns.
    ///
    /// # Panics
    /// If the page or the script writes to the console, which includes errors and refused requests.
    #[track_caller]
    pub fn run(&self, page: &Path, script: &str) -> Value {
        let text = fs::read_to_string(page).unwrap();
        let script = format!(
            "<script>{HELPERS}\nconst told = (() => {{ {script} }})();\n\
             document.body.textContent = \"\"; document.body.title = encodeURIComponent(JSON.stringify(told));</script></body>"
        );
        let with_script = text.replace("</body>", &script);
        assert_ne!(text, with_script);
        let copy = self.dir.path().join("page.html");
        fs::write(&copy, with_script).unwrap();
        let output = Command::new("chromium")
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--dump-dom",
            ])
            .args(["--no-first-run", "--disable-extensions", "--disable-sync"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args([
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--window-size=1200,900",
            ])
            .args([
                "--enable-logging=stderr",
                "--v=0",
                "--disable-dev-shm-usage",
            ])
            .arg(format!(
                "--user-data-dir={}",
                self.dir.path().join("profile").display()
            ))
            .arg(format!("file://{}", copy.display()))
            .env("HOME", self.dir.path())
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        let complaints = log.lines().filter(|line| line.contains("CONSOLE"));
        assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());
        let dom = String::from_utf8_lossy(&output.stdout);
        let told = dom
            .split_once("<body title=\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let (told, _) = told.unwrap_or_else(|| panic!("no answer of the page: {log}\n{dom}"));
        serde_json::from_slice(&decoded(told)).unwrap()
    }
}

fn decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).unwrap());
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}
