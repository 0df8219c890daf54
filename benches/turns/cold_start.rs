//! The cold start of `segue chat` with the starter, until its first reply.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{Bench, result_table::ResultTable};

/// Measures the CPU time until the first reply.
pub(crate) fn measure(bench: &Bench, table: &mut ResultTable) {
    if !table.includes("cold start") {
        return;
    }
    let values: Option<Vec<f64>> =
        (0..4 * bench.rounds * bench.repetitions).map(|_| Some(run_once()?.as_secs_f64() * 1e3)).collect();
    match values {
        Some(values) => _ = table.push("cold start to the first reply", "CPU ms", values, None, Some(20.0)),
        None => {
            println!("The cold start is not measured: this system does not report the CPU time of another process.\n")
        }
    }
}

/// The CPU time of one start; `None` if the system does not report it.
fn run_once() -> Option<Duration> {
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
    let cpu_time = cpu_time(child.id());
    drop(input);
    lines.for_each(drop);
    child.wait().unwrap();
    cpu_time
}

/// The CPU time of a running process: the sum over its running threads. Linux only.
fn cpu_time(process: u32) -> Option<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanoseconds))
}
