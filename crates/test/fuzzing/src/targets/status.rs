//! The socket of `forerun status`: the bytes that the server reads, and the answers that the
//! command shows.

use forerun_cli::fuzzing;

use super::{Made, named};

pub fn question(bytes: &[u8]) {
    let _is_understood = fuzzing::question(bytes);
}

pub use fuzzing::answers;

pub fn question_seeds() -> Made {
    let long = vec![b'7'; 65];
    let seeds = [
        ("status", Vec::new()),
        ("restart", b"0:77".to_vec()),
        ("long", long),
    ];
    Ok(named(seeds))
}

pub fn answer_seeds() -> Made {
    let local = r#"{"pid":1,"dir":"/mnt","image":"a.sqfs","memory_bytes":4096,"cache_bytes":1048576,
        "memory_limit_bytes":8388608,"memory_limit_by":"the cgroup",
        "sandbox":{"files":{"state":"partly","detail":"Linux 5.13"}},"remote":null}"#;
    let remote = r#"{"pid":2,"dir":"/b","image":"https://h/b","memory_limit_by":null,
        "remote":{"bytes":100,"local_bytes":50,
        "complete":false,"bytes_per_second":7,"queued":1,"queued_ahead":2,"queued_background":3,
        "in_flight":4,"verified":false,"errors":1,"last_error":"no route"}}"#;
    let line = |text: &str| text.replace('\n', " ");
    let both = [line(local), line(remote)].join("\n");
    let seeds = [
        ("local", line(local)),
        ("remote", line(remote)),
        ("both", both),
    ];
    Ok(named(seeds.map(|(name, text)| (name, text.into_bytes()))))
}
