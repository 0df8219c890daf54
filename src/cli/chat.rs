//! `segue chat`: talking in the terminal. Without a terminal each input line is one message, and output is made for programs.

mod lines;
mod screen;

use std::io::{self, BufRead, IsTerminal};

use segue::{
    conversation::{Button, DiscardReplies, ReplySink},
    ids::ConversationId,
    limits,
    runtime::{Assistant, IncomingMessage, TurnReport},
    server,
    store::{self, StoreLocation},
};
use tokio::sync::mpsc;

use self::{lines::LineSink, screen::ScreenSink};
use super::{
    COULD_NOT_RUN, Done, FINDINGS,
    logging::log,
    out,
    place::{Place, cannot_build},
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Print events as JSON lines in place of replies
    #[arg(long)]
    events: bool,
    /// Where the conversation is kept: `memory`, or a file as in `sqlite:talks.db`
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// Which conversation; a new one unless set
    #[arg(long, alias = "conversation-id", value_name = "ID")]
    conversation: Option<String>,
}

/// The channel that responses and conditions see.
const CHANNEL: &str = "cmdline";

/// How replies are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    /// For a person who looks on.
    Screen,
    /// For a program: a prefix tells what a line is.
    Lines,
    /// Events as JSON lines.
    Events,
}

pub(super) async fn chat(args: Args) -> Done {
    log("warn")?;
    let Some(opened) = args.place.open()? else { return Ok(FINDINGS) };
    opened.name_scripted_models();
    let location = StoreLocation::parse(&args.store)?;
    let store = store::open(&location)?;
    let assistant = opened.builder.store(store).build().map_err(cannot_build)?;
    let id = args.conversation.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
    if location != StoreLocation::Memory {
        // What an earlier process left of this conversation is finished before its next message; of the others nothing is
        // touched: a server finishes them.
        out::note(&format!("conversation {id}; `--conversation {id}` goes on with it"));
    }
    let is_terminal = io::stdin().is_terminal();
    let show = match (args.events, is_terminal) {
        (true, _) => Show::Events,
        (false, true) => Show::Screen,
        (false, false) => Show::Lines,
    };
    let alone = location == StoreLocation::Memory;
    let mut talk = Talk { assistant, id: id.into(), show, alone, buttons: Vec::new() };
    let done = tokio::select! {
        done = talk.run(is_terminal) => done,
        // Without this the process would end at once and leave its tool servers behind.
        () = server::end_asked() => Ok(0),
    };
    talk.assistant.close(limits::CLOSE).await;
    done
}

struct Talk {
    assistant: Assistant,
    id: ConversationId,
    show: Show,
    /// Whether there are no conversations of others in the store.
    alone: bool,
    /// Those under the newest replies; the user may type their numbers.
    buttons: Vec<Button>,
}

impl Talk {
    async fn run(&mut self, is_terminal: bool) -> Done {
        let mut input = read_lines();
        let mut worst = 0;
        if is_terminal {
            out::note("write something; an empty line with Ctrl-D, or Ctrl-C, ends the talk");
        }
        loop {
            if self.show == Show::Screen {
                screen::prompt()?;
            }
            let outlet = |_: &ConversationId, _: &str| self.sink();
            let line = tokio::select! {
                line = input.recv() => line,
                // The reminders of other conversations are for a server to fire.
                () = self.assistant.timers(&outlet), if self.alone => continue,
            };
            let Some(line) = line else { break };
            let line = line?;
            if is_terminal && line.trim().is_empty() {
                continue;
            }
            let text = if is_terminal { self.choice(line.trim()) } else { line };
            match self.say(&text).await? {
                Some(report) => self.after(&report).await?,
                None => worst = COULD_NOT_RUN,
            }
        }
        if self.show == Show::Screen {
            out::line("")?;
        }
        Ok(worst)
    }

    /// The payload of the button whose number was typed, else the text.
    fn choice(&self, text: &str) -> String {
        let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        number.and_then(|index| self.buttons.get(index)).map_or(text, |button| &*button.payload).to_owned()
    }

    fn sink(&self) -> Box<dyn ReplySink> {
        match self.show {
            Show::Screen => Box::new(ScreenSink::default()),
            Show::Lines => Box::new(LineSink),
            Show::Events => Box::new(DiscardReplies),
        }
    }

    /// One turn. `None`: the message got none, and was told so.
    async fn say(&self, text: &str) -> io::Result<Option<TurnReport>> {
        match self.assistant.receive(IncomingMessage::text(self.id.clone(), text, CHANNEL), self.sink()).await {
            Ok(report) => Ok(Some(report)),
            Err(error) => {
                out::note(&format!("the message got no turn: {error} [{}]", error.code()));
                Ok(None)
            }
        }
    }

    async fn after(&mut self, report: &TurnReport) -> io::Result<()> {
        for failure in &report.failures {
            out::note(&format!("turn {}: {} [{}]", report.turn.0, out::plain(&failure.reason), failure.code));
        }
        match self.show {
            Show::Screen => {
                let buttons = report.replies.iter().flat_map(|reply| &reply.reply.buttons);
                self.buttons = buttons.cloned().collect();
                screen::buttons(&self.buttons)
            }
            Show::Lines => Ok(()),
            Show::Events => self.print_events(report).await,
        }
    }

    async fn print_events(&self, report: &TurnReport) -> io::Result<()> {
        let turns = self.assistant.store().turns(&self.id).await.map_err(io::Error::other)?;
        let turn = turns.iter().rev().find(|turn| turn.turn == report.turn);
        for event in turn.into_iter().flat_map(|turn| &turn.events) {
            out::line(&serde_json::to_string(event).unwrap_or_default())?;
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
