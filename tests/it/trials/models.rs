//! The models of a trial: cassettes; or a server that is recorded; or an old cassette told again to prompts in new words.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex},
};

use futures::{future::BoxFuture, stream};
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
    /// From the cassettes in their order, whatever is asked; recorded anew.
    Retell,
}

impl Mode {
    /// `SEGUE_TRIALS`: the address of a server, or `retell`.
    pub(super) fn of_environment() -> Self {
        match segue::environment::variable("SEGUE_TRIALS") {
            None => Self::Replay,
            Some(word) if word == "retell" => Self::Retell,
            Some(address) => Self::Record(address),
        }
    }

    pub(super) fn tape(&self, path: &Path) -> Tape {
        let kept = || fs::read_to_string(path).unwrap_or_default();
        let recorded = Buffer::default();
        let mut replayer = None;
        let inner: Arc<dyn Llm> = match self {
            Self::Replay => {
                let player = Arc::new(Replayer::new(&kept(), ReplayOrder::AsRecorded).unwrap());
                replayer = Some(player.clone());
                player
            }
            Self::Record(address) => Arc::new(Recorder::new(server(address), recorded.clone())),
            Self::Retell => {
                let left = kept().lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect();
                let told = Told { left: Mutex::new(left), profile: ModelProfile::for_model("openai", "scripted") };
                Arc::new(Recorder::new(Arc::new(told), recorded.clone()))
            }
        };
        Tape(Arc::new(Inner { model: inner, replayer, recorded, sizes: Mutex::default(), halt: Notify::new() }))
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

/// The model of one conversation. A failure of it ends the trial of the conversation: nothing after it would be worth a look.
#[derive(Clone)]
pub(super) struct Tape(Arc<Inner>);

struct Inner {
    model: Arc<dyn Llm>,
    replayer: Option<Arc<Replayer>>,
    recorded: Buffer,
    /// Characters of the messages of each request, by four.
    sizes: Mutex<Vec<usize>>,
    halt: Notify,
}

impl Tape {
    pub(super) fn model(&self) -> Arc<dyn Llm> {
        Arc::new(self.clone())
    }
    pub(super) async fn halted(&self) {
        self.0.halt.notified().await;
    }
    /// Requests so far.
    pub(super) fn asked(&self) -> usize {
        self.0.sizes.lock().unwrap().len()
    }
    /// The sizes of the requests from this one on.
    pub(super) fn sizes(&self, from: usize) -> Vec<usize> {
        self.0.sizes.lock().unwrap()[from..].to_vec()
    }
    /// Writes what was recorded, up to the first failure.
    pub(super) fn keep(&self, path: &Path) {
        let bytes = self.0.recorded.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let whole = |line: &&str| {
            matches!(serde_json::from_str::<Exchange>(line).unwrap().outcome, ExchangeOutcome::Response(_))
        };
        let lines: Vec<&str> = text.lines().take_while(whole).collect();
        fs::write(path, lines.join("\n") + "\n").unwrap();
    }
    pub(super) fn verify(&self) {
        if let Some(replayer) = &self.0.replayer {
            replayer.verify().unwrap();
        }
    }
}

impl Llm for Tape {
    fn profile(&self) -> &ModelProfile {
        self.0.model.profile()
    }
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move {
            let size: usize = request.messages.iter().map(|one| serde_json::to_string(one).unwrap().len()).sum();
            let answer = self.0.model.chat(request, cx).await;
            if answer.is_err() && self.0.replayer.is_none() {
                self.0.halt.notify_one();
                return std::future::pending().await;
            }
            self.0.sizes.lock().unwrap().push(size / 4);
            answer
        })
    }
}

/// Answers in the order in which they were kept.
struct Told {
    /// The next one is the last.
    left: Mutex<Vec<Exchange>>,
    profile: ModelProfile,
}

impl Llm for Told {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    fn chat<'a>(&'a self, _: ChatRequest, _: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move {
            let Some(exchange) = self.left.lock().unwrap().pop() else {
                return Err(llm::LlmErrorKind::NotInScript.into());
            };
            let end = match exchange.outcome {
                ExchangeOutcome::Response(answer) => Ok(Delta::Done(answer)),
                ExchangeOutcome::Error(error) => Err(error),
            };
            let pieces = exchange.deltas.into_iter().map(|text| Ok(Delta::Text(text)));
            Ok(ChatStream::new(stream::iter(pieces.chain([end]))))
        })
    }
}

/// What is written, for whoever has a clone.
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
