//! `sleep` and `current_time`.

use std::{fmt::Write as _, str::FromStr, time::Duration};

use chrono_tz::Tz;
use segue_base::limits;
use serde::Deserialize;

use super::info;
use crate::{
    EffectClass, FailureKind, Tool, ToolCallContext, ToolOutcome, ToolOutput,
    messages::{ToolMessage, render_message},
    tool::deserialize_arguments,
};

/// Waits.
pub const SLEEP: &str = "sleep";
/// Tells the time.
pub const CURRENT_TIME: &str = "current_time";

/// More than `sleep` may take, so that it is never stopped.
const SLEEP_TIMEOUT: Duration = limits::SLEEP_LONGEST.saturating_add(Duration::from_secs(5));

/// Both tools. They use the clock of the call.
pub fn utils() -> Vec<Tool> {
    let sleep = Tool::from_fn(info(SLEEP, EffectClass::Read), |arguments, context| async move {
        match deserialize_arguments(arguments) {
            Ok(arguments) => sleep(arguments, &context).await,
            Err(problem) => bad_arguments(&problem),
        }
    });
    let time = Tool::from_fn(info(CURRENT_TIME, EffectClass::Read), |arguments, context| async move {
        match deserialize_arguments(arguments) {
            Ok(arguments) => current_time(&arguments, &context),
            Err(problem) => bad_arguments(&problem),
        }
    });
    vec![sleep.timeout(SLEEP_TIMEOUT), time]
}

#[derive(Deserialize)]
struct SleepArguments {
    seconds: f64,
}

async fn sleep(arguments: SleepArguments, context: &ToolCallContext) -> ToolOutcome {
    // The schema has the limits.
    let seconds = arguments.seconds.clamp(0.0, limits::SLEEP_LONGEST.as_secs_f64());
    let clock = &context.cx.clock;
    clock.sleep(clock.deadline(Duration::from_secs_f64(seconds))).await;
    ToolOutcome::Done(ToolOutput::text(render_message(ToolMessage::Slept, &[("seconds", &seconds)])))
}

#[derive(Deserialize)]
struct TimeArguments {
    timezone: Option<String>,
    format: Option<String>,
}

fn current_time(arguments: &TimeArguments, context: &ToolCallContext) -> ToolOutcome {
    let name = arguments.timezone.as_deref().unwrap_or("UTC");
    let Ok(zone) = Tz::from_str(name) else {
        return failed(&render_message(ToolMessage::TimeZoneUnknown, &[("zone", &name)]));
    };
    let now = context.cx.clock.now().to_utc().with_timezone(&zone);
    let Some(format) = arguments.format.as_deref() else {
        return ToolOutcome::Done(ToolOutput::text(now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)));
    };
    let mut text = String::new();
    // Writing fails for a directive that does not exist.
    match write!(text, "{}", now.format(format)) {
        Ok(()) => ToolOutcome::Done(ToolOutput::text(text)),
        Err(_) => failed(&render_message(ToolMessage::TimeFormat, &[("format", &format)])),
    }
}

fn bad_arguments(problem: &str) -> ToolOutcome {
    failed(&render_message(ToolMessage::InvalidArguments, &[("problems", &problem)]))
}

fn failed(message: &str) -> ToolOutcome {
    ToolOutcome::failed(FailureKind::BadArguments, message)
}
