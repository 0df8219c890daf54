//! Tools written in Rust as closures. The type of the arguments determines the schema; errors become failed calls.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json};

use super::{
    ArgumentCheck, EffectClass, FailureKind, ToolCallContext, ToolError, ToolHandler, ToolInfo, ToolOutcome,
    ToolOutput,
    messages::{ToolMessage, render_message},
    schema::with_object_type,
};

type ReplayTool = dyn Fn(&Json, &ToolOutcome, &ToolCallContext) + Send + Sync;
type RunTool = dyn Fn(Json, ToolCallContext) -> BoxFuture<'static, ToolOutcome> + Send + Sync;

/// A tool written in Rust. Cheap to clone; clones are the same tool.
///
/// ```
/// use schemars::JsonSchema;
/// use segue_tools::{EffectClass, Tool};
/// use serde::Deserialize;
/// use serde_json::json;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct ForecastArgs {
///     /// Name of the town
///     place: String,
/// }
///
/// let forecast = Tool::new("forecast", "Tells tomorrow's weather in a town", |args: ForecastArgs, _| async move {
///     Ok(json!({ "place": args.place, "sky": "clear" }))
/// })
/// .effect(EffectClass::Read);
/// assert_eq!(forecast.info().parameters["properties"]["place"]["description"], "Name of the town");
/// ```
#[derive(Clone)]
pub struct Tool {
    info: ToolInfo,
    /// `None` if the schema cannot be compiled: the tool is then excluded with the reason.
    check: Option<Arc<ArgumentCheck>>,
    idle_timeout: Option<Duration>,
    total_timeout: Option<Duration>,
    run: Arc<RunTool>,
    replayed: Option<Arc<ReplayTool>>,
}

impl Tool {
    /// A tool from an asynchronous closure with typed arguments. Doc comments of the type and of its fields are the
    /// descriptions for models. The result is any serialisable value; a string is passed on as text. An error of any
    /// type ends the call by `?`, see [`ToolError`].
    ///
    /// The effect class is `write` unless [`effect`](Self::effect) sets another one.
    pub fn new<A, T, F, W>(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>, run: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        T: Serialize,
        F: Fn(A, ToolCallContext) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let info = ToolInfo::new(name, description).parameters(schema_of::<A>());
        let tool = info.name.clone();
        Self::from_fn(info, move |arguments, context| {
            let tool = tool.clone();
            let call = deserialize_arguments(arguments).map(|arguments| run(arguments, context));
            async move {
                match call {
                    Ok(call) => outcome_of(&tool, call.await),
                    Err(problem) => {
                        let message = render_message(ToolMessage::InvalidArguments, &[("problems", &problem)]);
                        ToolOutcome::failed(FailureKind::BadArguments, message)
                    }
                }
            }
        })
    }

    /// A tool with a JSON Schema in place of a type. The arguments match the schema.
    pub fn with_schema<T, F, W>(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        parameters: Json,
        run: F,
    ) -> Self
    where
        T: Serialize,
        F: Fn(Json, ToolCallContext) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let info = ToolInfo::new(name, description).parameters(parameters);
        let tool = info.name.clone();
        Self::from_fn(info, move |arguments, context| {
            let (tool, call) = (tool.clone(), run(arguments, context));
            async move { outcome_of(&tool, call.await) }
        })
    }

    /// A tool from a description and a closure that returns the outcome itself.
    pub fn from_fn<F, W>(info: ToolInfo, run: F) -> Self
    where
        F: Fn(Json, ToolCallContext) -> W + Send + Sync + 'static,
        W: Future<Output = ToolOutcome> + Send + 'static,
    {
        let check = ArgumentCheck::compile(&info.parameters).ok().map(Arc::new);
        let run = Arc::new(move |arguments, context| -> BoxFuture<'static, ToolOutcome> {
            Box::pin(run(arguments, context))
        });
        Self { info, check, idle_timeout: None, total_timeout: None, run, replayed: None }
    }

    /// A tool from an implementation of [`ToolHandler`].
    pub fn from_handler(handler: impl ToolHandler + 'static) -> Self {
        let handler = Arc::new(handler);
        let (info, check) = (handler.info().clone(), handler.argument_check());
        let (idle_timeout, total_timeout) = (handler.idle_timeout(), handler.total_timeout());
        let replaying = handler.clone();
        let replayed = Arc::new(move |arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext| {
            replaying.replayed(arguments, outcome, context);
        });
        let run = Arc::new(move |arguments, context: ToolCallContext| -> BoxFuture<'static, ToolOutcome> {
            let handler = handler.clone();
            Box::pin(async move { handler.call(arguments, &context).await })
        });
        Self { info, check, idle_timeout, total_timeout, run, replayed: Some(replayed) }
    }

    /// Sets the effect class.
    #[must_use]
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.info.effect = effect;
        self
    }

    /// Sets the source: where it comes from, as traces show it.
    #[must_use]
    pub fn source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.info = self.info.source(source);
        self
    }

    /// Sets the idle timeout: the longest time of a call without [progress](ToolCallContext::report). The default is 10 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// The description of the tool.
    pub fn info(&self) -> &ToolInfo {
        &self.info
    }
}

#[async_trait]
impl ToolHandler for Tool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.check.clone()
    }
    fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }
    fn total_timeout(&self) -> Option<Duration> {
        self.total_timeout
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        (self.run)(arguments, context.clone()).await
    }
    fn replayed(&self, arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext) {
        if let Some(replayed) = &self.replayed {
            replayed(arguments, outcome, context);
        }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The type of the arguments of a tool without arguments.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

/// The schema of a type for models: one document, without keywords that only other programs need.
fn schema_of<A: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = Json::from(settings.into_generator().into_root_schema_for::<A>());
    let Json::Object(mut schema) = schema else { return with_object_type(Json::Object(Map::new())) };
    schema.shift_remove("title");
    with_object_type(Json::Object(schema))
}

/// Deserialises the arguments. They match the schema, but a type may be stricter. `Err`: which field is invalid and
/// why, for the model.
pub(super) fn deserialize_arguments<A: DeserializeOwned>(arguments: Json) -> Result<A, String> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let location = if path == "." { "arguments" } else { &path };
        render_message(ToolMessage::InvalidValue, &[("at", &location), ("message", error.inner())])
    })
}

/// The outcome of a typed result.
fn outcome_of<T: Serialize>(tool: &str, result: Result<T, ToolError>) -> ToolOutcome {
    let value = match result {
        Ok(value) => serde_json::to_value(value),
        Err(error) => return error.into_outcome(tool),
    };
    ToolOutcome::Done(match value {
        Ok(Json::Null) => ToolOutput::default(),
        Ok(Json::String(text)) => ToolOutput::text(text),
        Ok(value) => ToolOutput::structured(value),
        // The effect happened; only the result is lost.
        Err(error) => ToolOutput { unusable: Some(error.to_string()), ..ToolOutput::default() },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use serde_json::json;

    use super::*;
    use crate::fixture::{context, log_of};

    /// A town and a day.
    #[derive(Deserialize, JsonSchema)]
    struct Args {
        /// Name of the town
        place: String,
        #[serde(default)]
        day: Option<Day>,
    }

    #[derive(Deserialize, JsonSchema, Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Day {
        Today,
        Tomorrow,
    }

    fn forecast() -> Tool {
        Tool::new("forecast", "Tells the weather", |args: Args, _| async move {
            let number: i64 = if args.place == "Oslo" { "no number".parse()? } else { 7 };
            Ok(json!({"place": args.place, "day": args.day, "sky": number}))
        })
    }

    #[test]
    fn the_argument_type_determines_the_schema() {
        let tool = forecast().effect(EffectClass::Read);
        assert_eq!((&*tool.info().name, tool.info().effect), ("forecast", EffectClass::Read));
        let schema = &tool.info().parameters;
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["description"], "A town and a day.");
        assert_eq!(schema["properties"]["place"], json!({"description": "Name of the town", "type": "string"}));
        assert_eq!(schema["required"], json!(["place"]));
        assert!(!schema.to_string().contains("$ref"), "the schema has no references: {schema}");
        assert!(tool.argument_check().unwrap().problems(&json!({"place": "Bergen", "day": "tomorrow"})).is_empty());
        assert!(!tool.argument_check().unwrap().problems(&json!({"place": 7})).is_empty());
        let none = Tool::new("now", "Tells the time", |_: NoArguments, _| async { Ok("noon") });
        assert!(none.argument_check().unwrap().problems(&json!({})).is_empty());
        let any = Tool::new("any", "Takes anything", |args: Json, _| async { Ok(args) });
        assert_eq!(any.info().parameters["type"], "object");
    }

    #[tokio::test]
    async fn results_are_structured_text_or_empty() {
        let outcome = forecast().call(json!({"place": "Bergen", "day": "today"}), &context()).await;
        let expected = json!({"place": "Bergen", "day": "today", "sky": 7});
        assert_eq!(outcome, ToolOutcome::Done(ToolOutput::structured(expected)));
        let text = Tool::new("now", "Tells the time", |_: NoArguments, _| async { Ok("noon") });
        assert_eq!(text.call(json!({}), &context()).await, ToolOutcome::Done(ToolOutput::text("noon")));
        let nothing = Tool::new("wait", "Waits", |_: NoArguments, _| async { Ok(()) });
        assert_eq!(nothing.call(json!({}), &context()).await, ToolOutcome::Done(ToolOutput::default()));
    }

    #[tokio::test]
    async fn errors_are_failures_whose_cause_is_hidden_from_the_model() {
        let call = async {
            let outcome = forecast().call(json!({"place": "Oslo"}), &context()).await;
            let ToolOutcome::Failed(failure) = &outcome else { panic!("{outcome:?}") };
            assert_eq!(failure.kind, FailureKind::ToolError);
            assert_eq!(failure.detail.as_deref(), Some("invalid digit found in string"));
            assert_eq!(outcome.for_model(), "error[tool_error]: It failed, and the reason is for the operators.");
        };
        let log = log_of(call).await;
        assert!(log.contains("a tool failed") && log.contains("tool=\"forecast\""), "{log}");
        assert!(log.contains("invalid digit found in string"), "{log}");
    }

    #[tokio::test]
    async fn deserialization_errors_name_the_field() {
        #[derive(Deserialize, JsonSchema)]
        struct Payment {
            #[schemars(with = "Vec<String>")]
            amounts: Vec<u64>,
        }
        let pay = Tool::new("pay", "Pays", |payment: Payment, _| async move { Ok(payment.amounts.len()) });
        assert!(pay.argument_check().unwrap().problems(&json!({"amounts": ["much"]})).is_empty());
        let outcome = pay.call(json!({"amounts": ["much"]}), &context()).await.for_model();
        let expected = "error[bad_arguments]: The arguments do not fit. `amounts[0]`: invalid type: string \"much\"";
        assert!(outcome.starts_with(expected), "{outcome}");
    }

    #[tokio::test]
    async fn may_have_happened_is_an_unknown_outcome() {
        let tool = Tool::new("pay", "Pays", |_: NoArguments, _| async {
            let lost = |error| ToolError::may_have_happened("The bank did not answer.").code("B7").detail(error);
            "x".parse::<i64>().map_err(lost)
        });
        let outcome = tool.call(json!({}), &context()).await;
        let ToolOutcome::Unknown(failure) = &outcome else { panic!("{outcome:?}") };
        assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some("B7"), "The bank did not answer."));
        assert!(outcome.for_model().starts_with("unknown[unavailable]: The bank did not answer. "), "{outcome:?}");
    }

    #[test]
    fn a_tool_with_an_invalid_schema_is_excluded_with_the_reason() {
        let bad = Tool::with_schema("bad", "", json!({"type": "text"}), |_, _| async { Ok(()) });
        let set = crate::tool_set::ToolSet::builder().tool(Arc::new(bad)).build();
        assert!(set.entries().is_empty());
        assert!(set.excluded().first().is_some_and(|(name, reason)| name == "bad" && reason.contains("object")));
    }
}
