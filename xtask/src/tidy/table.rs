//! Tables of Markdown, and the layer tables among them.

use std::collections::BTreeMap;

/// A row: its line and its cells, trimmed.
pub struct Row<'a> {
    pub line: usize,
    pub cells: Vec<&'a str>,
}

/// The tables of a text, each with its head as the first row.
pub fn tables(text: &str) -> Vec<Vec<Row<'_>>> {
    let mut all: Vec<Vec<Row<'_>>> = Vec::new();
    let (mut inside, mut fenced) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        fenced ^= line.starts_with("```");
        let cells = line.strip_prefix('|').filter(|_| !fenced);
        let Some(cells) = cells else {
            inside = false;
            continue;
        };
        let cells: Vec<&str> = cells.strip_suffix('|').unwrap_or(cells).split('|').map(str::trim).collect();
        if !inside {
            all.push(Vec::new());
            inside = true;
        }
        let is_rule = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')));
        if let Some(table) = all.last_mut().filter(|_| !is_rule) {
            table.push(Row { line: index + 1, cells });
        }
    }
    all
}

/// The texts between back-quotes in a cell.
pub fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The place of a module in the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The layer; `None` for a module outside, which may import all and is imported by none.
    pub layer: Option<u32>,
    /// Whether the modules of its layer may import one another.
    pub open: bool,
    /// Modules of the same layer that it may import.
    pub also: Vec<String>,
}

/// The modules of one package.
pub type Plan = BTreeMap<String, Module>;

/// Reads the table whose first head cell is `head`; the error is a line and a message.
pub fn plan(text: &str, head: &str) -> Result<Plan, (usize, String)> {
    let all = tables(text);
    let found = all.iter().find(|table| table.first().is_some_and(|row| row.cells.first() == Some(&head)));
    let Some([_, rows @ ..]) = found.map(Vec::as_slice) else {
        return Err((1, format!("no table whose first head cell is `{head}`: it is the input of this rule")));
    };
    let mut plan = Plan::new();
    for row in rows {
        let [layer, modules, also, ..] = row.cells.as_slice() else {
            return Err((row.line, "a layer has the cells: layer, modules, may also import".to_owned()));
        };
        let number = layer.split_whitespace().next().unwrap_or_default();
        let layer = match number.parse() {
            Ok(layer) => Some(layer),
            Err(_) if number == "outside" => None,
            Err(_) => return Err((row.line, format!("`{number}` is neither a layer number nor `outside`"))),
        };
        for name in quoted(modules) {
            let module = Module { layer, open: also.contains("one another"), also: sideways(also, name) };
            if plan.insert(name.to_owned(), module).is_some() {
                return Err((row.line, format!("the module `{name}` is in the table twice")));
            }
        }
    }
    Ok(plan)
}

/// Reads "`a` → `b`, `c`; `d` → `e`": what `name` may import from its own layer.
fn sideways(cell: &str, name: &str) -> Vec<String> {
    cell.split(';')
        .filter_map(|part| part.split_once('→'))
        .filter(|(from, _)| quoted(from).any(|from| from == name))
        .flat_map(|(_, to)| quoted(to).map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| layer of the root package | modules | may also import |
| --- | --- | --- |
| 1 agents | `missions`, `agents` | `missions` → `agents` |
| 0 foundation | `clock`, `cx` | one another |
| outside | `testing` | everything |
";

    #[test]
    fn a_plan_is_read() {
        let plan = plan(TEXT, "layer of the root package").unwrap();
        assert_eq!(plan["missions"], Module { layer: Some(1), open: false, also: vec!["agents".to_owned()] });
        assert_eq!(plan["agents"].also, Vec::<String>::new());
        assert!(plan["clock"].open);
        assert_eq!(plan["testing"].layer, None);
    }

    #[test]
    fn a_missing_table_and_a_repeated_module_are_errors() {
        assert!(plan(TEXT, "layer of the engine").is_err());
        let double = TEXT.replace("`cx`", "`agents`");
        assert_eq!(plan(&double, "layer of the root package").unwrap_err().0, 4);
    }

    #[test]
    fn tables_in_fences_are_no_tables() {
        assert!(tables("```\n| a | b |\n```\n").is_empty());
    }
}
