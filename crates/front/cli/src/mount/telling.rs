//! The thread that answers status questions.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use super::handover::Succession;
use super::report::Report;
use crate::socket::{Unnamed, question};

/// Answers status questions until dropped.
pub struct Telling {
    socket: PathBuf,
}

impl Drop for Telling {
    fn drop(&mut self) {
        // If this fails, the next process that asks removes the socket.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Starts to answer. Without `succession`, no process can take the mount over. If this fails, the
/// mount still works.
pub fn tell(
    unnamed: Unnamed,
    report: &Arc<Report>,
    succession: Option<&Arc<Succession>>,
) -> io::Result<Telling> {
    let (listener, socket) = unnamed.name()?;
    let telling = Telling {
        socket: socket.clone(),
    };
    let report = Arc::clone(report);
    let succession = succession.map(Arc::clone);
    if let Some(succession) = &succession {
        succession.asked_at(&socket);
    }
    let thread = std::thread::Builder::new().name("status".to_string());
    thread.stack_size(128 << 10).spawn(move || {
        for asker in listener.incoming().flatten() {
            let Some(json) = report.json() else { return };
            let asked = match question(&asker) {
                Ok(asked) => asked,
                Err(error) => {
                    tracing::debug!("status: {error}");
                    continue;
                }
            };
            if asked.is_empty() {
                let _gone = (&asker).write_all(format!("{json}\n").as_bytes());
                continue;
            }
            let named = succession.as_ref();
            match named.filter(|succession| succession.is_of(&asked)) {
                Some(succession) => succession.begin(&asker),
                // A mount of another namespace may have the same path.
                None => {
                    let _gone = (&asker).write_all(b"another mount");
                }
            }
        }
    })?;
    Ok(telling)
}
