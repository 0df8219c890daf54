//! OpenAI's SDKs as clients of the channel `openai`, with `openai_client.py`.

use std::process::Command;

use crate::processes::{install_dir, test_dir};

#[test]
fn openai_sdks_book_a_crossing() {
    let output = Command::new(install_dir().join("venv-openai/bin/python"))
        .arg(test_dir().join("openai_client.py"))
        .arg(env!("CARGO_BIN_EXE_segue"))
        .arg(install_dir().join("node_modules"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
