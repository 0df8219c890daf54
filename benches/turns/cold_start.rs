//! A cold start of the program on the assistant of this repository, to its first reply.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{Bench, figures::Table};

/// CPU time up to the first reply.
pub(crate) fn cold(bench: &Bench, table: &mut Table) {
    if !table.wants("cold start") {
        return;
    }
    let seen: Option<Vec<f64>> =
        (0..4 * bench.rounds * bench.repetitions).map(|_| Some(once()?.as_secs_f64() * 1e3)).collect();
    match seen {
        Some(seen) => _ = table.push("cold start to the first reply", "CPU ms", seen, None, Some(20.0)),
        None => {
            println!("The cold start is not measured: this system does not tell the CPU time of another process.\n")
        }
    }
}

fn once() -> Option<Duration> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(["chat", env!("CARGO_MANIFEST_DIR"), "--store", "memory"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"hello\n").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("bot: ")), "`segue chat` ended without a reply");
    let spent = cpu_of(child.id());
    drop(input);
    lines.for_each(drop);
    child.wait().unwrap();
    spent
}

/// CPU time of a running process so far: the sum over its living threads. Linux tells it.
fn cpu_of(process: u32) -> Option<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanoseconds))
}
