//! Calls while registries do not respond.

#![allow(clippy::unwrap_used)]
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::{fs, io};

use forerun_testkit::memory_dir;
use http_body_util::Full;
use tokio::task::JoinHandle;
use tonic::codegen::Service as _;

use super::*;
use crate::{Images, ManifestFacts};

/// Images in registries that do not respond until the test lets them.
#[derive(Default)]
struct Silent {
    answers: Mutex<bool>,
    changed: Condvar,
}

impl Images for Silent {
    fn manifest(&self, image: &str) -> std::result::Result<ManifestFacts, String> {
        let answers = self.answers.lock().unwrap();
        drop(
            self.changed
                .wait_while(answers, |answers| !*answers)
                .unwrap(),
        );
        Err(format!("{image} is gone"))
    }

    fn mount(&self, _: &str, _: usize, _: &Path, _: &Path) -> std::result::Result<(), String> {
        Ok(())
    }

    fn is_mounted(&self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn unmount(&self, _: &Path) -> std::result::Result<(), String> {
        Ok(())
    }

    fn forget(&self, _: Vec<String>) -> Vec<String> {
        Vec::new()
    }
}

/// Starts a call. Its result is the error status, `None` for success.
fn call(service: &Service, name: &str, message: &impl Message) -> JoinHandle<Option<String>> {
    let message = message.encode_to_vec();
    let len = u32::try_from(message.len()).unwrap();
    let framed = [&[0], &len.to_be_bytes()[..], &message].concat();
    let request = http::Request::post(format!(
        "/containerd.services.snapshots.v1.Snapshots/{name}"
    ))
    .header("content-type", "application/grpc");
    let request = request.body(Body::new(Full::from(framed))).unwrap();
    let mut service = service.clone();
    tokio::spawn(async move {
        let answer = service.call(request).await.unwrap();
        let status = answer.headers().get("grpc-status");
        status.map(|status| status.to_str().unwrap().to_owned())
    })
}

#[test]
fn registries_that_do_not_answer_hold_up_no_other_call() {
    let dir = memory_dir("silent", 16 << 20);
    let images = Arc::new(Silent::default());
    let snapshotter = Snapshotter::open(dir.path(), Arc::<Silent>::clone(&images)).unwrap();
    let service = Service::new(Arc::new(snapshotter));
    let layer = |number: usize| {
        let image = format!("registry{number}.example/app:1");
        let labels = [
            ("containerd.io/snapshot.ref", "chain"),
            ("containerd.io/snapshot/cri.image-ref", &image),
            ("containerd.io/snapshot/cri.layer-digest", "sha256:layer"),
        ];
        PrepareRequest {
            key: format!("layer {number}"),
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..PrepareRequest::default()
        }
    };
    let key = |key: &str| KeyRequest {
        key: key.to_owned(),
    };
    super::super::runtime().unwrap().block_on(async {
        let waiting: Vec<_> = (0..64)
            .map(|number| call(&service, "Prepare", &layer(number)))
            .collect();
        // The calls above take all turns for registries.
        let container = PrepareRequest {
            key: "container".to_owned(),
            ..PrepareRequest::default()
        };
        assert_eq!(call(&service, "Prepare", &container).await.unwrap(), None);
        for name in ["Stat", "Mounts", "Usage", "Remove"] {
            let answer = call(&service, name, &key("container")).await.unwrap();
            assert_eq!(answer, None, "{name}");
        }
        // The next layer is unpacked instead of waiting.
        let unpacked = call(&service, "Prepare", &layer(1000)).await.unwrap();
        assert_eq!(unpacked, None);
        assert!(waiting.iter().all(|call| !call.is_finished()));
        *images.answers.lock().unwrap() = true;
        images.changed.notify_all();
        for call in waiting {
            assert_eq!(call.await.unwrap(), None);
        }
    });
    assert_eq!(
        fs::read_dir(dir.path().join("records")).unwrap().count(),
        65
    );
}
