//! The chat page and the widget in Chromium, with `chat_page.mjs`.

use std::{path::Path, process::Command};

use crate::processes::install_dir;

#[test]
fn the_chat_page_and_the_widget_work_in_a_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("node")
        .arg(root.join("tests/interop/chat_page.mjs"))
        .arg(env!("CARGO_BIN_EXE_segue"))
        .arg(root.join("tests/projects/courier"))
        .arg(install_dir().join("node_modules"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
