//! Calls by their paths.

use std::convert::Infallible;
use std::sync::Arc;

use prost::Message;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, http, tokio_stream};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::messages::{
    CleanupRequest, CommitRequest, Empty, InfoMessage, InfoResponse, KeyRequest, ListRequest,
    ListResponse, MountsResponse, PrepareRequest, UpdateRequest, UsageResponse,
};
use crate::record::Kind;
use crate::{Result, Snapshotter};

/// Snapshots in a message of a list: each has labels, and a message is at most 4 MiB.
const PAGE: usize = 16;

/// Answers calls with what the snapshotter does.
#[derive(Clone, Debug)]
pub struct Service {
    snapshotter: Arc<Snapshotter>,
}

impl Service {
    /// Creates one.
    pub fn new(snapshotter: Arc<Snapshotter>) -> Self {
        Self { snapshotter }
    }
}

impl tonic::codegen::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let with = Arc::clone(&self.snapshotter);
        let path = request.uri().path();
        let name = path.strip_prefix("/containerd.services.snapshots.v1.Snapshots/");
        match name.unwrap_or_default() {
            "Prepare" => unary(with, request, |it, ask: PrepareRequest| {
                it.prepare(&ask.key, &ask.parent, ask.labels, Kind::Active)
                    .map(MountsResponse::from)
            }),
            "View" => unary(with, request, |it, ask: PrepareRequest| {
                it.prepare(&ask.key, &ask.parent, ask.labels, Kind::View)
                    .map(MountsResponse::from)
            }),
            "Mounts" => unary(with, request, |it, ask: KeyRequest| {
                it.mounts(&ask.key).map(MountsResponse::from)
            }),
            "Commit" => unary(with, request, |it, ask: CommitRequest| {
                it.commit(&ask.name, &ask.key, ask.labels).map(Empty::from)
            }),
            "Remove" => unary(with, request, remove),
            "Stat" => unary(with, request, |it, ask: KeyRequest| {
                it.stat(&ask.key).map(InfoResponse::from)
            }),
            "Update" => unary(with, request, |it, ask: UpdateRequest| {
                let info = ask.info.unwrap_or_default();
                let fields = ask.update_mask.unwrap_or_default().paths;
                it.update(&info.name, &info.labels, &fields)
                    .map(InfoResponse::from)
            }),
            "List" => list(with, request),
            "Usage" => unary(with, request, |it, ask: KeyRequest| {
                it.usage(&ask.key).map(UsageResponse::from)
            }),
            "Cleanup" => unary(with, request, |it, _: CleanupRequest| {
                it.clean_up().map(Empty::from)
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("no such call").into_http()) }),
        }
    }
}

/// Removes a snapshot, and answers before its files are deleted: containerd holds a lock meanwhile.
fn remove(snapshotter: &Arc<Snapshotter>, ask: KeyRequest) -> Result<Empty> {
    snapshotter.remove(&ask.key)?;
    let snapshotter = Arc::clone(snapshotter);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = snapshotter.delete_removed() {
            tracing::warn!("{error}");
        }
    });
    Ok(Empty {})
}

/// Does the work of a request on a thread that may wait.
async fn work<T: Send + 'static>(
    snapshotter: Arc<Snapshotter>,
    work: impl FnOnce(&Arc<Snapshotter>) -> Result<T> + Send + 'static,
) -> std::result::Result<T, Status> {
    let done = tokio::task::spawn_blocking(move || work(&snapshotter)).await;
    let done = done.map_err(|error| Status::internal(error.to_string()))?;
    done.map_err(|error| {
        tracing::debug!("{error}");
        Status::from(error)
    })
}

/// A call with one message as its answer.
struct Unary<F> {
    snapshotter: Arc<Snapshotter>,
    work: F,
}

impl<F, A, R> UnaryService<A> for Unary<F>
where
    F: FnOnce(&Arc<Snapshotter>, A) -> Result<R> + Copy + Send + 'static,
    A: Send + 'static,
    R: Send + 'static,
{
    type Response = R;
    type Future = BoxFuture<Response<R>, Status>;

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (snapshotter, run) = (Arc::clone(&self.snapshotter), self.work);
        let ask = request.into_inner();
        Box::pin(async move {
            let done = work(snapshotter, move |it| run(it, ask)).await;
            done.map(Response::new)
        })
    }
}

fn unary<F, A, R>(
    snapshotter: Arc<Snapshotter>,
    request: http::Request<Body>,
    work: F,
) -> BoxFuture<http::Response<Body>, Infallible>
where
    F: FnOnce(&Arc<Snapshotter>, A) -> Result<R> + Copy + Send + 'static,
    A: Message + Default + 'static,
    R: Message + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<R, A>::default());
        Ok(grpc.unary(Unary { snapshotter, work }, request).await)
    })
}

/// The call with many messages as its answer.
struct List {
    snapshotter: Arc<Snapshotter>,
}

type Pages = tokio_stream::Iter<std::vec::IntoIter<std::result::Result<ListResponse, Status>>>;

impl ServerStreamingService<ListRequest> for List {
    type Response = ListResponse;
    type ResponseStream = Pages;
    type Future = BoxFuture<Response<Pages>, Status>;

    fn call(&mut self, request: Request<ListRequest>) -> Self::Future {
        let snapshotter = Arc::clone(&self.snapshotter);
        let filters = request.into_inner().filters;
        Box::pin(async move {
            let found = work(snapshotter, move |it| it.list(&filters)).await?;
            let found: Vec<_> = found.into_iter().map(InfoMessage::from).collect();
            let pages = found.chunks(PAGE).map(|page| {
                let info = page.to_vec();
                Ok(ListResponse { info })
            });
            let pages: Vec<_> = pages.collect();
            Ok(Response::new(tokio_stream::iter(pages)))
        })
    }
}

fn list(
    snapshotter: Arc<Snapshotter>,
    request: http::Request<Body>,
) -> BoxFuture<http::Response<Body>, Infallible> {
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<ListResponse, ListRequest>::default());
        Ok(grpc.server_streaming(List { snapshotter }, request).await)
    })
}
