//! `segue chat`: the terminal as a channel. Without a terminal each input line is one message, and output is made for programs.

mod plain;
mod terminal;

use std::{
    io::{self, BufRead, IsTerminal},
    sync::atomic::{AtomicBool, Ordering},
};

use segue::{
    async_trait,
    channels::{Capabilities, Channel, Inbox, Routes, RunError},
    conversation::{Button, DiscardReplies, ReplySink},
    ids::ConversationId,
    limits,
    runtime::{IncomingMessage, TurnReport},
    store::{self, StoreLocation},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::{plain::PlainTextSink, terminal::TerminalSink};
use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS,
    logging::log,
    output,
    project_args::{ProjectArgs, describe_build_error},
    stop_on_signal,
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: ProjectArgs,
    /// Print events as JSON lines instead of replies
    #[arg(long)]
    events: bool,
    /// The store: `memory`, or a file as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// The conversation; a new one unless set
    #[arg(long, alias = "conversation-id", value_name = "ID")]
    conversation: Option<String>,
}

/// The channel that responses and conditions see.
const CHANNEL: &str = "cmdline";

/// How replies are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    /// For a person who looks on.
    Terminal,
    /// For a program: a prefix tells what a line is.
    Lines,
    /// Events as JSON lines.
    Events,
}

pub(super) async fn chat(args: Args) -> CommandResult {
    log("warn")?;
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    opened.warn_about_scripted_models();
    let location = StoreLocation::parse(&args.store)?;
    let store = store::open(&location)?;
    let assistant = opened.builder.store(store).build().map_err(describe_build_error)?;
    let id = args.conversation.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
    if location != StoreLocation::Memory {
        // What an earlier process left of this conversation is finished before its next message; of the others nothing is
        // touched: a server finishes them.
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
    let done = terminal.run(Inbox::new(assistant.clone(), CHANNEL), stop.clone()).await;
    assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
    match done {
        Ok(()) if terminal.has_failed.into_inner() && !stop.is_cancelled() => Ok(EXIT_ERROR),
        Ok(()) => Ok(0),
        // An error of input or output keeps its kind: a broken pipe is no failure.
        Err(error) => {
            Err(error.downcast::<io::Error>().map_or_else(anyhow::Error::from_boxed, |error| (*error).into()))
        }
    }
}

/// The terminal, or the pipes in its place: one conversation.
#[derive(Debug)]
struct Terminal {
    id: ConversationId,
    /// Whether a person types.
    is_terminal: bool,
    mode: OutputMode,
    /// Whether there are no conversations of others in the store.
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
            done = session.run() => Ok(done?),
            () = stop.cancelled() => Ok(()),
        }
    }
    fn sink(&self, _: &ConversationId) -> Option<Box<dyn ReplySink>> {
        Some(self.outlet())
    }
}

impl Terminal {
    fn outlet(&self) -> Box<dyn ReplySink> {
        match self.mode {
            OutputMode::Terminal => Box::new(TerminalSink::default()),
            OutputMode::Lines => Box::new(PlainTextSink),
            OutputMode::Events => Box::new(DiscardReplies),
        }
    }
}

/// One run of the terminal.
struct ChatSession<'a> {
    terminal: &'a Terminal,
    inbox: Inbox,
    /// Those under the newest replies; the user may type their numbers.
    buttons: Vec<Button>,
}

impl ChatSession<'_> {
    async fn run(&mut self) -> io::Result<()> {
        let mut input = read_lines();
        if self.terminal.is_terminal {
            output::status("Type a message. Ctrl-D or Ctrl-C ends the chat.");
        }
        loop {
            if self.terminal.mode == OutputMode::Terminal {
                terminal::prompt()?;
            }
            let outlet = |_: &ConversationId, _: &str| self.terminal.outlet();
            let line = tokio::select! {
                line = input.recv() => line,
                // The reminders of other conversations are for a server to fire.
                () = self.inbox.assistant().timers(&outlet), if self.terminal.owns_store => continue,
            };
            let Some(line) = line else { break };
            let line = line?;
            if self.terminal.is_terminal && line.trim().is_empty() {
                continue;
            }
            let text = if self.terminal.is_terminal { self.choice(line.trim()) } else { line };
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

    /// The payload of the button whose number was typed, else the text.
    fn choice(&self, text: &str) -> String {
        let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        number.and_then(|index| self.buttons.get(index)).map_or(text, |button| &*button.payload).to_owned()
    }

    /// One turn. `None`: the message was not processed, and the user was told so.
    async fn send(&self, text: &str) -> Option<TurnReport> {
        let message = IncomingMessage::text(self.terminal.id.clone(), text, CHANNEL);
        match self.inbox.assistant().receive(message, self.terminal.outlet()).await {
            Ok(report) => Some(report),
            Err(error) => {
                output::status(&format!("the message was not processed: {error} [{}]", error.code()));
                None
            }
        }
    }

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
                terminal::buttons(&self.buttons)
            }
            OutputMode::Lines => Ok(()),
            OutputMode::Events => self.print_events(report).await,
        }
    }

    async fn print_events(&self, report: &TurnReport) -> io::Result<()> {
        let turns = self.inbox.assistant().store().turns(&self.terminal.id).await.map_err(io::Error::other)?;
        let turn = turns.iter().rev().find(|turn| turn.turn == report.turn);
        for event in turn.into_iter().flat_map(|turn| &turn.events) {
            output::println(&serde_json::to_string(event).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Lines of standard input. A thread of its own reads them: a terminal cannot be waited for in another way.
fn read_lines() -> mpsc::Receiver<io::Result<String>> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            // What is no UTF-8 is shown as such to the assistant; one bad byte must not end the talk.
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
        server::{guarded, router},
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
        assert!(guarded(&channels, "0.0.0.0".parse().unwrap()).is_ok());
        assert!(channels[0].sink(&"u".into()).is_some());
        let model = Arc::new(ScriptedLlm::strict([""; 0]));
        let files = [("config.yml", "recipe: default.v1\npolicies: [{name: FlowPolicy}]\n")];
        let assistant = Assistant::builder_from_texts(files).unwrap().model(model).build().unwrap();
        let request = axum::http::Request::get("/webhooks/cmdline/").body(axum::body::Body::empty()).unwrap();
        let answer = router(&assistant, &channels).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), axum::http::StatusCode::NOT_FOUND);
    }
}
