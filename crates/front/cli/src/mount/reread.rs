//! Reads mirrors and credentials again on SIGHUP, and contacts the servers of the image anew.
//!
//! Servers may not answer, and the signal thread must stay responsive, so the first SIGHUP starts a
//! separate thread. Signals that arrive while it works make it run once more, however many they
//! are.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};

use forerun::unstable::remote::RemoteImage;

use crate::args::RemoteArgs;

type Work = Box<dyn FnMut() + Send>;

pub struct Rereading {
    /// Set until the thread is started.
    work: Option<Work>,
    asked: Option<SyncSender<()>>,
}

impl Rereading {
    /// Creates a rereader for `images` with the options of their command line. Returns `None` if
    /// there are no images. Does not keep the images open.
    pub fn of(images: &[Arc<RemoteImage>], mut args: RemoteArgs) -> Option<Self> {
        let weak: Vec<_> = images.iter().map(Arc::downgrade).collect();
        let reread = move || {
            if let Err(error) = args.reread() {
                tracing::error!("mirrors and credentials stay as they are: {error}");
                return;
            }
            for image in weak.iter().filter_map(Weak::upgrade) {
                match image.reopen(&args.options()) {
                    Ok(()) => tracing::info!("mirrors and credentials were read again"),
                    Err(error) => {
                        tracing::error!("mirrors and credentials stay as they are: {error}")
                    }
                }
            }
        };
        (!images.is_empty()).then(|| Self::new(reread))
    }

    fn new(work: impl FnMut() + Send + 'static) -> Self {
        Self {
            work: Some(Box::new(work)),
            asked: None,
        }
    }

    /// Requests a reread, and does not wait for it.
    pub fn ask(&mut self) {
        if let Some(work) = self.work.take() {
            self.asked = start(work);
        }
        let sent = self.asked.as_ref().map(|asked| asked.try_send(()));
        match sent {
            // A queued request will start later than now, so it covers this one.
            Some(Ok(()) | Err(TrySendError::Full(()))) => {}
            Some(Err(TrySendError::Disconnected(()))) | None => {
                tracing::error!(
                    "mirrors and credentials stay as they are: there is no thread to read them"
                );
            }
        }
    }
}

fn start(mut work: Work) -> Option<SyncSender<()>> {
    let (asked, asks) = sync_channel(1);
    let thread = std::thread::Builder::new().name("reread".to_string());
    // A request is dequeued before its work begins, so one that arrives during the work is queued.
    let started = thread.spawn(move || asks.into_iter().for_each(|()| work()));
    started.is_ok().then_some(asked)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_at_a_time_and_once_more() {
        let (began, begins) = channel();
        let (end, ends) = channel::<()>();
        let mut rereading = Rereading::new(move || {
            began.send(()).unwrap();
            ends.recv().unwrap();
        });
        let patience = Duration::from_secs(30);
        rereading.ask();
        begins.recv_timeout(patience).unwrap();
        for _ in 0..5 {
            rereading.ask();
        }
        assert!(begins.try_recv().is_err(), "one at a time");
        end.send(()).unwrap();
        begins.recv_timeout(patience).unwrap();
        end.send(()).unwrap();
        // The thread and its end of the channel end after the queued request.
        drop(rereading);
        assert!(begins.recv_timeout(patience).is_err(), "only once more");
    }
}
