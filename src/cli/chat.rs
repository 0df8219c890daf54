//! `segue chat`: a channel on standard input and output. If standard input is not a terminal, each line is one message, and the
//! output is for programs.

mod plain;
mod terminal;

use std::{
    io::{self, BufRead, IsTerminal},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};

use segue::{
    async_trait,
    channels::{Capabilities, Channel, Inbox, Routes, RunError},
    conversation::{Button, DiscardReplies, ReplySink},
    ids::ConversationId,
    limits,
    runtime::{IncomingMessage, OutboxSink, TurnReport},
    store::{self, StoreLocation},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::{plain::PlainTextSink, terminal::TerminalSink};
use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS,
    logging::init_logging,
    output,
    project_args::{ProjectArgs, describe_build_error},
    stop_on_signal,
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    /// Print events as JSON lines instead of replies
    #[arg(long)]
    events: bool,
    /// The store: `memory`, or a file as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// The conversation; a new conversation unless set
    #[arg(long, alias = "conversation-id", value_name = "ID")]
    conversation: Option<String>,
}

/// The input channel of the messages, as responses and conditions see it; the same name as in Rasa.
const CHANNEL: &str = "cmdline";

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    /// For people: streamed text and buttons.
    Terminal,
    /// For programs: lines with a prefix.
    Lines,
    /// Events as JSON lines.
    Events,
}

pub(super) async fn chat(args: Args) -> CommandResult {
    init_logging("warn")?;
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    opened.warn_about_scripted_models();
    let location = StoreLocation::parse(&args.store)?;
    let stores = store::open_stores(&location)?;
    let assistant =
        opened.builder.store(stores.conversations).runs(stores.runs).build().map_err(describe_build_error)?;
    let id = args.conversation.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
    if location != StoreLocation::Memory {
        // An unfinished turn of this conversation is recovered before its next message, and its sub-agents in the background continue.
        // Other conversations belong to a server and are not recovered here.
        assistant.resume_tasks(Some(&id.as_str().into())).await?;
        output::status(&format!("conversation {id} (continue it with `--conversation {id}`)"));
    }
    let is_terminal = io::stdin().is_terminal();
    let mode = match (args.events, is_terminal) {
        (true, _) => OutputMode::Events,
        (false, true) => OutputMode::Terminal,
        (false, false) => OutputMode::Lines,
    };
    let owns_store = location == StoreLocation::Memory;
    let terminal = Terminal { id: id.into(), is_terminal, mode, owns_store, has_failed: AtomicBool::new(false) };
    let stop = stop_on_signal();
    let result = terminal.run(Inbox::new(assistant.clone(), CHANNEL), stop.clone()).await;
    assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
    match result {
        Ok(()) if terminal.has_failed.into_inner() && !stop.is_cancelled() => Ok(EXIT_ERROR),
        Ok(()) => Ok(0),
        // An I/O error keeps its type, so that a broken pipe is recognised; it is not a failure.
        Err(error) => {
            Err(error.downcast::<io::Error>().map_or_else(anyhow::Error::from_boxed, |error| (*error).into()))
        }
    }
}

/// The channel: one conversation on standard input and output.
#[derive(Debug)]
struct Terminal {
    id: ConversationId,
    /// Whether standard input is a terminal.
    is_terminal: bool,
    mode: OutputMode,
    /// Whether the store contains only this conversation: it is in memory.
    owns_store: bool,
    /// Whether a message was not processed.
    has_failed: AtomicBool,
}

#[async_trait]
impl Channel for Terminal {
    fn name(&self) -> &str {
        CHANNEL
    }
    fn routes(&self) -> Routes {
        Routes::None
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, buttons: self.mode == OutputMode::Terminal, ..Capabilities::default() }
    }
    /// Reads lines until the end of the input.
    async fn run(&self, inbox: Inbox, stop: CancellationToken) -> Result<(), RunError> {
        let mut session = ChatSession { terminal: self, inbox, buttons: Vec::new() };
        tokio::select! {
            result = session.run() => Ok(result?),
            () = stop.cancelled() => Ok(()),
        }
    }
    fn sink(&self, _: &ConversationId) -> Option<Box<dyn ReplySink>> {
        Some(self.new_sink())
    }
}

impl Terminal {
    /// Whether replies are printed. If not, those to no message stay undelivered, for a client that shows them.
    fn shows_replies(&self) -> bool {
        self.mode != OutputMode::Events
    }
    /// The sink for replies to no message, which arrive while the user types.
    fn unprompted_sink(&self) -> Box<dyn ReplySink> {
        match self.mode {
            OutputMode::Terminal => Box::new(TerminalSink::unprompted()),
            OutputMode::Lines | OutputMode::Events => self.new_sink(),
        }
    }
    fn new_sink(&self) -> Box<dyn ReplySink> {
        match self.mode {
            OutputMode::Terminal => Box::new(TerminalSink::default()),
            OutputMode::Lines => Box::new(PlainTextSink),
            OutputMode::Events => Box::new(DiscardReplies),
        }
    }
}

/// One run of the channel.
struct ChatSession<'a> {
    terminal: &'a Terminal,
    inbox: Inbox,
    /// The buttons of the last replies. The user can type their numbers.
    buttons: Vec<Button>,
}

impl ChatSession<'_> {
    async fn run(&mut self) -> io::Result<()> {
        let mut input = read_lines();
        if self.terminal.is_terminal {
            output::status("Type a message. Ctrl-D or Ctrl-C ends the chat.");
        }
        let (terminal, assistant) = (self.terminal, self.inbox.assistant().clone());
        let unprompted = |to: &ConversationId, _: &str| {
            (*to == terminal.id && terminal.shows_replies()).then(|| terminal.unprompted_sink())
        };
        let mut arriving = pin!(async {
            let reminders = async {
                // Only for a store in memory: in a file, reminders of other conversations belong to a server.
                match terminal.owns_store {
                    true => assistant.run_reminders(&|_, _| Box::new(OutboxSink)).await,
                    false => std::future::pending().await,
                }
            };
            tokio::join!(reminders, assistant.deliver_outbox(&unprompted));
        });
        // What an earlier process has left.
        if terminal.shows_replies()
            && let Err(error) = assistant.deliver_pending(&terminal.id, &mut *terminal.new_sink()).await
        {
            output::status(&format!("undelivered replies cannot be read: {error} [{}]", error.code()));
        }
        loop {
            if terminal.mode == OutputMode::Terminal {
                terminal::print_prompt()?;
            }
            let line = loop {
                tokio::select! {
                    line = input.recv() => break line,
                    // It never ends: what arrives without a message is printed meanwhile.
                    _ = &mut arriving => {}
                }
            };
            let Some(line) = line else { break };
            let line = line?;
            if self.terminal.is_terminal && line.trim().is_empty() {
                continue;
            }
            let text = if self.terminal.is_terminal { self.resolve_button(line.trim()) } else { line };
            match self.send(&text).await {
                Some(report) => self.finish_turn(&report).await?,
                None => self.terminal.has_failed.store(true, Ordering::Relaxed),
            }
        }
        if self.terminal.mode == OutputMode::Terminal {
            output::println("")?;
        }
        Ok(())
    }

    /// The payload of the button if the text is the number of one, or else the text.
    fn resolve_button(&self, text: &str) -> String {
        let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        number.and_then(|index| self.buttons.get(index)).map_or(text, |button| &*button.payload).to_owned()
    }

    /// Runs one turn. `None`: the message got no answer, and an error was printed.
    async fn send(&self, text: &str) -> Option<TurnReport> {
        let message = IncomingMessage::new(self.terminal.id.clone(), text).input_channel(CHANNEL);
        match self.inbox.assistant().receive(message, self.terminal.new_sink()).await {
            Ok(report) => Some(report),
            Err(error) => {
                output::status(&format!("the message got no answer: {error} [{}]", error.code()));
                None
            }
        }
    }

    /// Prints the errors of the turn, and its buttons or events.
    async fn finish_turn(&mut self, report: &TurnReport) -> io::Result<()> {
        for failure in &report.failures {
            output::status(&format!(
                "turn {}: {} [{}]",
                report.turn.0,
                output::strip_control_characters(&failure.reason),
                failure.code
            ));
        }
        match self.terminal.mode {
            OutputMode::Terminal => {
                let buttons = report.replies.iter().flat_map(|reply| &reply.reply.buttons);
                self.buttons = buttons.cloned().collect();
                terminal::print_buttons(&self.buttons)
            }
            OutputMode::Lines => Ok(()),
            OutputMode::Events => self.print_events(report).await,
        }
    }

    async fn print_events(&self, report: &TurnReport) -> io::Result<()> {
        let store = self.inbox.assistant().store();
        let turn = store.turn(&self.terminal.id, report.turn).await.map_err(io::Error::other)?;
        for event in turn.into_iter().flat_map(|turn| turn.events) {
            output::println(&serde_json::to_string(&event).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The lines of standard input. A separate thread reads them, because reading standard input blocks and cannot be cancelled.
fn read_lines() -> mpsc::Receiver<io::Result<String>> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            // Invalid UTF-8 is replaced: one wrong byte must not end the chat.
            let line = line.map(|bytes| String::from_utf8_lossy(&bytes).trim_end_matches('\r').to_owned());
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use segue::{
        Assistant,
        server::{check_exposure, router},
        testing::ScriptedLlm,
    };
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn the_terminal_is_a_channel_without_routes() {
        let terminal = Terminal {
            id: "u".into(),
            is_terminal: false,
            mode: OutputMode::Lines,
            owns_store: true,
            has_failed: AtomicBool::new(false),
        };
        let channels: [Arc<dyn Channel>; 1] = [Arc::new(terminal)];
        assert!(check_exposure(&channels, "0.0.0.0".parse().unwrap()).is_ok());
        assert!(channels[0].sink(&"u".into()).is_some());
        let model = Arc::new(ScriptedLlm::strict([""; 0]));
        let files = [("config.yml", "recipe: default.v1\npolicies: [{name: FlowPolicy}]\n")];
        let assistant = Assistant::builder_from_texts(files).unwrap().model(model).build().unwrap();
        let request = axum::http::Request::get("/webhooks/cmdline/").body(axum::body::Body::empty()).unwrap();
        let answer = router(&assistant, &channels).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), axum::http::StatusCode::NOT_FOUND);
    }
}
