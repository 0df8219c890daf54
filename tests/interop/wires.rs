//! The same booking over every wire, also with a server that is killed in the middle of a reply, with `wires.py`.

use crate::processes::{install_dir, python, test_dir};

#[test]
fn every_wire_books_once_and_its_reply_is_whole_after_a_kill() {
    let output = python()
        .arg(test_dir().join("wires.py"))
        .arg(env!("CARGO_BIN_EXE_segue"))
        .arg(install_dir())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
