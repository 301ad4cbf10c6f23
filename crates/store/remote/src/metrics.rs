//! A page of numbers for Prometheus, over HTTP.
//!
//! Every path returns the same page. Each connection gets one answer and is closed. A client that
//! does not send its request in time is disconnected.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::{RemoteError, Result, runtime};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at a time. A further one closes the oldest that has not sent its request.
const CONNECTIONS: usize = 64;

/// Serves the text of `page` at `address` (such as `127.0.0.1:9000`; port 0 takes any free port)
/// until the process exits. Returns the address with its port. Fails if the address is invalid or
/// in use.
pub fn serve_metrics(
    address: &str,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> Result<SocketAddr> {
    let refused = |reason: String| RemoteError::Refused {
        place: address.to_owned(),
        reason,
    };
    let (listener, bound) = runtime::wait_for(async {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| refused(error.to_string()))?;
        let bound = listener.local_addr();
        let bound = bound.map_err(|error| refused(error.to_string()))?;
        Ok((listener, bound))
    })?;
    let page: Arc<dyn Fn() -> String + Send + Sync> = Arc::new(page);
    runtime::handle()?.spawn(accept(listener, page));
    Ok(bound)
}

async fn accept(listener: TcpListener, page: Arc<dyn Fn() -> String + Send + Sync>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // The process has probably run out of file descriptors. Other threads may close some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let page = Arc::clone(&page);
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(async move {
            let answer = hyper::service::service_fn(move |request| {
                let answer = answer(&request, &*page);
                async { Ok::<_, std::convert::Infallible>(answer) }
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            let server = server.keep_alive(false).timer(TokioTimer::new());
            let connection = server.serve_connection(TokioIo::new(stream), answer);
            // A client that sends a bad request, or none in time, gets no answer.
            let _gone = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
        open.push_back(connection.abort_handle());
    }
}

fn answer<B>(request: &Request<B>, page: &dyn Fn() -> String) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        let mut refusal = Response::new(Full::default());
        *refusal.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return refusal;
    }
    let mut answer = Response::new(Full::new(Bytes::from(page())));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read as _, Write as _};

    use super::*;

    fn ask(bound: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(bound).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_served_and_nothing_else() {
        let bound = serve_metrics("127.0.0.1:0", || "a 1\n".to_owned()).unwrap();
        let answer = ask(bound, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        let answer = ask(
            bound,
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
        );
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(ask(bound, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn connections_that_ask_for_nothing_keep_no_client_from_its_answer() {
        let bound = serve_metrics("127.0.0.1:0", || "a 1\n".to_owned()).unwrap();
        let idle: Vec<_> = (0..200)
            .map(|_| std::net::TcpStream::connect(bound).unwrap())
            .collect();
        let answer = ask(bound, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        // The newest connections are all still open.
        idle[199].set_nonblocking(true).unwrap();
        let left = (&idle[199]).read(&mut [0]);
        assert_eq!(left.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn an_address_that_is_taken_is_told() {
        let bound = serve_metrics("127.0.0.1:0", String::new).unwrap();
        let error = serve_metrics(&bound.to_string(), String::new).unwrap_err();
        assert!(error.to_string().contains(&bound.to_string()), "{error}");
        assert!(serve_metrics("nowhere", String::new).is_err());
    }
}
