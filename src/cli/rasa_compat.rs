//! Compatibility with the command line of Rasa: commands and options that have an equivalent here, and messages for those that have
//! none.

use clap::{CommandFactory, Subcommand};
use segue_engine::finding::did_you_mean;

use super::{CommandResult, EXIT_USAGE, block_on, chat, check, output, project_args::is_project, run};

/// Options of Rasa that are accepted and ignored, so that scripts keep working. A message says so.
#[derive(Default, clap::Args)]
pub(super) struct IgnoredOptions {
    /// Ignored: there are no trained models
    #[arg(short, long, value_name = "FILE", hide = true)]
    model: Option<String>,
    /// Ignored: `LOG_LEVEL` sets the log level
    #[arg(long, hide = true)]
    debug: bool,
    #[command(flatten)]
    logging: IgnoredLogging,
}

/// Options of Rasa for its log.
#[derive(Default, clap::Args)]
pub(super) struct IgnoredLogging {
    /// Ignored: `LOG_LEVEL` sets the log level
    #[arg(short, long, action = clap::ArgAction::Count, hide = true)]
    verbose: u8,
    /// Ignored: `LOG_LEVEL` sets the log level
    #[arg(long, hide = true)]
    quiet: bool,
    /// Ignored: RUST_LOG and LOG_LEVEL configure logging
    #[arg(long, value_name = "FILE", hide = true)]
    logging_config_file: Option<String>,
}

impl IgnoredOptions {
    /// Prints a message about each ignored option in use.
    pub(super) fn warn(&self) {
        if self.model.is_some() {
            output::status("`--model` is ignored: there are no trained models, the project folder is loaded directly");
        }
        self.logging.warn_if(self.debug);
    }
}

impl IgnoredLogging {
    /// Prints a message if one of the options, or another one (`is_other`), is in use.
    pub(super) fn warn_if(&self, is_other: bool) {
        if is_other || self.verbose > 0 || self.quiet || self.logging_config_file.is_some() {
            output::status("logging options are ignored; set LOG_LEVEL, for example to `debug`");
        }
    }
}

/// `segue train`: checks the project, because there is nothing to train.
#[derive(clap::Args)]
pub(super) struct Train {
    #[command(flatten)]
    check: check::Args,
    #[command(flatten)]
    ignored: IgnoredOptions,
    /// Ignored: nothing is written
    #[arg(long, value_name = "FOLDER", hide = true)]
    out: Option<String>,
    /// Ignored: nothing is written
    #[arg(long, value_name = "NAME", hide = true)]
    fixed_model_name: Option<String>,
    /// Ignored: the project is always checked
    #[arg(long, hide = true)]
    skip_validation: bool,
    /// Fail on warnings too
    #[arg(long)]
    fail_on_validation_warnings: bool,
    /// Ignored
    #[arg(long, hide = true)]
    force: bool,
}

/// Checks the project, and prints that no training is needed.
pub(super) fn train(mut args: Train) -> CommandResult {
    let folder = &args.check.project.folder;
    if ["nlu", "core"].iter().any(|part| folder.as_os_str() == *part) && !is_project(folder) {
        output::status(
            "there is no NLU or Core model to train: only the language model understands messages; run `segue train`",
        );
        return Ok(EXIT_USAGE);
    }
    args.ignored.warn();
    if args.out.is_some() || args.fixed_model_name.is_some() {
        output::status("no model is written: `segue run` loads the project folder");
    }
    if args.skip_validation || args.force {
        output::status("`train` only checks the project; `--skip-validation` and `--force` are ignored");
    }
    args.check.strict |= args.fail_on_validation_warnings;
    let code = check::check(&args.check)?;
    if code == 0 {
        output::status("no training is needed: start `segue run` or `segue chat`");
    }
    Ok(code)
}

/// `segue data`.
#[derive(clap::Args)]
pub(super) struct Data {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    /// The same as `segue check`
    Validate(Box<Validate>),
    /// A command of Rasa that has no equivalent
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(clap::Args)]
struct Validate {
    #[command(flatten)]
    check: check::Args,
    #[command(flatten)]
    ignored: IgnoredOptions,
    /// Fail on warnings too
    #[arg(long)]
    fail_on_warnings: bool,
}

/// Runs `segue data validate`: checks the project.
pub(super) fn data(args: Data) -> CommandResult {
    let mut args = match args.command {
        DataCommand::Validate(args) => args,
        DataCommand::Other(words) => {
            let word = words.first().map(String::as_str).unwrap_or_default();
            output::status(&match word {
                "split" | "convert" | "migrate" => {
                    format!(
                        "`data {word}` is for NLU data and formats of Rasa 2, which are not used here; check a CALM project with `segue check`"
                    )
                }
                _ => format!("unknown command `data {word}`; did you mean `segue data validate`?"),
            });
            return Ok(EXIT_USAGE);
        }
    };
    args.ignored.warn();
    // The positional argument of `data validate flows` is a part of the project in Rasa, and here the folder of the project. All
    // parts are checked together. A project folder with this name is still a project folder.
    let parts = ["flows", "stories", "nlu"];
    if parts.iter().any(|part| args.check.project.folder.as_os_str() == *part)
        && !args.check.project.folder.join("config.yml").is_file()
    {
        args.check.project.folder = ".".into();
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
    ignored: IgnoredOptions,
}

/// Runs `segue chat`.
pub(super) fn shell(args: Shell) -> CommandResult {
    args.ignored.warn();
    block_on(chat::chat(args.chat))
}

/// `segue inspect`.
#[derive(clap::Args)]
pub(super) struct Inspect {
    #[command(flatten)]
    run: run::Args,
}

/// Runs `segue run`, and prints that there is no inspector page.
pub(super) fn inspect(args: Inspect) -> CommandResult {
    output::status(
        "there is no inspector page; `segue trace ID` explains the turns of a conversation. Serving as `segue run` does",
    );
    block_on(run::serve(args.run))
}

/// Prints a message about an unknown command: what to use instead of a command of Rasa, or a similar command.
pub(super) fn unknown_command(words: &[String]) -> CommandResult {
    let first = words.first().map_or("", String::as_str);
    let second = words.get(1).map_or("", String::as_str);
    let message = match (first, second) {
        ("run", "actions") => {
            "start the Python action server with `rasa run actions`, or set `action_endpoint.actions_module`"
        }
        ("visualize", _) => "use `segue graph` to draw flows",
        ("export", _) => "there is no export; `segue trace ID --format json` prints the events of a conversation",
        ("interactive" | "markers" | "llm" | "x" | "studio" | "license" | "telemetry" | "tools", _) => {
            "not supported: it needs services or training data that are not part of Segue"
        }
        _ => {
            let commands = super::Cli::command();
            let names = commands.get_subcommands().map(clap::Command::get_name);
            let near = did_you_mean(first, names).map(|near| format!("; did you mean `segue {near}`?"));
            output::status(&format!(
                "unknown command `{first}`{}",
                near.unwrap_or_else(|| "; `segue --help` lists the commands".into())
            ));
            return Ok(EXIT_USAGE);
        }
    };
    output::status(&format!("`{}`: {message}", words.iter().take(2).cloned().collect::<Vec<_>>().join(" ")));
    Ok(EXIT_USAGE)
}
