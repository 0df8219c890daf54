//! The Jinja engine of a project: templates are compiled once and rendered many times.

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::Arc,
};

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, value::ValueKind};
use serde_json::Value as Json;

use super::{
    datetime::ZonedTime,
    error::{TemplateError, TemplateErrorKind},
    filters, methods,
    name_scan::{self, NameKind},
    python,
};
use crate::{
    finding::did_you_mean,
    limits::{TEMPLATE_FUEL, TEMPLATE_OUTPUT_BYTES, TEMPLATE_RECURSION},
    time::Timestamp,
};

/// How a template treats undefined names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndefinedMode {
    /// They print nothing, and so do their attributes. For templates of projects.
    Lenient,
    /// They are errors. For built-in prompts and missions.
    Strict,
}

/// The source of a template: text that an author wrote into a project file.
///
/// Only loaders of project files may create one, never from text that comes from a conversation, a model or a tool. There is no
/// conversion from `String`, so a search for the constructors finds every place that creates one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateSource {
    name: Arc<str>,
    first_line: u32,
    text: Arc<str>,
}

impl TemplateSource {
    /// A whole project file, or a string in one. `name` is the path of the file relative to the project folder.
    pub fn from_project_file(name: impl Into<Arc<str>>, text: &str) -> Self {
        let text =
            if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")) } else { text.into() };
        Self { name: name.into(), first_line: 1, text: text.into() }
    }
    /// A text embedded in this binary.
    pub fn embedded(name: &'static str, text: &'static str) -> Self {
        Self::from_project_file(name, text)
    }
    /// Sets the line of the file on which the text begins, so that errors have the right line.
    pub fn starting_at_line(mut self, line: u32) -> Self {
        self.first_line = line.max(1);
        self
    }
    /// The path of the file.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
    /// The line of the file on which the text begins.
    pub fn first_line(&self) -> u32 {
        self.first_line
    }
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A compiled template. Cloning is cheap; concurrent renderings do not wait for each other.
#[derive(Clone, Debug)]
pub struct Template(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    source: TemplateSource,
    body: Body,
}

/// Texts without Jinja are very common (conditions, responses), so they need no environment and no rendering.
#[derive(Debug)]
enum Body {
    Constant,
    // One environment per template: it shares the filters of the engine, and a lookup in it has no contention.
    Jinja(Box<Environment<'static>>),
}

impl Template {
    fn new(source: &TemplateSource, body: Body) -> Self {
        Self(Arc::new(Compiled { source: source.clone(), body }))
    }
    /// Its source.
    pub fn source(&self) -> &TemplateSource {
        &self.0.source
    }
    /// Whether it contains no Jinja and always renders to the same text.
    pub fn is_constant(&self) -> bool {
        matches!(self.0.body, Body::Constant)
    }
    /// Renders the template with the variables of `context`, a map or an object.
    ///
    /// # Errors
    /// A filter does not exist or refuses its value, a limit is exceeded, or (strict mode) a name is undefined.
    pub fn render(&self, context: Value) -> Result<String, TemplateError> {
        let Compiled { source, body, .. } = &*self.0;
        let Body::Jinja(env) = body else {
            let text = source.text();
            return Ok(text.strip_suffix('\n').unwrap_or(text).to_owned());
        };
        let mut out = BoundedBuffer { text: Vec::with_capacity(source.text().len() + 256) };
        env.get_template(source.name())
            .and_then(|compiled| compiled.render_captured_to(context, &mut out).map(drop))
            .map_err(|error| TemplateError::from_engine(&error, source))?;
        Ok(String::from_utf8(out.text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
    /// Whether the template may read this variable: its name occurs in the text as a word, even in a comment. A variable that cannot be
    /// read need not be computed for a rendering.
    pub fn may_read(&self, name: &str) -> bool {
        let words = self.0.source.text().split(|c: char| !c.is_alphanumeric() && c != '_');
        !self.is_constant() && words.into_iter().any(|word| word == name)
    }
}

/// A compiled Jinja expression: the `value` of a tool's output mapping.
#[derive(Clone, Debug)]
pub struct Expression(TemplateSource);

impl Expression {
    /// Its source.
    pub fn source(&self) -> &TemplateSource {
        &self.0
    }
}

/// The template engine of a project: built once, shared by all conversations.
#[derive(Debug)]
pub struct TemplateEngine {
    lenient: Environment<'static>,
    strict: Environment<'static>,
}

impl Default for TemplateEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl TemplateEngine {
    /// An engine with a lenient and a strict environment.
    pub fn new() -> Self {
        Self { lenient: environment(UndefinedBehavior::Chainable), strict: environment(UndefinedBehavior::Strict) }
    }

    /// Compiles a template.
    ///
    /// # Errors
    /// A syntax error.
    pub fn compile(&self, source: &TemplateSource, mode: UndefinedMode) -> Result<Template, TemplateError> {
        let text = source.text();
        if !["{{", "{%", "{#"].iter().any(|open| text.contains(open)) {
            return Ok(Template::new(source, Body::Constant));
        }
        let mut env = match mode {
            UndefinedMode::Lenient => self.lenient.clone(),
            UndefinedMode::Strict => self.strict.clone(),
        };
        env.add_template_owned(source.name().to_string(), text.to_owned())
            .map_err(|error| TemplateError::from_engine(&error, source))?;
        Ok(Template::new(source, Body::Jinja(Box::new(env))))
    }

    /// Renders a template; see [`Template::render`].
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn render(&self, template: &Template, context: Value) -> Result<String, TemplateError> {
        template.render(context)
    }

    /// The dotted names a template reads from its context, sorted: `slots.city`, `user_message`.
    pub fn variables(&self, template: &Template) -> Vec<String> {
        let Body::Jinja(env) = &template.0.body else { return Vec::new() };
        let names =
            env.get_template(template.0.source.name()).map(|t| t.undeclared_variables(true)).unwrap_or_default();
        self.without_globals(names)
    }

    /// The names that a template reads and that `context` does not define, for the trace of a turn. Names in branches that are not
    /// taken are included.
    pub fn missing(&self, template: &Template, context: &Value) -> Vec<String> {
        let mut names = self.variables(template);
        names.retain(|name| is_missing(name, context));
        names
    }

    /// One error for each use of a filter, test, method or function that does not exist; rendering would fail there.
    pub fn unknown_names(&self, template: &Template) -> Vec<TemplateError> {
        let source = &template.0.source;
        if template.is_constant() {
            return Vec::new();
        }
        let variables = self.variables(template);
        // Functions of the context and macros are not reported: only a name that the template reads and nothing defines.
        let is_read = |name: &str| variables.iter().any(|variable| variable == name);
        let mut found = Vec::new();
        for (kind, name, at) in name_scan::names(source.text()) {
            let is_unknown = match kind {
                NameKind::Function => is_read(name) && !FUNCTIONS.contains(&name),
                _ => !self.knows(kind, name),
            };
            if is_unknown {
                let known: &[&str] = match kind {
                    NameKind::Filter => &FILTERS,
                    NameKind::Test => &TESTS,
                    NameKind::Method => &METHODS,
                    NameKind::Function => &FUNCTIONS,
                };
                let known = known.iter().copied().filter(|near| kind == NameKind::Function || self.knows(kind, near));
                found.push(TemplateError::unknown_name(source, kind, name, did_you_mean(name, known), at));
            }
        }
        found
    }

    /// Whether a filter or test exists, or any value has the method. minijinja has no public lookup: what exists fails with a
    /// different error, such as a missing argument.
    fn knows(&self, kind: NameKind, name: &str) -> bool {
        use minijinja::ErrorKind;
        let mut state = self.lenient.empty_state();
        match kind {
            NameKind::Filter => {
                !state.apply_filter(name, &[]).is_err_and(|error| error.kind() == ErrorKind::UnknownFilter)
            }
            NameKind::Test => !state.perform_test(name, &[]).is_err_and(|error| error.kind() == ErrorKind::UnknownTest),
            NameKind::Method => {
                let time = ZonedTime::new(Timestamp::from_micros(0), "UTC").map(|time| time.to_value());
                let samples = [
                    Value::from(""),
                    Value::from(vec![0]),
                    from_json(&Json::Object(Default::default())),
                    Value::from(1),
                ];
                METHODS_OF_OBJECTS.contains(&name)
                    || samples.into_iter().chain(time).any(|value| {
                        let result = value.call_method(&mut state, name, &[]);
                        !result.is_err_and(|error| error.kind() == ErrorKind::UnknownMethod)
                    })
            }
            NameKind::Function => FUNCTIONS.contains(&name),
        }
    }

    /// Compiles an expression, such as `result.structuredContent.id`.
    ///
    /// # Errors
    /// A syntax error, or an expression written inside `{{ }}`.
    pub fn compile_expression(&self, source: &TemplateSource) -> Result<Expression, TemplateError> {
        if source.text().trim_start().starts_with("{{") {
            let (message, help) =
                ("an expression is expected, but this is a template", "write it without `{{` and `}}`");
            return Err(TemplateError::at_start(source, TemplateErrorKind::Syntax, message, help));
        }
        match self.lenient.compile_expression(source.text()) {
            Ok(_) => Ok(Expression(source.clone())),
            Err(error) => Err(TemplateError::from_engine(&error, source)),
        }
    }

    /// Evaluates an expression and keeps the type of the value; an undefined value is null.
    ///
    /// # Errors
    /// A filter does not exist or refuses its value, or a limit is exceeded.
    pub fn eval_expression(&self, expression: &Expression, context: Value) -> Result<Json, TemplateError> {
        // A compiled expression of minijinja borrows its source, so it cannot be stored here. Compiling a short expression takes about
        // a microsecond, which is little beside a tool call.
        let source = &expression.0;
        self.lenient
            .compile_expression(source.text())
            .and_then(|compiled| compiled.eval(context))
            .and_then(|value| to_json(&value))
            .map_err(|error| TemplateError::from_engine(&error, source))
    }

    /// The dotted names an expression reads, sorted.
    pub fn expression_variables(&self, expression: &Expression) -> Vec<String> {
        let compiled = self.lenient.compile_expression(expression.0.text());
        self.without_globals(compiled.map(|c| c.undeclared_variables(true)).unwrap_or_default())
    }

    fn without_globals(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let globals: Vec<&str> = self.lenient.globals().map(|(name, _)| name).collect();
        let mut names: Vec<String> = names.into_iter().filter(|name| !globals.contains(&name.as_str())).collect();
        names.sort_unstable();
        names
    }
}

/// Methods of values that only exist while a template runs: loops, cyclers, differences of times.
const METHODS_OF_OBJECTS: [&str; 6] = ["cycle", "changed", "next", "reset", "total_seconds", "copy"];
/// Names in these four lists are only proposed if they exist.
const FILTERS: [&str; 46] = [
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "center",
    "count",
    "default",
    "dictsort",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
];
const TESTS: [&str; 17] = [
    "boolean",
    "defined",
    "divisibleby",
    "eq",
    "even",
    "false",
    "float",
    "in",
    "integer",
    "iterable",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "undefined",
];
const METHODS: [&str; 22] = [
    "capitalize",
    "count",
    "endswith",
    "find",
    "format",
    "get",
    "isdigit",
    "isoformat",
    "items",
    "join",
    "keys",
    "lower",
    "lstrip",
    "replace",
    "rstrip",
    "split",
    "startswith",
    "strftime",
    "strip",
    "title",
    "upper",
    "values",
];
const FUNCTIONS: [&str; 9] = ["range", "dict", "namespace", "cycler", "joiner", "lipsum", "loop", "caller", "super"];

fn environment(undefined: UndefinedBehavior) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(undefined);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(TEMPLATE_FUEL));
    env.set_recursion_limit(TEMPLATE_RECURSION);
    env.set_debug(false); // debug mode copies values into errors
    env.set_auto_reload(false);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(print);
    env.remove_global("debug"); // prints the whole context
    filters::register(&mut env);
    env
}

/// Prints a value as Python does. Only floats differ from minijinja's own output.
fn print(
    out: &mut minijinja::Output<'_>,
    _: &mut minijinja::State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    if let Some(text) = value.as_str() {
        out.write_str(text)?;
    } else if value.kind() == ValueKind::Number && !value.is_integer() {
        out.write_str(&f64::try_from(value.clone()).map(python::float_text).unwrap_or_else(|_| value.to_string()))?;
    } else {
        out.write_fmt(format_args!("{value}"))?;
    }
    Ok(())
}

fn is_missing(name: &str, context: &Value) -> bool {
    let mut at = context.clone();
    for part in name.split('.') {
        // `d.items()` is listed as the name `d.items`: a method of a map, string or object is not a missing value.
        let is_method = at.kind() != ValueKind::Map && !at.is_undefined() && !at.is_none();
        if is_method || (at.kind() == ValueKind::Map && matches!(part, "items" | "keys" | "values" | "get")) {
            return false;
        }
        at = at.get_attr(part).unwrap_or_default();
        if at.is_undefined() {
            return true;
        }
    }
    false
}

/// A buffer that refuses to grow past [`TEMPLATE_OUTPUT_BYTES`].
struct BoundedBuffer {
    text: Vec<u8>,
}

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > TEMPLATE_OUTPUT_BYTES {
            return Err(io::Error::other("too much output"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A JSON value as a template value; the order of keys is preserved.
pub fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(i), _, _) => Value::from(i),
            (_, Some(u), _) => Value::from(u),
            (_, _, Some(f)) => Value::from(f),
            _ => Value::from(()),
        },
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), from_json(value)))),
    }
}

/// A template value as JSON. An undefined value becomes null, a Segue object such as `current_datetime` its printed form.
///
/// # Errors
/// A map has keys that JSON does not allow, or a number is too large.
pub fn to_json(value: &Value) -> Result<Json, minijinja::Error> {
    serde_json::to_value(value)
        .map_err(|error| minijinja::Error::new(minijinja::ErrorKind::BadSerialization, error.to_string()))
}
