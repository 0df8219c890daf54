//! Tables in Markdown, and the layer tables of ARCHITECTURE.md.

use std::collections::BTreeMap;

/// A row of a table.
pub struct Row<'a> {
    /// The line in the file, from 1.
    pub line: usize,
    /// The cells without the white space around them.
    pub cells: Vec<&'a str>,
}

/// The tables of a text. The first row of each is the header; the delimiter row is left out.
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
        let is_delimiter = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')));
        if let Some(table) = all.last_mut().filter(|_| !is_delimiter) {
            table.push(Row { line: index + 1, cells });
        }
    }
    all
}

/// The code spans (texts between backticks) of a cell.
pub fn code_spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// A module of a layer table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The layer; `None` for a module outside the layers, which may import every module and is imported by none.
    pub layer: Option<u32>,
    /// Whether all modules of its layer may import one another.
    pub imports_whole_layer: bool,
    /// Modules of the same layer that it may import.
    pub also_imports: Vec<String>,
}

/// The modules of one package, by name.
pub type LayerTable = BTreeMap<String, Module>;

/// Reads the table whose first header cell is `header`. The error is a line and a message.
pub fn layer_table(text: &str, header: &str) -> Result<LayerTable, (usize, String)> {
    let all = tables(text);
    let found = all.iter().find(|table| table.first().is_some_and(|row| row.cells.first() == Some(&header)));
    let Some([_, rows @ ..]) = found.map(Vec::as_slice) else {
        return Err((1, format!("there is no table whose first header cell is `{header}`, which this rule reads")));
    };
    let mut table = LayerTable::new();
    for row in rows {
        let [layer, modules, also, ..] = row.cells.as_slice() else {
            return Err((row.line, "a row of this table has the cells: layer, modules, may also import".to_owned()));
        };
        let number = layer.split_whitespace().next().unwrap_or_default();
        let layer = match number.parse() {
            Ok(layer) => Some(layer),
            Err(_) if number == "outside" => None,
            Err(_) => return Err((row.line, format!("`{number}` is neither a layer number nor `outside`"))),
        };
        for name in code_spans(modules) {
            let module = Module {
                layer,
                imports_whole_layer: also.contains("one another"),
                also_imports: same_layer_imports(also, name),
            };
            if table.insert(name.to_owned(), module).is_some() {
                return Err((row.line, format!("the module `{name}` is in the table twice")));
            }
        }
    }
    Ok(table)
}

/// The modules that `name` may import from its own layer, from a cell such as "`a` → `b`, `c`; `d` → `e`".
fn same_layer_imports(cell: &str, name: &str) -> Vec<String> {
    cell.split(';')
        .filter_map(|part| part.split_once('→'))
        .filter(|(from, _)| code_spans(from).any(|from| from == name))
        .flat_map(|(_, to)| code_spans(to).map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| layer of the root package | modules | may also import |
| --- | --- | --- |
| 1 agents | `missions`, `agents` | `missions` → `agents` |
| 0 foundation | `clock`, `context` | one another |
| outside | `testing` | everything |
";

    #[test]
    fn layer_table_has_layers_and_same_layer_imports() {
        let table = layer_table(TEXT, "layer of the root package").unwrap();
        let missions = Module { layer: Some(1), imports_whole_layer: false, also_imports: vec!["agents".to_owned()] };
        assert_eq!(table["missions"], missions);
        assert_eq!(table["agents"].also_imports, Vec::<String>::new());
        assert!(table["clock"].imports_whole_layer);
        assert_eq!(table["testing"].layer, None);
    }

    #[test]
    fn missing_layer_table_and_repeated_module_are_errors() {
        assert!(layer_table(TEXT, "layer of the engine").is_err());
        let double = TEXT.replace("`context`", "`agents`");
        assert_eq!(layer_table(&double, "layer of the root package").unwrap_err().0, 4);
    }

    #[test]
    fn table_in_a_code_block_is_not_read() {
        assert!(tables("```\n| a | b |\n```\n").is_empty());
    }
}
