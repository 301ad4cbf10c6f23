//! Tests the proxy before a web server, with a minimal client.

use std::io::{BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::http::{Body, Head};
use super::{Fault, FaultProxy, Link, Log, Network};
use crate::Nginx;
use forerun_testkit::rng::Rng;
use forerun_testkit::{TempDir, temp_dir};

const LEN: usize = 3_000_000;
const LIMIT: Duration = Duration::from_secs(20);

struct Setup {
    _dir: TempDir,
    _nginx: Nginx,
    proxy: FaultProxy,
    bytes: Vec<u8>,
}

fn setup() -> Option<Setup> {
    let dir = temp_dir("proxy");
    let mut rng = Rng::new(1);
    let bytes: Vec<u8> = (0..LEN).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    std::fs::write(dir.path().join("file"), &bytes).unwrap();
    let nginx = Nginx::serve(dir.path())?;
    let proxy = FaultProxy::start(&nginx.url());
    Some(Setup {
        _dir: dir,
        _nginx: nginx,
        proxy,
        bytes,
    })
}

/// An answer, possibly incomplete.
struct Got {
    head: Head,
    body: Vec<u8>,
    error: Option<ErrorKind>,
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(proxy: &FaultProxy) -> std::io::Result<Self> {
        let stream = TcpStream::connect(proxy.authority())?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn get(&mut self, range: Option<(usize, usize)>) -> std::io::Result<Option<Got>> {
        let range = range.map_or(String::new(), |(first, last)| {
            format!("Range: bytes={first}-{last}\r\n")
        });
        let request = format!("GET /file?q=1 HTTP/1.1\r\nHost: x\r\n{range}\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let Some(head) = Head::read(&mut self.0)? else {
            return Ok(None);
        };
        let mut reading = Body::new(head.answer_body("GET"));
        let (mut body, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        let error = loop {
            match reading.read(&mut self.0, &mut buffer) {
                Ok(0) => break None,
                Ok(read) => body.extend_from_slice(&buffer[..read]),
                Err(error) => break Some(error.kind()),
            }
        };
        Ok(Some(Got { head, body, error }))
    }
}

fn one(proxy: &FaultProxy, range: Option<(usize, usize)>) -> std::io::Result<Option<Got>> {
    Client::new(proxy)?.get(range)
}

#[test]
fn bytes_pass_unchanged_on_one_connection() {
    let Some(setup) = setup() else {
        return;
    };
    let Setup { proxy, bytes, .. } = &setup;
    let mut client = Client::new(proxy).unwrap();
    let all = client.get(None).unwrap().unwrap();
    assert_eq!((all.head.status(), all.error), (200, None));
    assert!(all.body == *bytes);
    for (first, last) in [(0, 0), (10, 99_999), (LEN - 5, LEN - 1)] {
        let got = client.get(Some((first, last))).unwrap().unwrap();
        assert_eq!(got.head.status(), 206);
        assert!(got.body == bytes[first..=last]);
    }
    // The proxy records the end of an answer after the client has its last byte.
    forerun_testkit::eventually("all answers are finished", || {
        proxy.log().entries.iter().all(|entry| entry.finished)
    });
    let log = proxy.log();
    assert_eq!(log.requests(), 4);
    assert_eq!(log.entries[2].range, Some((10, Some(99_999))));
    assert_eq!(log.entries[2].path, "/file");
    assert_eq!(log.entries[2].query, "q=1");
    assert_eq!(log.entries[2].header("host"), Some("x"));
    assert!(log.entries.iter().all(|e| e.connection == 0 && e.finished));
    assert_eq!(log.sent_twice("/file"), 1 + 99_990 + 5);
    proxy.forget();
    assert_eq!(proxy.log().requests(), 0);
}

/// The range that the tests of faults request.
const RANGE: (usize, usize) = (1000, 100_999);

impl Setup {
    /// Requests [`RANGE`] with a fault. Returns the answer and the proxy's log.
    fn with(&self, fault: Fault) -> (std::io::Result<Option<Got>>, Log) {
        self.proxy.forget();
        self.proxy.fault_at(0, fault);
        let got = one(&self.proxy, Some(RANGE));
        let log = self.proxy.log();
        self.proxy.clear_faults();
        (got, log)
    }

    fn whole(&self) -> &[u8] {
        &self.bytes[RANGE.0..=RANGE.1]
    }
}

#[test]
fn resets_and_cuts_end_the_answer_early() {
    let Some(setup) = setup() else {
        return;
    };
    for fault in [Fault::ResetBeforeHead, Fault::ResetAt { after: 0 }] {
        let (got, _) = setup.with(fault.clone());
        let reset = match got {
            Ok(Some(got)) => got.body.is_empty() && got.error.is_some(),
            Ok(None) => false,
            Err(_) => true,
        };
        assert!(reset, "{fault:?}");
    }
    for fault in [
        Fault::ResetAt { after: 50_000 },
        Fault::Truncate { after: 50_000 },
    ] {
        let (got, log) = setup.with(fault.clone());
        let got = got.unwrap().unwrap();
        assert!(got.error.is_some(), "{fault:?}");
        assert_eq!(got.head.get("content-length"), Some("100000"));
        assert!(setup.whole().starts_with(&got.body));
        let entry = &log.entries[0];
        assert_eq!((entry.sent, entry.finished), (50_000, false), "{fault:?}");
    }
}

#[test]
fn wrong_and_missing_bytes_are_as_many_as_the_fault_says() {
    let Some(setup) = setup() else {
        return;
    };
    let whole = setup.whole();
    let (got, _) = setup.with(Fault::WrongBytes {
        offset: 40_000,
        len: 3,
    });
    let body = got.unwrap().unwrap().body;
    let wrong: Vec<usize> = (0..whole.len())
        .filter(|&at| body[at] != whole[at])
        .collect();
    assert_eq!(wrong, [40_000, 40_001, 40_002]);
    let got = setup.with(Fault::Whole).0.unwrap().unwrap();
    assert!(got.head.status() == 200 && got.body == setup.bytes);
    let got = setup.with(Fault::Short { len: 10 }).0.unwrap().unwrap();
    assert_eq!(got.head.content_range(), Some((1000, 1009, 3_000_000)));
    assert!(got.error.is_none() && got.body == whole[..10]);
    let (got, _) = setup.with(Fault::Garbage);
    assert!(got.is_err() || got.unwrap().is_none_or(|got| got.head.status() == 0));
}

#[test]
fn heads_say_what_the_fault_says() {
    let Some(setup) = setup() else {
        return;
    };
    let check = |fault, header, code, expected: &str| {
        let head = setup.with(fault).0.unwrap().unwrap().head;
        assert_eq!((head.status(), head.get(header)), (code, Some(expected)));
    };
    let busy = Fault::Status {
        code: 429,
        retry_after: Some(7),
    };
    check(busy, "retry-after", 429, "7");
    let location = "http://elsewhere/".to_string();
    let elsewhere = Fault::Redirect { location };
    check(elsewhere, "location", 307, "http://elsewhere/");
    for (fault, range) in [
        (Fault::WrongContentRange, "bytes 1001-101000/3000000"),
        (Fault::WrongTotal, "bytes 1000-100999/3000001"),
    ] {
        check(fault, "content-range", 206, range);
    }
}

#[test]
fn what_stalls_stalls_until_the_client_gives_up() {
    let Some(setup) = setup() else {
        return;
    };
    let proxy = &setup.proxy;
    for fault in [Fault::Stall, Fault::StallAt { after: 70_000 }] {
        proxy.forget();
        proxy.fault_at(0, fault.clone());
        let mut client = Client::new(proxy).unwrap();
        let brief = Some(Duration::from_millis(300));
        client.0.get_mut().set_read_timeout(brief).unwrap();
        let got = client.get(None);
        let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
        match got {
            Err(error) => assert!(late.contains(&error.kind()) && fault == Fault::Stall),
            Ok(got) => {
                let got = got.unwrap();
                assert_eq!(got.body.len(), 70_000);
                assert!(late.contains(&got.error.unwrap()));
            }
        }
    }
}

#[test]
fn a_link_has_its_latency_and_its_speed() {
    let Some(setup) = setup() else {
        return;
    };
    let Setup { proxy, bytes, .. } = &setup;
    proxy.set_link(Link {
        rtt: Duration::from_millis(100),
        bytes_per_second: Some(10_000_000),
    });
    let start = Instant::now();
    let mut client = Client::new(proxy).unwrap();
    client.get(Some((0, 0))).unwrap().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200));
    let start = Instant::now();
    // Two parallel transfers share the line.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!(one(proxy, None).unwrap().unwrap().body == *bytes));
        }
    });
    // Two round trips and two files of 3 MB, minus the queue.
    assert!(start.elapsed() >= Duration::from_millis(200 + 600 - 10));
}

#[test]
fn a_network_goes_and_comes_back() {
    let Some(setup) = setup() else {
        return;
    };
    let Setup { proxy, bytes, .. } = &setup;
    let mut open = Client::new(proxy).unwrap();
    open.get(Some((0, 9))).unwrap().unwrap();
    proxy.set_network(Network::Refused);
    let refused = one(proxy, None).err().unwrap().kind();
    // The listener closes a moment later, and resets earlier connections.
    let expected = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
    assert!(expected.contains(&refused), "{refused}");
    assert!(open.get(Some((0, 9))).is_err() || open.get(Some((0, 9))).is_err());
    proxy.set_network(Network::Up);
    assert!(one(proxy, None).unwrap().unwrap().body == *bytes);

    proxy.forget();
    proxy.set_network(Network::Silent);
    let mut client = Client::new(proxy).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get(Some((0, 9))).unwrap().unwrap().body);
        assert!(proxy.wait_for_requests(1, LIMIT));
        assert_eq!(proxy.log().entries[0].status, None);
        proxy.set_network(Network::Up);
        assert!(waiting.join().unwrap() == bytes[..10]);
    });
}

#[test]
fn requests_have_bodies_too_and_functions_choose() {
    let Some(setup) = setup() else {
        return;
    };
    let proxy = &setup.proxy;
    proxy.faults(|request| {
        (request.method == "PUT").then_some(Fault::Status {
            code: 503,
            retry_after: None,
        })
    });
    let mut client = Client::new(proxy).unwrap();
    let put =
        "PUT /new HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    client.0.get_mut().write_all(put.as_bytes()).unwrap();
    assert_eq!(Head::read(&mut client.0).unwrap().unwrap().status(), 503);
    // The body was read to its end, so the next request is parsed correctly.
    assert_eq!(client.get(Some((0, 9))).unwrap().unwrap().body.len(), 10);
    proxy.clear_faults();
    let put = "PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    client.0.get_mut().write_all(put.as_bytes()).unwrap();
    // nginx serves files and accepts none.
    let head = Head::read(&mut client.0).unwrap().unwrap();
    assert_eq!(head.status(), 405);
}

#[test]
fn a_proxy_without_a_server_says_so() {
    let proxy = FaultProxy::start(&format!("127.0.0.1:{}", crate::free_port()));
    assert_eq!(one(&proxy, None).unwrap().unwrap().head.status(), 502);
    let place = proxy.authority();
    drop(proxy);
    assert!(TcpStream::connect(place).is_err());
}
