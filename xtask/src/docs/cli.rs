//! The page of the command line, made from the declarations of its parser.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

const HEAD: &str = "\
# Command line

`cargo xtask docs` writes this page from the declarations of the parser. `segue run --help` prints the same about `run`. Results
go to standard output, everything else to standard error.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | the project has errors, a test failed, or a replay differs |
| 2 | the command line is wrong |
| 3 | a file, a server or a port is missing, or something else failed |

";
/// The heading of options that most commands share.
const SHARED: &str = "Project files";

/// The text of the page.
pub fn page() -> String {
    let mut program = segue::cli::command();
    program.build();
    let mut page = HEAD.to_owned();
    page.push_str("| command | what it does |\n| --- | --- |\n");
    for command in commands(&program) {
        let name = command.get_name();
        let _ = writeln!(page, "| [`segue {name}`](#segue-{name}) | {} |", cell(&about(command)));
    }
    let sharing = |command: &&Command| command.get_arguments().any(is_shared);
    if let Some(command) = commands(&program).find(sharing) {
        let _ = write!(
            page,
            "\n## Project files\n\nMost commands take these options. They say where the parts of a project are.\n\n"
        );
        table(&mut page, command.get_arguments().filter(|argument| is_shared(argument)));
    }
    for command in commands(&program) {
        describe(&mut page, command, "segue", 2);
    }
    page
}

/// Commands that people see.
fn commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn is_shared(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(SHARED)
}

fn about(command: &Command) -> String {
    command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default()
}

fn describe(page: &mut String, command: &Command, parent: &str, level: usize) {
    let name = format!("{parent} {}", command.get_name());
    let _ = write!(page, "\n{} `{name}`\n\n{}.\n", "#".repeat(level), about(command).trim_end_matches('.'));
    let usage = command.clone().bin_name(&name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = write!(page, "\n```text\n{usage}\n```\n");
    let own = || {
        let is_own = |argument: &&Arg| !argument.is_hide_set() && !is_shared(argument);
        command
            .get_arguments()
            .filter(|argument| argument.get_id() != "help" && argument.get_id() != "version")
            .filter(is_own)
    };
    if own().next().is_some() {
        page.push('\n');
        table(page, own());
    }
    if command.get_arguments().any(is_shared) {
        page.push_str("\nAlso the options for [project files](#project-files).\n");
    }
    for command in commands(command) {
        describe(page, command, &name, level + 1);
    }
}

fn table<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    page.push_str("| argument | meaning |\n| --- | --- |\n");
    for argument in arguments {
        let _ = writeln!(page, "| {} | {} |", names(argument), meaning(argument));
    }
}

/// The ways to write an argument.
fn names(argument: &Arg) -> String {
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let value = argument.get_value_names().map(|names| names.join(" ")).filter(|_| takes_value);
    let value = value.or_else(|| takes_value.then(|| argument.get_id().as_str().to_uppercase()));
    if argument.is_positional() {
        return format!("`{}`", value.unwrap_or_default());
    }
    let long = argument.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("--{name}"));
    let short = argument.get_short_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("-{name}"));
    let names: Vec<String> = short.chain(long).map(|name| format!("`{name}`")).collect();
    names.join(", ") + &value.map(|value| format!(" `{value}`")).unwrap_or_default()
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = cell(&help);
    let mut add = |more: String| {
        text = if text.is_empty() { more } else { format!("{}. {more}", text.trim_end_matches('.')) };
    };
    let values = argument.get_possible_values();
    if !values.is_empty() && matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) {
        let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        add(format!("One of {}", names.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) {
        add(format!("Default: {}", defaults.join(", ")));
    }
    text
}

/// A text in one line, fit for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_command_has_its_usage_and_its_arguments() {
        let page = super::page();
        assert!(page.contains("\n## `segue run`\n\nServe the channels"), "{page}");
        assert!(page.contains("| `-p`, `--port` `PORT` | The port; 0 selects a free one. Default: `5005` |"), "{page}");
        assert!(page.contains("\n### `segue doctor close`\n"), "{page}");
    }
}
