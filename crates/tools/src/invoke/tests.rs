//! Tests of tool calls: limits of time and size, and the outcome when a limit is reached.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use std::{
    future::pending,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use super::*;
use crate::{Tool, ToolInfo, ToolOutput, fixture::context};
use segue_base::{clock::Clock as _, manual_clock::ManualClock};

fn tool_set<F, A>(effect: EffectClass, run: F) -> ToolSet
where
    F: Fn(Json, ToolCallContext) -> A + Send + Sync + 'static,
    A: Future<Output = ToolOutcome> + Send + 'static,
{
    let info = ToolInfo::new("it", "")
        .parameters(json!({"type": "object", "properties": {"n": {"type": "integer"}}}))
        .effect(effect);
    ToolSet::builder().tool(Arc::new(Tool::from_fn(info, run))).build()
}

fn status_and_kind(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
    match outcome {
        ToolOutcome::Failed(failure) => ("failed", failure.kind),
        ToolOutcome::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

#[tokio::test(start_paused = true)]
async fn unknown_tools_and_bad_arguments_never_reach_a_tool() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let set = tool_set(EffectClass::Read, move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::ready(ToolOutcome::Done(ToolOutput::text("ok")))
    });
    let outcome = invoke(&set, "It", json!({}), &context(), TIMEOUT).await;
    assert_eq!(outcome.for_model(), "error[unknown_tool]: There is no tool named `It`. The tools are: it.");
    let outcome = invoke(&set, "it", json!({"n": "1"}), &context(), TIMEOUT).await;
    assert!(outcome.for_model().starts_with("error[bad_arguments]: The arguments do not fit. `/n`:"));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(matches!(invoke(&set, "it", json!({"n": 1}), &context(), TIMEOUT).await, ToolOutcome::Done(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn timeout_outcome_depends_on_the_effect_class() {
    for (effect, expected) in
        [(EffectClass::Read, "failed"), (EffectClass::Idempotent, "failed"), (EffectClass::Write, "unknown")]
    {
        let set = tool_set(effect, |_, _| pending());
        let outcome = invoke(&set, "it", json!({}), &context(), Some(Duration::from_millis(300))).await;
        assert_eq!(status_and_kind(&outcome), (expected, FailureKind::Timeout));
        assert!(outcome.for_model().contains("within 0.3 s"), "{}", outcome.for_model());
    }
}

#[tokio::test(start_paused = true)]
async fn default_idle_timeout_applies_with_grace() {
    let (set, cx) = (tool_set(EffectClass::Read, |_, _| pending()), context());
    let before = cx.cx.clock.elapsed();
    let outcome = invoke(&set, "it", json!({}), &cx, None).await;
    assert_eq!(status_and_kind(&outcome), ("failed", FailureKind::Timeout));
    let (took, expected) = (cx.cx.clock.elapsed() - before, limits::TOOL_DEADLINE + limits::TOOL_GRACE);
    assert!(took >= expected && took < expected + Duration::from_millis(100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn cancellation_stops_a_read_but_not_a_running_write() {
    for (effect, finishes) in [(EffectClass::Read, false), (EffectClass::Write, true)] {
        let cx = context();
        let cancel = cx.cx.cancel.clone();
        let set = tool_set(effect, move |_, call_context: ToolCallContext| {
            cancel.cancel();
            async move {
                tokio::task::yield_now().await;
                assert_eq!(call_context.cx.cancel.is_cancelled(), call_context.idempotency_key.is_empty() || !finishes);
                ToolOutcome::Done(ToolOutput::text("ok"))
            }
        });
        let outcome = invoke(&set, "it", json!({}), &cx, TIMEOUT).await;
        if finishes {
            assert!(matches!(outcome, ToolOutcome::Done(_)));
        } else {
            assert_eq!(status_and_kind(&outcome), ("failed", FailureKind::Cancelled));
        }
        let outcome = invoke(&set, "it", json!({}), &cx, TIMEOUT).await;
        assert_eq!(
            status_and_kind(&outcome),
            ("failed", FailureKind::Cancelled),
            "a call after the cancellation is not started"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_tool_sees_the_timeout_as_its_deadline_and_may_report_within_the_grace() {
    let set = tool_set(EffectClass::Write, |_, call_context: ToolCallContext| async move {
        assert!(call_context.cx.remaining() <= Duration::from_millis(200));
        call_context.cx.wait(pending::<()>()).await.unwrap_err();
        ToolOutcome::Done(ToolOutput::text("reported"))
    });
    let outcome = invoke(&set, "it", json!({}), &context(), Some(Duration::from_millis(200))).await;
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
}

#[tokio::test]
async fn increasing_progress_extends_the_idle_timeout_but_not_the_total_timeout() {
    const SECOND: Duration = Duration::from_secs(1);
    // The number of progress notifications, the increase per notification, and the expected outcome.
    for (notifications, increase, expected) in [(20, 1.0, "done"), (20, 0.0, "11 s"), (200, 1.0, "45 s")] {
        let clock = ManualClock::new();
        let time = clock.clone();
        let set = tool_set(EffectClass::Read, move |_, call_context: ToolCallContext| {
            let time = time.clone();
            async move {
                for n in 0..notifications {
                    time.advance(SECOND);
                    call_context.progress.as_ref().unwrap()(Progress {
                        current: f64::from(n) * increase,
                        total: None,
                        message: None,
                    });
                    tokio::task::yield_now().await;
                    if call_context.cx.remaining().is_zero() {
                        return ToolOutcome::failed(FailureKind::Timeout, format!("{:?}", time.elapsed()));
                    }
                }
                ToolOutcome::Done(ToolOutput::text("done"))
            }
        });
        let cx = ToolCallContext { cx: clock.context(1_000 * SECOND), ..context() };
        let outcome = invoke(&set, "it", json!({}), &cx, TIMEOUT).await.for_model();
        let without_space = expected.replace(' ', "");
        assert!(
            outcome.contains(expected) || outcome.contains(&without_space),
            "{notifications} {increase}: {outcome}"
        );
    }
}

#[tokio::test]
async fn timeout_after_progress_reports_the_elapsed_time() {
    let clock = ManualClock::new();
    let time = clock.clone();
    let set = tool_set(EffectClass::Write, move |_, call_context: ToolCallContext| {
        time.advance(Duration::from_secs(8));
        call_context.progress.as_ref().unwrap()(Progress { current: 1.0, total: None, message: None });
        pending()
    });
    let cx = ToolCallContext { cx: clock.context(Duration::from_secs(100)), ..context() };
    let mut call = std::pin::pin!(invoke(&set, "it", json!({}), &cx, TIMEOUT));
    assert!(futures::poll!(&mut call).is_pending());
    clock.advance(Duration::from_secs(10));
    assert!(futures::poll!(&mut call).is_pending(), "the grace");
    clock.advance(limits::TOOL_GRACE);
    let outcome = call.await;
    assert_eq!(status_and_kind(&outcome), ("unknown", FailureKind::Timeout));
    assert!(outcome.for_model().contains("within 18 s"), "{}", outcome.for_model());
}

#[tokio::test(start_paused = true)]
async fn results_beyond_the_size_limit_are_unusable() {
    let set = tool_set(EffectClass::Read, |_, _| async {
        ToolOutcome::Done(ToolOutput::text("x".repeat(limits::TOOL_RAW_RESULT)))
    });
    let outcome = invoke(&set, "it", json!({}), &context(), TIMEOUT).await;
    assert_eq!(status_and_kind(&outcome), ("failed", FailureKind::BadResult));
    let set = tool_set(EffectClass::Write, |_, _| async {
        ToolOutcome::Done(ToolOutput::text("x".repeat(limits::TOOL_RAW_RESULT)))
    });
    let outcome = invoke(&set, "it", json!({}), &context(), TIMEOUT).await;
    let ToolOutcome::Done(output) = outcome else { panic!("a write with an unusable result is done: {outcome:?}") };
    assert!(output.unusable.is_some() && output.content.is_empty());
}

#[test]
fn idempotency_key_depends_on_conversation_turn_step_and_seed() {
    let context_of = |step: &str, seed: u64| segue_base::context::CallContext {
        key: segue_base::context::StepKey::new(step),
        seed,
        ..context().cx
    };
    let cx = context_of("booking/2/tool.0", 5);
    let key = idempotency_key("c", 3, &cx);
    assert_eq!(key, idempotency_key("c", 3, &context_of("booking/2/tool.0", 5)));
    assert_eq!(key.len(), 32);
    let others = [
        idempotency_key("c", 4, &cx),
        idempotency_key("d", 3, &cx),
        idempotency_key("c3", 3, &cx),
        idempotency_key("c", 3, &context_of("booking/2/tool.1", 5)),
        idempotency_key("c", 3, &context_of("booking/2/tool.0", 6)),
    ];
    for other in others {
        assert_ne!(key, other);
    }
}
