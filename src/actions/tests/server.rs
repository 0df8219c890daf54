//! A small scripted HTTP server.

use std::{
    io::Read,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value as Json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) line: String,
    head: Vec<(String, String)>,
    /// The body, decompressed.
    pub(super) json: Json,
}

impl Heard {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The response; `None` closes the connection.
type Answers = dyn Fn(&Heard) -> Option<String> + Send + Sync;

pub(super) struct Server {
    pub(super) url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
    connections: Arc<AtomicUsize>,
}

/// A complete response.
pub(super) fn answer(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl Server {
    pub(super) async fn start(answers: impl Fn(&Heard) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", Some(Arc::new(answers))).await
    }

    /// A server that accepts requests and never responds.
    pub(super) async fn silent() -> Self {
        Self::on("127.0.0.1:0", None).await
    }

    pub(super) async fn on(address: &str, answers: Option<Arc<Answers>>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}/webhook", listener.local_addr().unwrap());
        let (heard, connections) = (Arc::<Mutex<Vec<Heard>>>::default(), Arc::<AtomicUsize>::default());
        let (list, count) = (heard.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(converse(stream, answers.clone(), list.clone()));
            }
        });
        Self { url, heard, connections }
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn converse(mut stream: TcpStream, answers: Option<Arc<Answers>>, list: Arc<Mutex<Vec<Heard>>>) {
    while let Some(heard) = request(&mut stream).await {
        list.lock().unwrap().push(heard.clone());
        let Some(answers) = &answers else { return std::future::pending().await };
        let Some(bytes) = answers(&heard) else { return };
        if stream.write_all(bytes.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn request(stream: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let mut lines = head.lines();
            let line = lines.next()?.to_owned();
            let head: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            let named = |wanted: &str| head.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
            let length = named("content-length").map_or(0, |length| length.parse().unwrap());
            let body = &bytes[at + 4..];
            if body.len() >= length {
                let json = json(body, named("content-encoding").is_some());
                return Some(Heard { line, head, json });
            }
        }
        let mut some = [0; 4096];
        match stream.read(&mut some).await {
            Ok(read @ 1..) => bytes.extend_from_slice(&some[..read]),
            _ => return None,
        }
    }
}

fn json(body: &[u8], compressed: bool) -> Json {
    let mut plain = Vec::new();
    if compressed {
        flate2::read::ZlibDecoder::new(body).read_to_end(&mut plain).unwrap();
    } else {
        plain = body.to_vec();
    }
    serde_json::from_slice(&plain).unwrap_or_default()
}
