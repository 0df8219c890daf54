//! `llms.txt`: the index of the documentation in the format of <https://llmstxt.org>.

use anyhow::{Result, bail};

/// The file with the index of the documentation.
pub const SOURCES: [&str; 1] = ["docs/README.md"];

const HEAD: &str = "\
# Segue

> A conversational sub-agent framework in Rust: CALM projects (flows, domain, agents and tools in YAML) run as one binary, without
> Python, training or a licence.

Commands: `segue init`, `segue check`, `segue chat`, `segue test`, `segue run`, `segue explain CODE`, `segue schema FILE`.
";

/// Generates the text from the list items of the index: `* [title](path): description` or `1. [title](path): description`. The text
/// is empty if the index has no links. Error if a link does not end.
pub fn page(sources: &[&str]) -> Result<String> {
    let mut text = HEAD.to_owned();
    let mut links = 0_usize;
    for line in sources.concat().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            text += &format!("\n## {heading}\n\n");
            continue;
        }
        let item = line.strip_prefix("* ").or_else(|| line.split_once(". ").map(|(_, item)| item));
        let Some((title, rest)) = item.and_then(|item| item.strip_prefix('[')?.split_once("](")) else { continue };
        let Some((path, about)) = rest.split_once(')') else { bail!("the link `{title}` does not end") };
        let path = path.strip_prefix("../").map_or_else(|| format!("docs/{path}"), str::to_owned);
        text += &format!("- [{title}]({path}){about}\n");
        links += 1;
    }
    Ok(if links == 0 { String::new() } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_of_the_index_is_listed_with_its_path_from_the_root() {
        let index = "# Docs\n\nText.\n\n## How-to\n\n* [A](how-to/a.md): does a.\n1. [B](../b.md): b.\n* no link\n";
        let text = page(&[index]).unwrap();
        assert!(text.ends_with("\n## How-to\n\n- [A](docs/how-to/a.md): does a.\n- [B](b.md): b.\n"), "{text}");
        assert!(page(&["* [A](a"]).is_err());
        assert_eq!(page(&[""]).unwrap(), "");
    }
}
