//! The names that hands know from Rasa: commands and options that mean something here, or say what to do instead.

use clap::{CommandFactory, Subcommand};
use segue_engine::finding::did_you_mean;

use super::{CommandResult, EXIT_USAGE, chat, check, output, run, wait};

/// Options that need no meaning here. They are accepted so that scripts go on; each says once that it does nothing.
#[derive(Default, clap::Args)]
pub(super) struct IgnoredOptions {
    /// Accepted for scripts: there are no trained models
    #[arg(short, long, value_name = "FILE", hide = true)]
    model: Option<String>,
    /// Accepted for scripts: `LOG_LEVEL` says how much is logged
    #[arg(long, hide = true)]
    debug: bool,
    /// Accepted for scripts: `LOG_LEVEL` says how much is logged
    #[arg(short, long, action = clap::ArgAction::Count, hide = true)]
    verbose: u8,
    /// Accepted for scripts: `LOG_LEVEL` says how much is logged
    #[arg(long, hide = true)]
    quiet: bool,
    /// Accepted for scripts: RUST_LOG and LOG_LEVEL configure logging
    #[arg(long, value_name = "FILE", hide = true)]
    logging_config_file: Option<String>,
}

impl IgnoredOptions {
    /// Says what was given without an effect.
    pub(super) fn say(&self) {
        if self.model.is_some() {
            output::status(
                "`--model` does nothing: there are no trained models, the project's folder is read as it is",
            );
        }
        if self.debug || self.verbose > 0 || self.quiet || self.logging_config_file.is_some() {
            output::status("logging options are ignored; set LOG_LEVEL, for example to `debug`");
        }
    }
}

/// `segue train`: nothing has to be trained, so the project is checked.
#[derive(clap::Args)]
pub(super) struct Train {
    #[command(flatten)]
    check: check::Args,
    #[command(flatten)]
    accepted: IgnoredOptions,
    /// Accepted for scripts: nothing is written
    #[arg(long, value_name = "FOLDER", hide = true)]
    out: Option<String>,
    /// Accepted for scripts: nothing is written
    #[arg(long, value_name = "NAME", hide = true)]
    fixed_model_name: Option<String>,
    /// Accepted for scripts: the check takes no time
    #[arg(long, hide = true)]
    skip_validation: bool,
    /// Fail on warnings too
    #[arg(long)]
    fail_on_validation_warnings: bool,
    /// Accepted for scripts
    #[arg(long, hide = true)]
    force: bool,
}

/// Checks the project and says that this is all there is to do.
pub(super) fn train(mut args: Train) -> CommandResult {
    args.accepted.say();
    if args.out.is_some() || args.fixed_model_name.is_some() {
        output::status("no model is written: `segue run` reads the project's folder");
    }
    if args.skip_validation || args.force {
        output::status("the project is always checked; that is all that `train` does");
    }
    args.check.strict |= args.fail_on_validation_warnings;
    let code = check::check(&args.check)?;
    if code == 0 {
        output::status("nothing has to be trained: `segue run` or `segue chat` can start at once");
    }
    Ok(code)
}

/// `segue data`.
#[derive(clap::Args)]
pub(super) struct Data {
    #[command(subcommand)]
    what: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    /// The same as `segue check`
    Validate(Validate),
}

#[derive(clap::Args)]
struct Validate {
    #[command(flatten)]
    check: check::Args,
    #[command(flatten)]
    accepted: IgnoredOptions,
    /// Fail on warnings too
    #[arg(long)]
    fail_on_warnings: bool,
}

/// Checks the project.
pub(super) fn data(args: Data) -> CommandResult {
    let DataCommand::Validate(mut args) = args.what;
    args.accepted.say();
    // `data validate flows` names a part, and all parts are checked at once; a folder of that name is still a project.
    let parts = ["flows", "stories", "nlu"];
    if parts.iter().any(|part| args.check.place.project.as_os_str() == *part)
        && !args.check.place.project.join("config.yml").is_file()
    {
        args.check.place.project = ".".into();
    }
    args.check.strict |= args.fail_on_warnings;
    check::check(&args.check)
}

/// `segue shell`.
#[derive(clap::Args)]
pub(super) struct Shell {
    #[command(flatten)]
    chat: chat::Args,
    #[command(flatten)]
    accepted: IgnoredOptions,
}

/// Talks in the terminal.
pub(super) fn shell(args: Shell) -> CommandResult {
    args.accepted.say();
    wait(chat::chat(args.chat))
}

/// `segue inspect`.
#[derive(clap::Args)]
pub(super) struct Inspect {
    #[command(flatten)]
    run: run::Args,
}

/// Serves, and says what there is in place of the page.
pub(super) fn inspect(args: Inspect) -> CommandResult {
    output::status(
        "this version has no inspector page: `segue trace ID` shows why turns went as they did; serving as `segue run`",
    );
    wait(run::serve(args.run))
}

/// Commands of a vendor's services, and those that Python runs.
pub(super) fn unknown_command(words: &[String]) -> CommandResult {
    let first = words.first().map_or("", String::as_str);
    let second = words.get(1).map_or("", String::as_str);
    let said = match (first, second) {
        ("run", "actions") => {
            "custom actions run in Python: start `rasa run actions`, or let `action_endpoint.actions_module` do it"
        }
        ("visualize", _) => "flows are drawn by `segue graph`",
        ("export", _) => "stored events are read with `segue chat --events` and from the store itself",
        ("interactive" | "markers" | "llm" | "x" | "studio" | "license" | "telemetry" | "tools", _) => {
            "this belongs to services or training data that are not part of this program"
        }
        _ => {
            let commands = super::Cli::command();
            let names = commands.get_subcommands().map(clap::Command::get_name);
            let near = did_you_mean(first, names).map(|near| format!("; did you mean `segue {near}`?"));
            output::status(&format!(
                "there is no command `{first}`{}",
                near.unwrap_or_else(|| "; `segue --help` lists them".into())
            ));
            return Ok(EXIT_USAGE);
        }
    };
    output::status(&format!("`{}`: {said}", words.iter().take(2).cloned().collect::<Vec<_>>().join(" ")));
    Ok(EXIT_USAGE)
}
