//! Reads, hashes and stores the contents of all files on several threads.
//!
//! A file that is short, or in the store already, is read once. A long new file is read again to be
//! copied, so that only needed objects are written.

use std::collections::HashSet;
use std::io;

use forerun_build::{
    BuildError, Content, NodeIndex, NodeKind, ParallelBounds, Tree, WriterNeeds, parallel_map,
    read_whole,
};
use forerun_io::usize_from;

use super::ComposefsOptions;
use super::data::{FileData, Files};
use crate::store::{Additions, ObjectStore, Source};

/// Longest file that stays in memory between hashing and storing.
const WHOLE: u64 = 1 << 20;
struct Job<'t> {
    node: NodeIndex,
    path: Vec<u8>,
    len: u64,
    content: &'t Content,
}

/// Reads all files of the tree, and stores all except the inline ones.
pub fn take_all(tree: &Tree, options: &ComposefsOptions) -> Result<Files, BuildError> {
    let store = match &options.objects {
        Some(path) => Some(
            ObjectStore::create(path).map_err(|source| BuildError::Host {
                path: path.clone(),
                source,
            })?,
        ),
        None => None,
    };
    let additions = store.as_ref().map(Additions::new);
    let worker = || Ok(|job: Job<'_>| take(job, options, additions.as_ref()));
    let needs = WriterNeeds {
        codec: None,
        each: WHOLE,
        nodes: tree.len(),
    };
    let bounds = needs.bounds(ParallelBounds {
        threads: options.threads,
        memory: 0,
    })?;
    let mut files = Files::default();
    let taken = parallel_map(
        bounds,
        worker,
        |jobs| {
            each_file(tree, &mut |job| {
                let weight = job.path.len() + usize_from(job.len.min(WHOLE));
                jobs.send(job, weight)
            })
        },
        |(node, data)| {
            files.insert(node, data);
            Ok(())
        },
    );
    taken?;
    if let (Some(additions), Some(path)) = (additions, &options.objects) {
        let finished = additions.finish();
        finished.map_err(|source| BuildError::Host {
            path: path.clone(),
            source,
        })?;
    }
    Ok(files)
}

/// Sends each non-empty file once.
fn each_file<'t, E>(
    tree: &'t Tree,
    send: &mut dyn FnMut(Job<'t>) -> Result<(), E>,
) -> Result<(), E> {
    let mut seen = HashSet::new();
    let mut pending = vec![(Vec::new(), Tree::ROOT)];
    while let Some((path, dir)) = pending.pop() {
        for (name, node) in tree.children(dir) {
            let path = [&path[..], b"/", name].concat();
            match &tree.node(node).kind {
                NodeKind::Directory(_) => pending.push((path, node)),
                NodeKind::File { len, content } if *len > 0 && seen.insert(node) => send(Job {
                    node,
                    path,
                    len: *len,
                    content,
                })?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn take(
    job: Job<'_>,
    options: &ComposefsOptions,
    additions: Option<&Additions<'_>>,
) -> Result<(NodeIndex, FileData), BuildError> {
    let failed = |reason: String| BuildError::Content {
        path: job.path.clone(),
        reason,
    };
    let io_failed = |error: io::Error| failed(error.to_string());
    let data = if job.len <= WHOLE {
        let bytes = read_whole(job.content, job.len)
            .map_err(|reason| reason.of(job.path.clone(), job.len))?;
        if bytes.len() <= options.inline {
            FileData::Inline(bytes)
        } else {
            let digest = options.digest.digest(&bytes);
            if let Some(additions) = additions {
                let host = match (options.hard_links, job.content) {
                    (true, Content::Host(file)) => Some(file.open().map_err(io_failed)?),
                    _ => None,
                };
                let source = match &host {
                    Some(file) => Source::File { file, link: true },
                    None => Source::Bytes(&bytes),
                };
                let added = additions.add(&digest, job.len, source);
                added.map_err(io_failed)?;
            }
            FileData::object(digest)
        }
    } else {
        let stream = job.content.open(job.len).map_err(io_failed)?;
        let (digest, len) = options.digest.measure(stream).map_err(io_failed)?;
        if len != job.len {
            return Err(failed(changed(&job)));
        }
        if let Some(additions) = additions {
            store_long(&job, options, additions, &digest).map_err(io_failed)?;
        }
        FileData::object(digest)
    };
    Ok((job.node, data))
}

fn store_long(
    job: &Job<'_>,
    options: &ComposefsOptions,
    additions: &Additions<'_>,
    digest: &crate::Digest,
) -> io::Result<()> {
    match job.content {
        Content::Host(file) => {
            let file = &file.open()?;
            let link = options.hard_links;
            additions.add(digest, job.len, Source::File { file, link })
        }
        Content::Part { .. } | Content::Bytes(_) | Content::Other(_) => {
            let stream = job.content.open(job.len)?;
            additions.add(digest, job.len, Source::Stream(stream))
        }
    }?;
    Ok(())
}

fn changed(job: &Job<'_>) -> String {
    format!("its length was {} bytes and has changed", job.len)
}
