//! The models of the prompt evaluation: cassettes, a server whose answers are recorded, or old cassettes recorded again for changed
//! prompts.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures::stream;
use segue::{
    context::CallContext,
    llm::{
        self, ChatRequest, ChatStream, Delta, Llm, LlmError, ModelConfig, ModelProfile,
        cassette::{Exchange, ExchangeOutcome, Recorder, ReplayOrder, Replayer},
    },
};
use tokio::sync::Notify;

/// Where answers come from.
#[derive(Clone, PartialEq)]
pub(super) enum Mode {
    /// From the cassettes.
    Replay,
    /// From a chat-completions server at this address.
    Record(String),
    /// From the cassettes in their order, whatever the request is; recorded again with the new requests.
    ReplayInOrder,
}

impl Mode {
    /// The value of `SEGUE_TRIALS`: the address of a server (record), or `retell` (replay in order and record). Not set: replay.
    pub(super) fn of_environment() -> Self {
        match segue::environment::variable("SEGUE_TRIALS") {
            None => Self::Replay,
            Some(word) if word == "retell" => Self::ReplayInOrder,
            Some(address) => Self::Record(address),
        }
    }

    /// The model of one conversation, whose cassette has this path.
    pub(super) fn model(&self, path: &Path) -> RecordedModel {
        let cassette = || fs::read_to_string(path).unwrap_or_default();
        let recorded = Buffer::default();
        let mut replayer = None;
        let inner: Arc<dyn Llm> = match self {
            Self::Replay => {
                let player = Arc::new(Replayer::new(&cassette(), ReplayOrder::AsRecorded).unwrap());
                replayer = Some(player.clone());
                player
            }
            Self::Record(address) => Arc::new(Recorder::new(server(address), recorded.clone())),
            Self::ReplayInOrder => {
                let left = cassette().lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect();
                let in_order =
                    InOrderModel { left: Mutex::new(left), profile: ModelProfile::for_model("openai", "scripted") };
                Arc::new(Recorder::new(Arc::new(in_order), recorded.clone()))
            }
        };
        RecordedModel(Arc::new(Inner {
            model: inner,
            replayer,
            recorded,
            sizes: Mutex::default(),
            failed: Notify::new(),
        }))
    }
}

fn server(address: &str) -> Arc<dyn Llm> {
    segue::http::install_tls();
    let config = ModelConfig {
        provider: "openai".into(),
        model: "bridge".into(),
        api_base: Some(address.to_owned()),
        api_key: Some(segue::secret::Secret::new("none".to_owned())),
        num_retries: Some(0),
        ..ModelConfig::default()
    };
    llm::open(&[config], &llm::LlmEnvironment::default()).unwrap()
}

/// The model of one conversation. Its first failure while recording ends the conversation: later turns would be meaningless.
#[derive(Clone)]
pub(super) struct RecordedModel(Arc<Inner>);

struct Inner {
    model: Arc<dyn Llm>,
    replayer: Option<Arc<Replayer>>,
    recorded: Buffer,
    /// The estimated tokens of each request: the characters of its messages divided by four.
    sizes: Mutex<Vec<usize>>,
    failed: Notify,
}

impl RecordedModel {
    pub(super) fn model(&self) -> Arc<dyn Llm> {
        Arc::new(self.clone())
    }
    /// Waits for a failure while recording.
    pub(super) async fn failed(&self) {
        self.0.failed.notified().await;
    }
    /// The number of requests so far.
    pub(super) fn requests(&self) -> usize {
        self.0.sizes.lock().unwrap().len()
    }
    /// The sizes of the requests from number `from`, counted from 0.
    pub(super) fn sizes(&self, from: usize) -> Vec<usize> {
        self.0.sizes.lock().unwrap()[from..].to_vec()
    }
    /// Writes the recording up to the first failure to a cassette.
    pub(super) fn write_recording(&self, path: &Path) {
        let bytes = self.0.recorded.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let is_response = |line: &&str| {
            matches!(serde_json::from_str::<Exchange>(line).unwrap().outcome, ExchangeOutcome::Response(_))
        };
        let lines: Vec<&str> = text.lines().take_while(is_response).collect();
        fs::write(path, lines.join("\n") + "\n").unwrap();
    }
    /// Every answer of the cassette was used.
    pub(super) fn verify(&self) {
        if let Some(replayer) = &self.0.replayer {
            replayer.verify().unwrap();
        }
    }
}

#[async_trait]
impl Llm for RecordedModel {
    fn profile(&self) -> &ModelProfile {
        self.0.model.profile()
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let size: usize = request.messages.iter().map(|one| serde_json::to_string(one).unwrap().len()).sum();
        let answer = self.0.model.chat(request, cx).await;
        if answer.is_err() && self.0.replayer.is_none() {
            self.0.failed.notify_one();
            return std::future::pending().await;
        }
        self.0.sizes.lock().unwrap().push(size / 4);
        answer
    }
}

/// A model that gives the answers of a cassette in their order, whatever the request is.
struct InOrderModel {
    /// The answers that are left; the last one is the next.
    left: Mutex<Vec<Exchange>>,
    profile: ModelProfile,
}

#[async_trait]
impl Llm for InOrderModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, _: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        let Some(exchange) = self.left.lock().unwrap().pop() else {
            return Err(llm::LlmErrorKind::NotInScript.into());
        };
        let end = match exchange.outcome {
            ExchangeOutcome::Response(answer) => Ok(Delta::Done(answer)),
            ExchangeOutcome::Error(error) => Err(error),
        };
        let pieces = exchange.deltas.into_iter().map(|text| Ok(Delta::Text(text)));
        Ok(ChatStream::new(stream::iter(pieces.chain([end]))))
    }
}

/// A buffer whose clones share their content.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
