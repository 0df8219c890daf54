//! Tables of Markdown, and the floor tables among them.

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

/// What stands between back-quotes in a cell.
pub fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Where a room stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The floor; `None` for a room outside, which sees all and is seen by nobody.
    pub floor: Option<u32>,
    /// Whether the rooms of its floor see one another.
    pub open: bool,
    /// Rooms of the same floor that it may see.
    pub also: Vec<String>,
}

/// The rooms of one package.
pub type Plan = BTreeMap<String, Room>;

/// Reads the table whose first head cell is `head`; the error is a line and a message.
pub fn plan(text: &str, head: &str) -> Result<Plan, (usize, String)> {
    let all = tables(text);
    let found = all.iter().find(|table| table.first().is_some_and(|row| row.cells.first() == Some(&head)));
    let Some([_, rows @ ..]) = found.map(Vec::as_slice) else {
        return Err((1, format!("no table whose first head cell is `{head}`: it is the input of this rule")));
    };
    let mut plan = Plan::new();
    for row in rows {
        let [floor, rooms, also, ..] = row.cells.as_slice() else {
            return Err((row.line, "a floor has the cells: floor, rooms, may also see".to_owned()));
        };
        let number = floor.split_whitespace().next().unwrap_or_default();
        let floor = match number.parse() {
            Ok(floor) => Some(floor),
            Err(_) if number == "outside" => None,
            Err(_) => return Err((row.line, format!("`{number}` is neither a floor number nor `outside`"))),
        };
        for name in quoted(rooms) {
            let room = Room { floor, open: also.contains("one another"), also: sideways(also, name) };
            if plan.insert(name.to_owned(), room).is_some() {
                return Err((row.line, format!("the room `{name}` stands twice in the table")));
            }
        }
    }
    Ok(plan)
}

/// Reads "`a` → `b`, `c`; `d` → `e`": what `name` may see on its own floor.
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
| root floor | rooms | may also see |
| --- | --- | --- |
| 1 upper | `missions`, `agents` | `missions` → `agents` |
| 0 ground | `clock`, `cx` | one another |
| outside | `testing` | everything |
";

    #[test]
    fn a_plan_is_read() {
        let plan = plan(TEXT, "root floor").unwrap();
        assert_eq!(plan["missions"], Room { floor: Some(1), open: false, also: vec!["agents".to_owned()] });
        assert_eq!(plan["agents"].also, Vec::<String>::new());
        assert!(plan["clock"].open);
        assert_eq!(plan["testing"].floor, None);
    }

    #[test]
    fn a_missing_table_and_a_double_room_are_told() {
        assert!(plan(TEXT, "engine floor").is_err());
        let double = TEXT.replace("`cx`", "`agents`");
        assert_eq!(plan(&double, "root floor").unwrap_err().0, 4);
    }

    #[test]
    fn tables_in_fences_are_no_tables() {
        assert!(tables("```\n| a | b |\n```\n").is_empty());
    }
}
