//! A server on loopback with written answers, for tests of clients in several packages.
#![allow(clippy::unwrap_used, dead_code)]

use std::sync::{Arc, Mutex};

/// One request that a server of [`answering`] took.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The request line and the headers.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: String,
}

/// What a server of [`answering`] heard so far.
pub(crate) struct Heard(Arc<Mutex<Vec<Exchange>>>);

impl Heard {
    /// Takes all of it.
    pub(crate) fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A server on loopback that gives these answers, one for each connection, and keeps what it was asked. The first value is its address.
pub(crate) async fn answering(answers: Vec<(u16, String)>) -> (String, Heard) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = heard.clone();
    tokio::task::spawn(async move {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let exchange = loop {
                let mut some = [0; 4096];
                let n = stream.read(&mut some).await.unwrap();
                bytes.extend_from_slice(some.get(..n).unwrap());
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.parse::<usize>().unwrap()) {
                    break Exchange { head: format!("{head}\r\n"), body: body.to_owned() };
                }
            };
            kept.lock().unwrap().push(exchange);
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            // A client that has read enough may hang up.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body.as_bytes()).await;
        }
    });
    (base, Heard(heard))
}
