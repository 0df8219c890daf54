//! `segue explain`: prints the pages of error codes. They are embedded in the binary.

use rust_embed::RustEmbed;
use segue::missions::codes::page_of_failure;

use super::{CommandResult, EXIT_USAGE, output};

#[derive(RustEmbed)]
#[folder = "docs/errors/"]
struct Pages;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The code, such as F0203 or budget.exceeded; without one, all codes are listed
    code: Option<String>,
}

/// Prints a page, or the list.
pub(super) fn explain(args: &Args) -> CommandResult {
    let Some(code) = &args.code else {
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
    let code = code.trim().trim_matches(['[', ']']);
    // Runs fail with codes of words.
    let code = page_of_failure(&code.to_lowercase()).map_or_else(|| code.to_uppercase(), str::to_owned);
    match page(&code) {
        Some(page) => {
            output::print(&page)?;
            Ok(0)
        }
        None => {
            output::status(&format!("unknown code {code}; `segue explain` lists all codes"));
            Ok(EXIT_USAGE)
        }
    }
}

fn page(code: &str) -> Option<String> {
    let file = Pages::get(&format!("{code}.md"))?;
    String::from_utf8(file.data.into_owned()).ok()
}
