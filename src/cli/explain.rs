//! `segue explain`: the pages of error codes, which are part of the binary.

use rust_embed::RustEmbed;

use super::{CommandResult, EXIT_USAGE, output};

#[derive(RustEmbed)]
#[folder = "docs/errors/"]
struct Pages;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The code, such as F0203; without one, all are listed
    code: Option<String>,
}

/// Prints a page, or the list.
pub(super) fn explain(args: &Args) -> CommandResult {
    let Some(asked) = &args.code else {
        let mut codes: Vec<String> = Pages::iter()
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .filter(|name| name != "README")
            .collect();
        codes.sort_unstable();
        let titles = codes
            .iter()
            .filter_map(|code| page(code)?.lines().next().map(|title| format!("{}\n", title.trim_start_matches("# "))));
        output::print(&titles.collect::<String>())?;
        return Ok(0);
    };
    let code = asked.trim().trim_matches(['[', ']']).to_uppercase();
    match page(&code) {
        Some(page) => {
            output::print(&page)?;
            Ok(0)
        }
        None => {
            output::status(&format!("no code {code} is known; `segue explain` lists all"));
            Ok(EXIT_USAGE)
        }
    }
}

fn page(code: &str) -> Option<String> {
    let file = Pages::get(&format!("{code}.md"))?;
    String::from_utf8(file.data.into_owned()).ok()
}
