//! A loopback HTTP server with scripted responses, for the unit tests of HTTP clients in several packages.
#![allow(clippy::unwrap_used, dead_code)]

use std::sync::{Arc, Mutex};

/// A request that the server received.
#[derive(Debug)]
pub(crate) struct ReceivedRequest {
    /// The request line and the headers.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: String,
}

/// The requests that a server received and that no test has taken yet.
pub(crate) struct ReceivedRequests(Arc<Mutex<Vec<ReceivedRequest>>>);

impl ReceivedRequests {
    /// Takes all of them, oldest first.
    pub(crate) fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Starts a server that sends these responses (status and JSON body), one per connection, and records the requests. Returns its address.
pub(crate) async fn serve_responses(responses: Vec<(u16, String)>) -> (String, ReceivedRequests) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let received = requests.clone();
    tokio::task::spawn(async move {
        for (status, body) in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let request = loop {
                let mut buffer = [0; 4096];
                let n = stream.read(&mut buffer).await.unwrap();
                bytes.extend_from_slice(buffer.get(..n).unwrap());
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.parse::<usize>().unwrap()) {
                    break ReceivedRequest { head: format!("{head}\r\n"), body: body.to_owned() };
                }
            };
            received.lock().unwrap().push(request);
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            // The client may close the connection before it has read everything.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body.as_bytes()).await;
        }
    });
    (address, ReceivedRequests(requests))
}
