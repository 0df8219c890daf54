//! What an idle conversation weighs: memory of this process before and after many spoke once. Each store is weighed in a
//! process of its own, whose memory nothing else has touched.

use std::{net::SocketAddr, path::Path, process::Command};

use crate::{
    Bench,
    assistant::{Keep, Segue, assistant},
    figures::{Figure, Goal, Table},
    machine,
    side::{ASKS, AT_ONCE, Side},
};

/// The argument that makes this program the scale.
pub(crate) const ARGUMENT: &str = "--weigh-idle";

/// Bytes of an idle conversation.
pub(crate) fn idle(bench: &Bench) -> Table {
    let mut table = Table::new(format!("{} idle conversations that spoke once", bench.effort.idle));
    for (name, keep, goal) in [
        ("idle conversation, SQLite store", "sqlite", Goal::of(4096.0, 2048.0)),
        ("idle conversation, memory store (which holds all of its events)", "memory", Goal::NONE),
    ] {
        let weigh = || {
            let mut scale = Command::new(std::env::current_exe().unwrap());
            scale.arg(ARGUMENT).arg(keep).arg(bench.model.address.to_string()).arg(bench.effort.idle.to_string());
            let said = scale.output().unwrap();
            let errors = String::from_utf8_lossy(&said.stderr);
            String::from_utf8_lossy(&said.stdout).trim().parse::<f64>().map_err(|_| errors.trim().to_owned())
        };
        match (0..3).map(|_| weigh()).collect::<Result<Vec<_>, _>>() {
            Ok(seen) => table.push(Figure::new(name, "bytes", seen).goal(goal)),
            Err(why) => table.missing(format!("{name}: {why}")),
        }
    }
    table
}

/// Weighs and prints the bytes of one conversation: `arguments` are those of [`idle`].
pub(crate) fn weigh(arguments: &[String]) {
    let [keep, address, count] = arguments else { panic!("store, address and count are wanted") };
    let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
    segue::http::install_tls();
    let folder = tempfile::tempdir().unwrap();
    let root = crate::harbour::write(folder.path(), address);
    let keep = if keep == "memory" { Keep::Memory } else { Keep::Normal };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(speak_once(&root, folder.path(), keep, count));
}

async fn speak_once(root: &Path, folder: &Path, keep: Keep, count: usize) {
    let segue = Segue::desk(assistant(root, folder, keep));
    let wave = |count: usize| {
        let segue = segue.clone();
        async move {
            let speaking = (0..AT_ONCE).map(|_| {
                let segue = segue.clone();
                tokio::spawn(async move {
                    for _ in 0..count / AT_ONCE {
                        let mut talk = segue.open().await;
                        segue.turn(&mut talk, ASKS).await;
                    }
                })
            });
            for done in speaking.collect::<Vec<_>>() {
                done.await.unwrap();
            }
        }
    };
    // Connections, statements, page caches and the bounded caches of conversations fill first: they do not grow with the count.
    wave(2 * segue::limits::CACHED_CONVERSATIONS).await;
    let before = machine::resident().expect("this system does not tell a process's memory");
    wave(count).await;
    let after = machine::resident().unwrap();
    println!("{}", after.saturating_sub(before) as f64 / (count / AT_ONCE * AT_ONCE) as f64);
}
