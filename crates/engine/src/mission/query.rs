//! Queries over the outputs of completed tasks: filters, order, pages, aggregates.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
};

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::state::{TaskState, TaskStatus};
use crate::project::{field_values::equal, missions::TaskDef};

/// Items of a page if the query sets no limit.
const PAGE: usize = 20;
/// Comparisons of items with values at most, for all filters of a query.
const MOST_COMPARISONS: usize = 2_000_000;
/// Bytes of a value that count as one comparison.
const COMPARED_BYTES: usize = 64;
/// Items of a page at most.
pub const MOST_ITEMS: usize = 200;

/// A query, as the arguments of `query_task_output` have it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Query {
    /// The conditions; an item must meet all of them.
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// The ids of items; then all other options are ignored.
    #[serde(default)]
    pub item_ids: Vec<Arc<str>>,
    /// Items of the page.
    #[serde(default)]
    pub limit: Option<usize>,
    /// Items before the page.
    #[serde(default)]
    pub offset: usize,
    /// The field to sort by.
    #[serde(default)]
    pub order_by: Option<Arc<str>>,
    /// Whether the largest comes first.
    #[serde(default)]
    pub desc: bool,
    /// Computes one value instead of listing items.
    #[serde(default)]
    pub aggregate: Option<Aggregate>,
    /// `json` or `text`.
    #[serde(default)]
    pub format: Format,
}

/// The form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A JSON object.
    #[default]
    Json,
    /// A text with a line for each item.
    Text,
}

/// One condition.
#[derive(Clone, Debug, Deserialize)]
pub struct Filter {
    /// The field: `index`, `item_id`, `status`, or a field of the output, with dots for nested ones.
    pub field: Arc<str>,
    /// How to compare.
    pub op: Operator,
    /// The value to compare with.
    #[serde(default)]
    pub value: Json,
}

/// How a field is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Less.
    Lt,
    /// Greater or equal.
    Gte,
    /// Less or equal.
    Lte,
    /// The text contains the value; the list has it as an element.
    Contains,
    /// Equal to an element of the value.
    In,
    /// Equal to no element of the value.
    Nin,
    /// Has a value; with `false`, has none.
    Exists,
    /// The text contains the value, whatever the case of letters.
    Icontains,
    /// The text starts with the value.
    StartsWith,
}

/// The names of the operators, for schemas.
pub const OPERATORS: [&str; 12] =
    ["eq", "ne", "gt", "lt", "gte", "lte", "contains", "in", "nin", "exists", "icontains", "starts_with"];

/// One value over many items.
#[derive(Clone, Debug, Deserialize)]
pub struct Aggregate {
    /// What to compute.
    pub op: AggregateOp,
    /// The field; not needed for `count`.
    #[serde(default)]
    pub field: Option<Arc<str>>,
    /// The field by whose values items are grouped.
    #[serde(default)]
    pub group_by: Option<Arc<str>>,
    /// What to compute for each group.
    #[serde(default)]
    pub group_op: Option<AggregateOp>,
}

/// What an aggregate computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregateOp {
    /// The number of items.
    Count,
    /// The sum of the numbers.
    Sum,
    /// The mean of the numbers.
    Avg,
    /// The least number, with its item.
    Min,
    /// The greatest number, with its item.
    Max,
    /// The different values, in the order of their first occurrence.
    Distinct,
    /// One value for each group.
    GroupBy,
}

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// An aggregate over a task without iterator.
    NotIterated,
    /// The aggregate needs this argument.
    ArgumentMissing(&'static str),
    /// The filters or ids ask for more comparisons than one query may make.
    TooLarge,
}

struct Row<'a> {
    index: u32,
    item_id: &'a Arc<str>,
    status: TaskStatus,
    output: Option<&'a Json>,
    /// Why it failed.
    error: Option<&'a Arc<str>>,
}

impl Row<'_> {
    /// The value of a field. Null counts as missing.
    fn field(&self, path: &str) -> Option<Json> {
        match path {
            "index" => return Some(json!(self.index)),
            "item_id" => return Some(json!(&**self.item_id)),
            "status" => return serde_json::to_value(self.status).ok(),
            "error" if self.error.is_some() => return self.error.map(|error| json!(&**error)),
            _ => {}
        }
        let output = self.output?;
        // A field whose name has a dot comes before a nested one.
        let found = match output.get(path) {
            Some(found) => Some(found),
            None => path.split('.').try_fold(output, |at, part| match at {
                Json::Array(items) => items.get(part.parse::<usize>().ok()?),
                other => other.get(part),
            }),
        };
        found.filter(|value| !value.is_null()).cloned()
    }

    fn json(&self) -> Json {
        let mut row =
            json!({"index": self.index, "item_id": &**self.item_id, "status": self.status, "output": self.output});
        if let (Some(error), Some(object)) = (self.error, row.as_object_mut()) {
            object.insert("error".into(), json!(&**error));
        }
        row
    }
}

/// Answers a query over the output of a completed task; `name` is the name by which the caller knows it. The result is a JSON object, or a
/// text.
///
/// # Errors
/// See [`QueryError`].
pub fn run(name: &str, def: &TaskDef, state: &TaskState, query: &Query) -> Result<Json, QueryError> {
    if def.iterator.is_none() {
        if query.aggregate.is_some() {
            return Err(QueryError::NotIterated);
        }
        let result = json!({"task": name, "output": state.output});
        return Ok(in_format(query.format, with_warnings(result, not_iterated(name, query))));
    }
    let rows: Vec<Row<'_>> = rows(state).collect();
    if rows.len().saturating_mul(query.cost()) > MOST_COMPARISONS || query.item_ids.len() > MOST_COMPARISONS {
        return Err(QueryError::TooLarge);
    }
    let mut warnings = unknown_fields(def, query);
    let result = match (&query.aggregate, query.item_ids.is_empty()) {
        (Some(aggregate), _) => {
            let matching: Vec<&Row<'_>> = rows.iter().filter(|row| matches(row, &query.filters)).collect();
            let mut result = aggregated(&matching, aggregate)?;
            warnings.extend(without_numbers(&matching, aggregate));
            result.insert("op".into(), json!(operation_name(aggregate.op)));
            json!({"task": name, "aggregate": result})
        }
        (None, false) => by_ids(name, &rows, &query.item_ids),
        (None, true) => page(name, &rows, query),
    };
    Ok(in_format(query.format, with_warnings(result, warnings)))
}

/// The items of a task that were started, as [`run`] gives them.
pub fn items(state: &TaskState) -> Vec<Json> {
    rows(state).map(|row| row.json()).collect()
}

fn rows(state: &TaskState) -> impl Iterator<Item = Row<'_>> {
    let started = state.items.iter().filter(|(_, item)| item.status != TaskStatus::Pending);
    started.map(|(index, item)| {
        // What a failed attempt had submitted does not count.
        let output = item.output.as_ref().filter(|_| item.status == TaskStatus::Completed);
        let error = item.error.as_ref().filter(|_| matches!(item.status, TaskStatus::Failed | TaskStatus::Cancelled));
        Row { index: *index, item_id: &item.item_id, status: item.status, output, error }
    })
}

fn with_warnings(mut result: Json, warnings: Vec<Json>) -> Json {
    if let Some(object) = result.as_object_mut().filter(|_| !warnings.is_empty()) {
        object.insert("warnings".into(), Json::Array(warnings));
    }
    result
}

/// What a query sets that has no meaning for a task without items.
fn not_iterated(name: &str, query: &Query) -> Vec<Json> {
    let set = [
        ("filters", !query.filters.is_empty()),
        ("item_ids", !query.item_ids.is_empty()),
        ("order_by", query.order_by.is_some()),
        ("limit", query.limit.is_some()),
        ("offset", query.offset > 0),
    ];
    let ignored: Vec<&str> = set.into_iter().filter(|(_, is_set)| *is_set).map(|(argument, _)| argument).collect();
    if ignored.is_empty() {
        return Vec::new();
    }
    let message = format!("`{name}` does not iterate over a dataset, so `{}` has no effect", ignored.join("`, `"));
    vec![json!({"code": "query.not_iterated", "message": message, "ignored": ignored})]
}

/// A warning for an aggregate over numbers of a field that has values, but no numbers.
fn without_numbers(rows: &[&Row<'_>], aggregate: &Aggregate) -> Option<Json> {
    let op = if aggregate.op == AggregateOp::GroupBy { aggregate.group_op? } else { aggregate.op };
    let field = aggregate.field.as_deref()?;
    let needs_numbers = matches!(op, AggregateOp::Sum | AggregateOp::Avg | AggregateOp::Min | AggregateOp::Max);
    let values: Vec<Json> = rows.iter().filter_map(|row| row.field(field)).filter(|_| needs_numbers).collect();
    let others = values.iter().filter(|value| !value.is_number()).count();
    if others == 0 {
        return None;
    }
    let message = format!(
        "`{}` counts numbers only: the field `{field}` has another value in {others} of {} items",
        operation_name(op),
        values.len()
    );
    Some(json!({"code": "query.not_a_number", "message": message}))
}

impl Query {
    /// How many comparisons the filters need for one item.
    fn cost(&self) -> usize {
        let of = |value: &Json| match value {
            Json::Array(values) => values.iter().map(|value| 1 + size_of_value(value) / COMPARED_BYTES).sum(),
            value => 1 + size_of_value(value) / COMPARED_BYTES,
        };
        self.filters.iter().map(|filter| of(&filter.value)).sum()
    }
}

/// The length of a value, roughly.
fn size_of_value(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(_) | Json::Object(_) => value.to_string().len(),
        _ => 0,
    }
}

fn by_ids(name: &str, rows: &[Row<'_>], ids: &[Arc<str>]) -> Json {
    let wanted: HashSet<&Arc<str>> = ids.iter().collect();
    let known: HashSet<&Arc<str>> = rows.iter().map(|row| row.item_id).collect();
    let found = || rows.iter().filter(|row| wanted.contains(row.item_id));
    let total = found().count();
    let found: Vec<Json> = found().take(MOST_ITEMS).map(Row::json).collect();
    let missing: Vec<&str> = ids.iter().filter(|id| !known.contains(id)).map(|id| &**id).collect();
    let mut result = json!({"task": name, "total": total, "returned": found.len(), "offset": 0, "items": found});
    if let Some(object) = result.as_object_mut().filter(|_| !missing.is_empty()) {
        object.insert("missing".into(), json!(missing));
    }
    result
}

fn page(name: &str, rows: &[Row<'_>], query: &Query) -> Json {
    let mut matching: Vec<&Row<'_>> = rows.iter().filter(|row| matches(row, &query.filters)).collect();
    if let Some(order_by) = &query.order_by {
        let mut keyed: Vec<(Option<Json>, &Row<'_>)> =
            matching.into_iter().map(|row| (row.field(order_by), row)).collect();
        keyed.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) if query.desc => order(b, a),
            (Some(a), Some(b)) => order(a, b),
            (a, b) => a.is_none().cmp(&b.is_none()), // without the field last, in both directions
        });
        matching = keyed.into_iter().map(|(_, row)| row).collect();
    }
    let total = matching.len();
    let limit = query.limit.filter(|limit| *limit > 0).unwrap_or(PAGE).min(MOST_ITEMS);
    let items: Vec<Json> = matching.into_iter().skip(query.offset).take(limit).map(Row::json).collect();
    json!({"task": name, "total": total, "returned": items.len(), "offset": query.offset, "items": items})
}

fn matches(row: &Row<'_>, filters: &[Filter]) -> bool {
    filters.iter().all(|filter| {
        let field = row.field(&filter.field);
        if filter.op == Operator::Exists {
            let expected = !matches!(&filter.value, Json::Bool(false)) && filter.value.as_str() != Some("false");
            return field.is_some() == expected;
        }
        let is_status = &*filter.field == "status";
        let value = if is_status { status_words(&filter.value) } else { filter.value.clone() };
        field.is_some_and(|field| compare(&field, filter.op, &value))
    })
}

/// The words of a status. `success` is another one for `completed`, and `failure` for `failed`.
fn status_words(value: &Json) -> Json {
    match value {
        Json::String(word) => match word.as_str() {
            "success" | "succeeded" => json!(TaskStatus::Completed),
            "failure" => json!(TaskStatus::Failed),
            _ => value.clone(),
        },
        Json::Array(values) => values.iter().map(status_words).collect(),
        _ => value.clone(),
    }
}

fn compare(field: &Json, op: Operator, value: &Json) -> bool {
    let listed = |value: &Json| match value {
        Json::Array(values) => values.iter().any(|value| same(field, value)),
        other => same(field, other),
    };
    match op {
        Operator::Eq => same(field, value),
        Operator::Ne => !same(field, value),
        Operator::Gt => order_with(field, value) == Ordering::Greater,
        Operator::Lt => order_with(field, value) == Ordering::Less,
        Operator::Gte => order_with(field, value) != Ordering::Less,
        Operator::Lte => order_with(field, value) != Ordering::Greater,
        Operator::Contains => match field {
            Json::Array(items) => items.iter().any(|item| same(item, value)),
            other => texts(other, value).is_some_and(|(text, part)| text.contains(part)),
        },
        Operator::Icontains => {
            texts(field, value).is_some_and(|(text, part)| text.to_lowercase().contains(&part.to_lowercase()))
        }
        Operator::StartsWith => texts(field, value).is_some_and(|(text, part)| text.starts_with(part)),
        Operator::In => listed(value),
        Operator::Nin => !listed(value),
        Operator::Exists => true,
    }
}

fn texts<'a>(field: &'a Json, value: &'a Json) -> Option<(&'a str, &'a str)> {
    Some((field.as_str()?, value.as_str()?))
}

fn same(field: &Json, value: &Json) -> bool {
    match (numbers(field, value), field, value) {
        (Some((a, b)), _, _) => equal(field, value) || a == b,
        (None, Json::Array(_) | Json::Object(_), Json::String(text)) => {
            serde_json::from_str::<Json>(text).is_ok_and(|value| equal(field, &value))
        }
        (None, Json::Array(_) | Json::Object(_), _) => equal(field, value),
        (None, _, _) => printed(field) == printed(value),
    }
}

fn order_with(field: &Json, value: &Json) -> Ordering {
    match numbers(field, value) {
        Some((a, b)) => a.total_cmp(&b),
        None => printed(field).cmp(&printed(value)),
    }
}

/// Both as numbers, if the field is one and the value is one or a text of one: models often write numbers as texts.
fn numbers(field: &Json, value: &Json) -> Option<(f64, f64)> {
    let value = match value {
        Json::Number(number) => number.as_f64()?,
        Json::String(text) => text.trim().parse::<f64>().ok().filter(|number| number.is_finite())?,
        _ => return None,
    };
    Some((field.as_f64()?, value))
}

/// A total order of fields: numbers by value, then all others by their text.
fn order(a: &Json, b: &Json) -> Ordering {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => printed(a).cmp(&printed(b)),
    }
}

fn printed(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn aggregated(rows: &[&Row<'_>], aggregate: &Aggregate) -> Result<Map<String, Json>, QueryError> {
    let field = || aggregate.field.as_deref().ok_or(QueryError::ArgumentMissing("field"));
    let result = match aggregate.op {
        AggregateOp::Count => json!({"value": rows.len()}),
        AggregateOp::Distinct => json!({"values": distinct(rows, field()?)}),
        AggregateOp::GroupBy => {
            let by = aggregate.group_by.as_deref().ok_or(QueryError::ArgumentMissing("group_by"))?;
            let op = aggregate.group_op.unwrap_or(AggregateOp::Count);
            let field = if op == AggregateOp::Count { "" } else { field()? };
            json!({"group_op": operation_name(op), "groups": groups(rows, by, op, field)})
        }
        op => number(rows, op, field()?),
    };
    Ok(result.as_object().cloned().unwrap_or_default())
}

fn operation_name(op: AggregateOp) -> &'static str {
    match op {
        AggregateOp::Count => "count",
        AggregateOp::Sum => "sum",
        AggregateOp::Avg => "avg",
        AggregateOp::Min => "min",
        AggregateOp::Max => "max",
        AggregateOp::Distinct => "distinct",
        AggregateOp::GroupBy => "group_by",
    }
}

/// `sum`, `avg`, `min` or `max`; items without a number in the field are not counted.
fn number(rows: &[&Row<'_>], op: AggregateOp, field: &str) -> Json {
    let numeric = |row: &Row<'_>| row.field(field).filter(Json::is_number);
    let values: Vec<(Json, &Row<'_>)> = rows.iter().filter_map(|row| Some((numeric(row)?, *row))).collect();
    let n = values.len();
    match op {
        AggregateOp::Sum => json!({"value": sum(&values), "n": n}),
        AggregateOp::Avg if n == 0 => json!({"value": null, "n": 0}),
        AggregateOp::Avg => json!({"value": sum(&values).as_f64().unwrap_or(0.0) / n as f64, "n": n}),
        _ => {
            let greater = |best: &(Json, &Row<'_>), next: &(Json, &Row<'_>)| {
                let wanted = if op == AggregateOp::Min { Ordering::Less } else { Ordering::Greater };
                order(&next.0, &best.0) == wanted
            };
            let best = values.into_iter().reduce(|best, next| if greater(&best, &next) { next } else { best });
            match best {
                Some((value, row)) => json!({"value": value, "item": row.json(), "n": n}),
                None => json!({"value": null, "item": null, "n": 0}),
            }
        }
    }
}

fn sum(values: &[(Json, &Row<'_>)]) -> Json {
    let whole = values.iter().try_fold(0_i64, |sum, (value, _)| sum.checked_add(value.as_i64()?));
    match whole {
        Some(sum) => json!(sum),
        None => json!(values.iter().filter_map(|(value, _)| value.as_f64()).sum::<f64>()),
    }
}

/// A text that is the same for equal values; 1 and 1.0 are equal.
fn identity(value: &Json) -> String {
    match value.as_f64() {
        Some(number) => number.to_string(),
        None => value.to_string(),
    }
}

fn distinct(rows: &[&Row<'_>], field: &str) -> Vec<Json> {
    let mut seen = HashSet::new();
    let values = rows.iter().filter_map(|row| row.field(field));
    values.filter(|value| seen.insert(identity(value))).take(MOST_ITEMS).collect()
}

fn groups(rows: &[&Row<'_>], by: &str, op: AggregateOp, field: &str) -> Vec<Json> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<(Json, Vec<&Row<'_>>)> = Vec::new();
    for row in rows {
        let key = row.field(by).unwrap_or_default();
        let position = *positions.entry(identity(&key)).or_insert(groups.len());
        match groups.get_mut(position) {
            Some((_, members)) => members.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    let group = |(key, members): (Json, Vec<&Row<'_>>)| {
        let value = match op {
            AggregateOp::Sum | AggregateOp::Avg | AggregateOp::Min | AggregateOp::Max => {
                number(&members, op, field).get("value").cloned().unwrap_or_default()
            }
            _ => json!(members.len()),
        };
        json!({"group": key, "value": value, "count": members.len()})
    };
    groups.into_iter().take(MOST_ITEMS).map(group).collect()
}

/// A warning for each field that the output of the task does not declare.
fn unknown_fields(def: &TaskDef, query: &Query) -> Vec<Json> {
    let aggregate = query.aggregate.iter().flat_map(|aggregate| [&aggregate.field, &aggregate.group_by]).flatten();
    let named = query.filters.iter().map(|filter| &filter.field).chain(&query.order_by).chain(aggregate);
    let mut warnings: Vec<Json> = Vec::new();
    for field in named {
        let first = field.split('.').next().unwrap_or_default();
        let is_known = matches!(&**field, "index" | "item_id" | "status" | "error")
            || def.output.contains_key(field)
            || def.output.contains_key(first);
        if def.output.is_empty() || is_known {
            continue;
        }
        let fields: Vec<&str> = def.output.keys().map(|name| &**name).collect();
        let warning = json!({
            "code": "query.field_unknown",
            "message": format!("the output of `{}` has no field `{field}`", def.name),
            "fields": fields,
        });
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    warnings
}

fn in_format(format: Format, result: Json) -> Json {
    if format == Format::Json {
        return result;
    }
    let mut text = format!("Task: {}\n", result.get("task").and_then(Json::as_str).unwrap_or_default());
    let pretty = |value: &Json| serde_json::to_string_pretty(value).unwrap_or_default();
    if let Some(items) = result.get("items").and_then(Json::as_array) {
        let number = |name: &str| result.get(name).and_then(Json::as_u64).unwrap_or(0);
        let _ = writeln!(text, "Items: {} of {}, from {}", number("returned"), number("total"), number("offset"));
        for item in items {
            let field = |name: &str| item.get(name).cloned().unwrap_or_default();
            let (id, index, status) = (printed(&field("item_id")), field("index"), printed(&field("status")));
            let _ = writeln!(text, "\n{id} (index {index}, {status})\n{}", pretty(&field("output")));
            if let Some(error) = item.get("error").and_then(Json::as_str) {
                let _ = writeln!(text, "Error: {error}");
            }
        }
    } else if let Some(aggregate) = result.get("aggregate") {
        let _ = writeln!(text, "Aggregate:\n{}", pretty(aggregate));
    } else {
        let output = result.get("output").filter(|output| !output.is_null());
        let _ = writeln!(text, "Output:\n{}", output.map_or_else(|| "none".to_owned(), pretty));
    }
    for warning in result.get("warnings").and_then(Json::as_array).into_iter().flatten() {
        let message = warning.get("message").and_then(Json::as_str).unwrap_or_default();
        let _ = writeln!(text, "Warning: {message}");
    }
    Json::String(text.trim_end().to_owned())
}
