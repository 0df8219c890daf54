//! A cold start of the program on the assistant of this repository, to its first reply; and how large the program is.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::{
    Bench,
    figures::{Figure, Goal, Table},
    machine,
};

/// How long a start may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the user says; the starter's script answers it.
const LINE: &str = "hello\n";

/// Cold start and size.
pub(crate) fn start(bench: &Bench) -> Table {
    let mut table = Table::new("The program");
    let starts = 4 * bench.effort.rounds;
    let (mut to_reply, mut whole, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.effort.repetitions {
        let ended = machine::cpu_of_ended();
        for _ in 0..starts {
            match once() {
                Ok((cpu, waited)) => {
                    to_reply.extend(cpu.map(|cpu| cpu.as_secs_f64() * 1e3));
                    wall.push(waited.as_secs_f64() * 1e3);
                }
                Err(why) => {
                    table.missing(format!("the cold start: {why}"));
                    size(&mut table);
                    return table;
                }
            }
        }
        let spent = machine::cpu_of_ended().zip(ended).map(|(after, before)| after.saturating_sub(before));
        whole.extend(spent.map(|spent| spent.as_secs_f64() * 1e3 / starts as f64));
    }
    if to_reply.is_empty() {
        table.missing("CPU time up to the first reply: this system does not tell it of another process");
    } else {
        table.push(Figure::new("cold start to the first reply", "CPU ms", to_reply).goal(Goal::of(15.0, 6.0)));
    }
    if !whole.is_empty() {
        table.push(Figure::new("`segue chat` from start to exit, one message", "CPU ms", whole));
    }
    table.push(Figure::new("cold start to the first reply", "ms", wall));
    size(&mut table);
    table
}

/// One start: CPU time and wall time up to the first reply.
fn once() -> Result<(Option<Duration>, Duration), String> {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(["chat", env!("CARGO_MANIFEST_DIR"), "--store", "memory"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    let output = child.stdout.take().ok_or("no standard output")?;
    let (told, heard) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = told.send(line);
        }
    });
    let _ = input.write_all(LINE.as_bytes()).and_then(|()| input.flush());
    let reply = loop {
        match heard.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            Ok(line) if line.starts_with("bot: ") => break Ok((machine::cpu_of(child.id()), began.elapsed())),
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => break Err(format!("no reply within {PATIENCE:?}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => break Err("`segue chat` ended without a reply".to_owned()),
        }
    };
    drop(input);
    if reply.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let _ = reader.join();
    reply
}

/// The size of the binary as it is shipped, without symbols.
fn size(table: &mut Table) {
    let built = Path::new(env!("CARGO_BIN_EXE_segue"));
    let bytes = |path: &Path| std::fs::metadata(path).map(|data| data.len() as f64 / 1e6).ok();
    let stripped: Option<PathBuf> = tempfile::tempdir().ok().map(|folder| folder.keep().join("segue"));
    let done = stripped.as_ref().is_some_and(|to| {
        Command::new("strip").arg("-o").arg(to).arg(built).status().is_ok_and(|status| status.success())
    });
    let (name, path) = match stripped {
        Some(path) if done => ("binary, stripped", path),
        _ => ("binary, with symbols (`strip` is missing here)", built.to_path_buf()),
    };
    match bytes(&path) {
        Some(size) => table.push(Figure::new(name, "MB", vec![size]).goal(Goal::must(40.0))),
        None => table.missing("the size of the binary: it is not there"),
    }
    if done {
        let _ = path.parent().map(std::fs::remove_dir_all);
    }
}
