//! The texts that models of MCP hosts read: the keys of `prompts/mcp_server.txt`.

const FILE: &str = include_str!("../../../prompts/mcp_server.txt");

/// The text of a key, with `{name}` replaced by the value of that name, and by nothing where there is none. Values are data: braces
/// inside them stay. A key that the file does not have is returned itself.
pub(super) fn text(key: &str, values: &[(&str, &str)]) -> String {
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
    fn braces_inside_a_value_are_not_replaced() {
        assert_eq!(text("no_conversation", &[("id", "{id}")]).matches("{id}").count(), 1);
        assert!(text("waits", &[("id", "mcp-1")]).contains("mcp-1"));
    }
}
