//! Foreign clients of the channels `socketio`, `websocket` and `callback`, with `sockets.mjs` and `socketio_client.py`.

use std::{path::Path, process::Command};

use crate::processes::install_dir;

#[test]
fn foreign_clients_talk_over_socketio_websockets_and_callbacks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("node")
        .arg(root.join("tests/interop/sockets.mjs"))
        .arg(env!("CARGO_BIN_EXE_segue"))
        .arg(root.join("tests/projects/courier"))
        .arg(install_dir().join("node_modules"))
        .arg(install_dir().join("venv/bin/python"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
