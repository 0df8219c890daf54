//! The words that models of others read; they stand in `prompts/mcp_server.txt`.

const FILE: &str = include_str!("../../../prompts/mcp_server.txt");

/// The text of a key with its values in. A value is data: braces inside it stay as they are.
pub(super) fn say(key: &str, values: &[(&str, &str)]) -> String {
    let found = FILE.lines().find_map(|line| line.split_once(" = ").filter(|(name, _)| *name == key));
    let mut rest = found.map_or(key, |(_, text)| text);
    let mut out = String::with_capacity(rest.len() + 32);
    while let Some((before, (name, after))) =
        rest.split_once('{').and_then(|(before, tail)| Some((before, tail.split_once('}')?)))
    {
        out.push_str(before);
        out.push_str(values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_data() {
        assert_eq!(say("no_conversation", &[("id", "{id}")]).matches("{id}").count(), 1);
        assert!(say("waits", &[("id", "mcp-1")]).contains("mcp-1"));
    }
}
