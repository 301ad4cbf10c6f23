//! Dispatches gRPC calls by path.

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
use super::turns::{Kind as Turned, Turn, Turns};
use crate::record::Kind;
use crate::{Result, Snapshotter};

/// Snapshots per message of a list. Snapshots have labels, and a message is limited to 4 MiB.
const PAGE: usize = 16;

#[derive(Clone, Debug)]
pub struct Service {
    snapshotter: Arc<Snapshotter>,
    turns: Turns,
}

impl Service {
    pub fn new(snapshotter: Arc<Snapshotter>) -> Self {
        let turns = Turns::new();
        Self { snapshotter, turns }
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
        let with = self.clone();
        let path = request.uri().path();
        let name = path.strip_prefix("/containerd.services.snapshots.v1.Snapshots/");
        match name.unwrap_or_default() {
            "Prepare" => answered(Prepare { with }, request),
            "View" => unary(with, Turned::Mounts, request, |it, ask: PrepareRequest| {
                it.prepare(&ask.key, &ask.parent, ask.labels, Kind::View, None)
                    .map(MountsResponse::from)
            }),
            "Mounts" => unary(with, Turned::Mounts, request, |it, ask: KeyRequest| {
                it.mounts(&ask.key).map(MountsResponse::from)
            }),
            "Commit" => unary(with, Turned::Files, request, |it, ask: CommitRequest| {
                it.commit(&ask.name, &ask.key, ask.labels).map(Empty::from)
            }),
            "Remove" => unary(with, Turned::Files, request, remove),
            "Stat" => unary(with, Turned::Files, request, |it, ask: KeyRequest| {
                it.stat(&ask.key).map(InfoResponse::from)
            }),
            "Update" => unary(with, Turned::Files, request, |it, ask: UpdateRequest| {
                let info = ask.info.unwrap_or_default();
                let fields = ask.update_mask.unwrap_or_default().paths;
                it.update(&info.name, &info.labels, &fields)
                    .map(InfoResponse::from)
            }),
            "List" => list(with, request),
            "Usage" => unary(with, Turned::Files, request, |it, ask: KeyRequest| {
                it.usage(&ask.key).map(UsageResponse::from)
            }),
            "Cleanup" => unary(with, Turned::Files, request, |it, _: CleanupRequest| {
                it.clean_up().map(Empty::from)
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("no such call").into_http()) }),
        }
    }
}

/// Removes a snapshot, and answers before its files are deleted, because containerd holds a lock
/// until then.
fn remove(snapshotter: &Arc<Snapshotter>, ask: KeyRequest) -> Result<Empty> {
    snapshotter.remove(&ask.key)?;
    if snapshotter.starts_deletion() {
        let snapshotter = Arc::clone(snapshotter);
        tokio::task::spawn_blocking(move || delete_removed(&snapshotter));
    }
    Ok(Empty {})
}

/// Deletes the files of removed snapshots. A failure is logged; the next deletion tries again.
pub fn delete_removed(snapshotter: &Snapshotter) {
    if let Err(error) = snapshotter.delete_removed() {
        tracing::warn!("{error}");
    }
}

/// Runs the blocking work of a request that has been given a turn.
async fn work<T: Send + 'static>(
    snapshotter: Arc<Snapshotter>,
    turn: Turn,
    work: impl FnOnce(&Arc<Snapshotter>) -> Result<T> + Send + 'static,
) -> std::result::Result<T, Status> {
    let work = move || {
        let _until_the_end = turn;
        work(&snapshotter)
    };
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Status::internal(error.to_string()))?;
    done.map_err(|error| {
        tracing::debug!("{error}");
        Status::from(error)
    })
}

/// Handler of `Prepare`, which may contact a registry.
struct Prepare {
    with: Service,
}

impl UnaryService<PrepareRequest> for Prepare {
    type Response = MountsResponse;
    type Future = BoxFuture<Response<MountsResponse>, Status>;

    fn call(&mut self, request: Request<PrepareRequest>) -> Self::Future {
        let (with, ask) = (self.with.clone(), request.into_inner());
        Box::pin(async move {
            let mut named = with.snapshotter.named_layer(&ask.labels);
            let mut turn = None;
            if let Some(layer) = &named {
                turn = with.turns.to_ask().await;
                if turn.is_none() {
                    let image = layer.image.as_str();
                    tracing::warn!(
                        image,
                        "the layer is unpacked: too many layers wait for registries"
                    );
                    named = None;
                }
            }
            if turn.is_none() {
                turn = with.turns.of(Turned::Mounts).await;
            }
            let done = work(with.snapshotter, turn, move |it| {
                it.prepare(&ask.key, &ask.parent, ask.labels, Kind::Active, named)
            });
            Ok(Response::new(done.await?.into()))
        })
    }
}

struct Unary<F> {
    with: Service,
    kind: Turned,
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
        let (with, kind, run) = (self.with.clone(), self.kind, self.work);
        let ask = request.into_inner();
        Box::pin(async move {
            let turn = with.turns.of(kind).await;
            let done = work(with.snapshotter, turn, move |it| run(it, ask)).await;
            done.map(Response::new)
        })
    }
}

fn unary<F, A, R>(
    with: Service,
    kind: Turned,
    request: http::Request<Body>,
    work: F,
) -> BoxFuture<http::Response<Body>, Infallible>
where
    F: FnOnce(&Arc<Snapshotter>, A) -> Result<R> + Copy + Send + 'static,
    A: Message + Default + 'static,
    R: Message + 'static,
{
    answered(Unary { with, kind, work }, request)
}

fn answered<S, A, R>(
    service: S,
    request: http::Request<Body>,
) -> BoxFuture<http::Response<Body>, Infallible>
where
    S: UnaryService<A, Response = R, Future = BoxFuture<Response<R>, Status>> + Send + 'static,
    A: Message + Default + 'static,
    R: Message + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<R, A>::default());
        Ok(grpc.unary(service, request).await)
    })
}

/// Handler of `List`, which streams its response.
struct List {
    with: Service,
}

type Pages = tokio_stream::Iter<std::vec::IntoIter<std::result::Result<ListResponse, Status>>>;

impl ServerStreamingService<ListRequest> for List {
    type Response = ListResponse;
    type ResponseStream = Pages;
    type Future = BoxFuture<Response<Pages>, Status>;

    fn call(&mut self, request: Request<ListRequest>) -> Self::Future {
        let with = self.with.clone();
        let filters = request.into_inner().filters;
        Box::pin(async move {
            let turn = with.turns.of(Turned::Files).await;
            let found = work(with.snapshotter, turn, move |it| it.list(&filters)).await?;
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
    with: Service,
    request: http::Request<Body>,
) -> BoxFuture<http::Response<Body>, Infallible> {
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<ListResponse, ListRequest>::default());
        Ok(grpc.server_streaming(List { with }, request).await)
    })
}

#[cfg(test)]
mod tests;
