//! Calls bounded in time and size, and what is known of them afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use std::{
    future::pending,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use super::*;
use crate::{Tool, ToolInfo, ToolOutput, fixture::context};
use segue_base::{clock::Clock as _, manual_clock::ManualClock};

fn one<F, A>(effect: EffectClass, run: F) -> ToolSet
where
    F: Fn(Json, ToolCallContext) -> A + Send + Sync + 'static,
    A: Future<Output = ToolOutcome> + Send + 'static,
{
    let spec = ToolInfo::new("it", "")
        .parameters(json!({"type": "object", "properties": {"n": {"type": "integer"}}}))
        .effect(effect);
    ToolSet::builder().own(Arc::new(Tool::from_fn(spec, run))).build()
}

fn kind(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
    match outcome {
        ToolOutcome::Failed(failure) => ("failed", failure.kind),
        ToolOutcome::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

const LIMIT: Option<Duration> = Some(Duration::from_secs(10));

#[tokio::test(start_paused = true)]
async fn unknown_tools_and_bad_arguments_never_reach_a_tool() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let set = one(EffectClass::Read, move |_, _| {
        seen.fetch_add(1, Ordering::SeqCst);
        std::future::ready(ToolOutcome::Done(ToolOutput::text("ok")))
    });
    let outcome = invoke(&set, "It", json!({}), &context(), LIMIT).await;
    assert_eq!(outcome.for_model(), "error[unknown_tool]: There is no tool named `It`. The tools are: it.");
    let outcome = invoke(&set, "it", json!({"n": "1"}), &context(), LIMIT).await;
    assert!(outcome.for_model().starts_with("error[bad_arguments]: The arguments do not fit. `/n`:"));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(matches!(invoke(&set, "it", json!({"n": 1}), &context(), LIMIT).await, ToolOutcome::Done(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_by_its_effect_class() {
    for (effect, expected) in
        [(EffectClass::Read, "failed"), (EffectClass::Idempotent, "failed"), (EffectClass::Write, "unknown")]
    {
        let set = one(effect, |_, _| pending());
        let outcome = invoke(&set, "it", json!({}), &context(), Some(Duration::from_millis(300))).await;
        assert_eq!(kind(&outcome), (expected, FailureKind::Timeout));
        assert!(outcome.for_model().contains("within 0.3 s"), "{}", outcome.for_model());
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_of_its_own_a_call_ends_after_the_usual_one_and_the_grace() {
    let (set, cx) = (one(EffectClass::Read, |_, _| pending()), context());
    let before = cx.cx.clock.elapsed();
    let outcome = invoke(&set, "it", json!({}), &cx, None).await;
    assert_eq!(kind(&outcome), ("failed", FailureKind::Timeout));
    let (took, expected) = (cx.cx.clock.elapsed() - before, limits::TOOL_DEADLINE + limits::TOOL_GRACE);
    assert!(took >= expected && took < expected + Duration::from_millis(100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn cancelling_stops_a_read_and_spares_a_running_write() {
    for (effect, finishes) in [(EffectClass::Read, false), (EffectClass::Write, true)] {
        let cx = context();
        let cancel = cx.cx.cancel.clone();
        let set = one(effect, move |_, inner: ToolCallContext| {
            cancel.cancel();
            async move {
                tokio::task::yield_now().await;
                assert_eq!(inner.cx.cancel.is_cancelled(), inner.idempotency_key.is_empty() || !finishes);
                ToolOutcome::Done(ToolOutput::text("ok"))
            }
        });
        let outcome = invoke(&set, "it", json!({}), &cx, LIMIT).await;
        if finishes {
            assert!(matches!(outcome, ToolOutcome::Done(_)));
        } else {
            assert_eq!(kind(&outcome), ("failed", FailureKind::Cancelled));
        }
        let outcome = invoke(&set, "it", json!({}), &cx, LIMIT).await;
        assert_eq!(kind(&outcome), ("failed", FailureKind::Cancelled), "what has not begun does not begin");
    }
}

#[tokio::test(start_paused = true)]
async fn the_tool_sees_the_shorter_deadline_and_may_use_the_grace_to_report() {
    let set = one(EffectClass::Write, |_, inner: ToolCallContext| async move {
        assert!(inner.cx.remaining() <= Duration::from_millis(200));
        inner.cx.wait(pending::<()>()).await.unwrap_err();
        ToolOutcome::Done(ToolOutput::text("reported"))
    });
    let outcome = invoke(&set, "it", json!({}), &context(), Some(Duration::from_millis(200))).await;
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_call_that_tells_how_far_it_is_outlives_its_limit_but_not_the_total() {
    const SECOND: Duration = Duration::from_secs(1);
    // How often it tells, by how much its news grow, and how long it may take at most: what comes of it, after how long.
    for (tells, grows, ends) in [(20, 1.0, "done"), (20, 0.0, "11 s"), (200, 1.0, "45 s")] {
        let clock = ManualClock::new();
        let time = clock.clone();
        let set = one(EffectClass::Read, move |_, inner: ToolCallContext| {
            let time = time.clone();
            async move {
                for n in 0..tells {
                    time.advance(SECOND);
                    inner.progress.as_ref().unwrap()(Progress {
                        done: f64::from(n) * grows,
                        total: None,
                        message: None,
                    });
                    tokio::task::yield_now().await;
                    if inner.cx.remaining().is_zero() {
                        return ToolOutcome::failed(FailureKind::Timeout, format!("{:?}", time.elapsed()));
                    }
                }
                ToolOutcome::Done(ToolOutput::text("done"))
            }
        });
        let cx = ToolCallContext { cx: clock.context(1_000 * SECOND), ..context() };
        let outcome = invoke(&set, "it", json!({}), &cx, LIMIT).await.for_model();
        let seconds = ends.replace(' ', "");
        assert!(outcome.contains(ends) || outcome.contains(&seconds), "{tells} {grows}: {outcome}");
    }
}

#[tokio::test]
async fn a_tool_that_fell_silent_after_news_is_told_with_the_time_it_took() {
    let clock = ManualClock::new();
    let time = clock.clone();
    let set = one(EffectClass::Write, move |_, inner: ToolCallContext| {
        time.advance(Duration::from_secs(8));
        inner.progress.as_ref().unwrap()(Progress { done: 1.0, total: None, message: None });
        pending()
    });
    let cx = ToolCallContext { cx: clock.context(Duration::from_secs(100)), ..context() };
    let mut call = std::pin::pin!(invoke(&set, "it", json!({}), &cx, LIMIT));
    assert!(futures::poll!(&mut call).is_pending());
    clock.advance(Duration::from_secs(10));
    assert!(futures::poll!(&mut call).is_pending(), "the grace");
    clock.advance(limits::TOOL_GRACE);
    let outcome = call.await;
    assert_eq!(kind(&outcome), ("unknown", FailureKind::Timeout));
    assert!(outcome.for_model().contains("within 18 s"), "{}", outcome.for_model());
}

#[tokio::test(start_paused = true)]
async fn answers_beyond_the_cap_are_no_answers() {
    let set = one(EffectClass::Read, |_, _| async {
        ToolOutcome::Done(ToolOutput::text("x".repeat(limits::TOOL_RAW_RESULT)))
    });
    let outcome = invoke(&set, "it", json!({}), &context(), LIMIT).await;
    assert_eq!(kind(&outcome), ("failed", FailureKind::BadResult));
    let set = one(EffectClass::Write, |_, _| async {
        ToolOutcome::Done(ToolOutput::text("x".repeat(limits::TOOL_RAW_RESULT)))
    });
    let outcome = invoke(&set, "it", json!({}), &context(), LIMIT).await;
    let ToolOutcome::Done(output) = outcome else { panic!("what changed something is done: {outcome:?}") };
    assert!(output.unusable.is_some() && output.content.is_empty());
}

#[test]
fn the_key_depends_on_each_part_and_on_nothing_else() {
    let of = |step: &str, seed: u64| segue_base::context::CallContext {
        key: segue_base::context::StepKey::new(step),
        seed,
        ..context().cx
    };
    let cx = of("booking/2/tool.0", 5);
    let key = idempotency_key("c", 3, &cx);
    assert_eq!(key, idempotency_key("c", 3, &of("booking/2/tool.0", 5)));
    assert_eq!(key.len(), 32);
    let others = [
        idempotency_key("c", 4, &cx),
        idempotency_key("d", 3, &cx),
        idempotency_key("c3", 3, &cx),
        idempotency_key("c", 3, &of("booking/2/tool.1", 5)),
        idempotency_key("c", 3, &of("booking/2/tool.0", 6)),
    ];
    for other in others {
        assert_ne!(key, other);
    }
}
