#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use async_trait::async_trait;
use segue_base::{limits, manual_clock::ManualClock};

use super::*;
use crate::{
    ChatMessage, Purpose,
    scripted::{ScriptedCall, ScriptedLlm, StrictLlm},
};

fn strict(steps: Vec<ScriptedCall>) -> Arc<StrictLlm> {
    Arc::new(ScriptedLlm::strict(steps))
}

fn group(models: &[Arc<StrictLlm>]) -> Router {
    with(models, RouterConfig::default())
}

fn with(models: &[Arc<StrictLlm>], config: RouterConfig) -> Router {
    let mut members = models.iter().map(|model| member(model.clone()));
    Router::new(members.next().unwrap(), members.collect(), config, RetryPolicy::default(), 7)
}

fn member(model: Arc<dyn Llm>) -> GroupMember {
    GroupMember { model, max_attempts: 2, limits: MemberLimits::default(), rate_limit: RateLimit::default() }
}

/// A request whose text is streamed to the user.
fn hello() -> ChatRequest {
    ChatRequest { streamed_to_user: true, ..ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]) }
}

/// Calls a group of `models`, and checks that all expected calls came. Returns the result and the waits.
async fn call(models: &[Arc<StrictLlm>]) -> (Result<String, LlmError>, Vec<Duration>) {
    let clock = ManualClock::auto_advancing();
    let cx = clock.context(Duration::from_secs(3600));
    let end = match group(models).chat(hello(), &cx).await {
        Ok(stream) => stream.finish().await.map(|answer| answer.text.to_string()),
        Err(error) => Err(error),
    };
    for model in models {
        model.verify().unwrap();
    }
    let slept = clock.slept();
    (end, slept)
}

const LIMITED: LlmErrorKind = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(2)) };

#[tokio::test]
async fn without_failures_only_the_first_model_is_called() {
    let models = [strict(vec!["hi".into()]), strict(vec![])];
    assert_eq!(call(&models).await, (Ok("hi".into()), vec![]));
}

#[tokio::test]
async fn a_retryable_error_is_retried_after_retry_after() {
    let (end, slept) = call(&[strict(vec![LIMITED.into(), "hi".into()])]).await;
    assert_eq!(end.unwrap(), "hi");
    assert_eq!(slept, [Duration::from_secs(2)]);
}

#[tokio::test]
async fn after_its_attempts_the_next_model_is_called() {
    let models = [strict(vec![LIMITED.into(), LIMITED.into()]), strict(vec!["hi".into()])];
    assert_eq!(call(&models).await.0.unwrap(), "hi");
    let models = [strict(vec![LIMITED.into(), LIMITED.into()])];
    assert_eq!(call(&models).await.0.unwrap_err().kind, LIMITED);
}

#[tokio::test]
async fn errors_that_allow_fallback_go_to_the_next_model_at_once() {
    for kind in [
        LlmErrorKind::QuotaExhausted,
        LlmErrorKind::NotFound,
        LlmErrorKind::FirstTokenTimeout,
        LlmErrorKind::IdleTimeout,
    ] {
        let models = [strict(vec![kind.into()]), strict(vec!["hi".into()])];
        assert_eq!(call(&models).await, (Ok("hi".into()), vec![]));
    }
}

#[tokio::test]
async fn errors_that_the_caller_must_fix_are_returned_at_once() {
    for kind in [LlmErrorKind::BadRequest, LlmErrorKind::ContextLengthExceeded, LlmErrorKind::ContentFilter] {
        let models = [strict(vec![kind.clone().into()]), strict(vec![])];
        assert_eq!(call(&models).await.0.unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn after_streamed_text_nothing_is_retried() {
    let models = [strict(vec![ScriptedCall::failing_after("Hel", LlmErrorKind::Truncated)]), strict(vec![])];
    assert_eq!(call(&models).await, (Err(LlmErrorKind::Truncated.into()), vec![]));
}

#[tokio::test]
async fn text_that_is_not_streamed_is_retried_and_comes_as_one_delta() {
    let model = strict(vec![ScriptedCall::failing_after("Hel", LlmErrorKind::Truncated), "Hello.".into()]);
    let cx = ManualClock::auto_advancing().context(Duration::from_secs(60));
    let request = ChatRequest { streamed_to_user: false, ..hello() };
    let mut stream = group(std::slice::from_ref(&model)).chat(request, &cx).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(Delta::Text("Hello.".into()))), "no text of the first attempt");
    assert!(matches!(stream.next().await, Some(Ok(Delta::Done(_)))));
    model.verify().unwrap();
}

#[tokio::test]
async fn a_stream_that_fails_before_any_text_is_retried() {
    struct FailingOnce(StrictLlm);
    #[async_trait]
    impl Llm for FailingOnce {
        fn profile(&self) -> &ModelProfile {
            self.0.profile()
        }
        async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
            if self.0.requests().is_empty() {
                self.0.chat(request, cx).await?;
                let began = Delta::ToolCallStarted { index: 0, name: "pay".into() };
                return Ok(ChatStream::new(futures::stream::iter([Ok(began), Err(LlmErrorKind::Truncated.into())])));
            }
            self.0.chat(request, cx).await
        }
    }
    let model = Arc::new(FailingOnce(ScriptedLlm::strict(["lost", "hi"])));
    let clock = ManualClock::auto_advancing();
    let router = Router::new(member(model.clone()), vec![], RouterConfig::default(), RetryPolicy::default(), 7);
    let stream = router.chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap();
    assert_eq!(&*stream.finish().await.unwrap().text, "hi");
    model.0.verify().unwrap();
}

#[tokio::test]
async fn cancelling_ends_the_wait_before_a_retry() {
    let models = [strict(vec![LIMITED.into()])];
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(60));
    let router = group(&models);
    let (end, ()) = tokio::join!(router.chat(hello(), &cx), async {
        while clock.slept().is_empty() {
            tokio::task::yield_now().await;
        }
        cx.cancel.cancel();
    });
    assert_eq!(end.unwrap_err().kind, LlmErrorKind::Cancelled);
}

const FAILING: LlmErrorKind = LlmErrorKind::Overloaded { after: None };

fn steps(kind: &LlmErrorKind, times: usize) -> Vec<ScriptedCall> {
    (0..times).map(|_| kind.clone().into()).collect()
}

/// Calls the group once at the present time of the clock.
async fn call_once(router: &Router, clock: &ManualClock) -> Result<Arc<ChatResponse>, LlmError> {
    match router.chat(hello(), &clock.context(Duration::from_secs(3600))).await {
        Ok(stream) => stream.finish().await,
        Err(error) => Err(error),
    }
}

#[tokio::test]
async fn repeated_failures_open_the_circuit_and_one_probe_closes_it() {
    let fails: Vec<ScriptedCall> =
        steps(&FAILING, limits::MODEL_FAILURES + 1).into_iter().chain(["back".into(), "well".into()]).collect();
    let models = [strict(fails), strict(vec!["2"; 10].into_iter().map(ScriptedCall::from).collect())];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let mut answers = Vec::new();
    // Two attempts per call: the fifth failure comes in the third call.
    for _ in 0..5 {
        answers.push(call_once(&router, &clock).await.unwrap().text.to_string());
    }
    assert_eq!(answers, ["2"; 5]);
    assert_eq!(models[0].requests().len(), limits::MODEL_FAILURES, "then it is not called");
    clock.advance(limits::MODEL_COOLDOWN);
    // Half open: one call probes the member, and its failure opens the circuit again at once.
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    assert_eq!(models[0].requests().len(), limits::MODEL_FAILURES + 1);
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    assert_eq!(models[0].requests().len(), limits::MODEL_FAILURES + 1);
    clock.advance(limits::MODEL_COOLDOWN);
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "back");
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "well", "closed again");
}

#[tokio::test]
async fn old_failures_do_not_open_the_circuit() {
    let models = [strict(steps(&FAILING, 2 * limits::MODEL_FAILURES))];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    for _ in 0..limits::MODEL_FAILURES {
        assert_eq!(call_once(&router, &clock).await.unwrap_err().kind, FAILING);
        clock.advance(limits::MODEL_FAILURE_WINDOW);
    }
    models[0].verify().unwrap();
}

#[tokio::test]
async fn a_group_with_open_circuits_only_fails_at_once_with_retry_after() {
    let config =
        RouterConfig { allowed_fails: Some(1), cooldown: Some(Duration::from_secs(20)), ..RouterConfig::default() };
    let models = [strict(vec![FAILING.into()]), strict(vec![FAILING.into()])];
    let router = with(&models, config);
    let clock = ManualClock::auto_advancing();
    assert_eq!(call_once(&router, &clock).await.unwrap_err().kind, FAILING);
    clock.advance(Duration::from_secs(5));
    let error = call_once(&router, &clock).await.unwrap_err();
    assert!(
        matches!(error.kind, LlmErrorKind::Overloaded { after: Some(after) } if after <= Duration::from_secs(15)),
        "{error:?}"
    );
    models.iter().for_each(|model| model.verify().unwrap());
}

#[tokio::test]
async fn an_exhausted_quota_opens_the_circuit_for_long() {
    let models =
        [strict(vec![LlmErrorKind::QuotaExhausted.into(), "paid".into()]), strict(vec!["2".into(), "2".into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    clock.advance(limits::MODEL_COOLDOWN_QUOTA - Duration::from_secs(1));
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    clock.advance(Duration::from_secs(1));
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "paid");
}

/// A rate limit that one call gets delays the other calls as well.
#[tokio::test]
async fn a_rate_limit_holds_for_all_calls_of_the_group() {
    let limited = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(4)) };
    let models = [strict(vec![limited.clone().into(), limited.into(), "hi".into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    assert!(call_once(&router, &clock).await.is_err(), "both attempts of the first call");
    let earlier_waits = clock.slept().len();
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "hi");
    assert_eq!(
        clock.slept()[earlier_waits..],
        [Duration::from_secs(4)],
        "the second call waits before its first attempt"
    );
    models[0].verify().unwrap();
}

#[tokio::test]
async fn a_success_that_began_earlier_does_not_end_a_rate_limit() {
    let limited = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(20)) };
    let models = [strict(vec!["early".into(), limited.clone().into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let early = router.chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap();
    clock.advance(Duration::from_secs(1));
    assert!(call_once(&router, &clock).await.is_err());
    clock.advance(Duration::from_secs(1));
    assert_eq!(&*early.finish().await.unwrap().text, "early");
    let after = Some(Duration::from_secs(19));
    assert_eq!(call_once(&router, &clock).await.unwrap_err().kind, LlmErrorKind::RateLimited { after });
    models[0].verify().unwrap();
}

#[tokio::test]
async fn a_success_that_began_earlier_does_not_close_the_circuit() {
    let fails = std::iter::once("early".into()).chain(steps(&FAILING, limits::MODEL_FAILURES));
    let models = [strict(fails.collect()), strict(vec!["2"; 4].into_iter().map(ScriptedCall::from).collect())];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let early = router.chat(hello(), &clock.context(Duration::from_secs(600))).await.unwrap();
    clock.advance(Duration::from_millis(1));
    for _ in 0..3 {
        assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    }
    assert_eq!(&*early.finish().await.unwrap().text, "early");
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    models.iter().for_each(|model| model.verify().unwrap());
}

#[tokio::test]
async fn a_rate_limit_that_is_too_long_is_returned_without_waiting() {
    let limited = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(40)) };
    let models = [strict(vec![limited.into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    assert!(call_once(&router, &clock).await.is_err());
    let error = call_once(&router, &clock).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::RateLimited { after: Some(Duration::from_secs(40)) });
    assert_eq!(clock.slept().len(), 0);
}

#[tokio::test]
async fn num_retries_of_a_group_counts_attempts_of_all_members() {
    let config = RouterConfig { num_retries: Some(1), ..RouterConfig::default() };
    let models = [strict(vec![LIMITED.into(), FAILING.into()]), strict(vec![])];
    let router = with(&models, config);
    assert_eq!(call_once(&router, &ManualClock::auto_advancing()).await.unwrap_err().kind, FAILING);
    models.iter().for_each(|model| model.verify().unwrap());
}

#[tokio::test]
async fn a_response_has_routing_and_cost() {
    let usage = crate::Usage { input: 100, output: 10, ..Default::default() };
    let answer = || ChatResponse { usage, ..ChatResponse::text("hi") };
    let priced = |model: Arc<StrictLlm>, input: f64| {
        let extra = serde_json::json!({"input_cost_per_token": input, "output_cost_per_token": 1e-5});
        let config = crate::ModelConfig { extra: extra.as_object().unwrap().clone(), ..Default::default() };
        GroupMember { limits: MemberLimits::from_config(&config), ..member(model) }
    };
    let models = [strict(vec![LlmErrorKind::NotFound.into()]), strict(vec![answer().into()])];
    let others = vec![priced(models[1].clone(), 1e-6)];
    let router =
        Router::new(priced(models[0].clone(), 1.0), others, RouterConfig::default(), RetryPolicy::default(), 7);
    let response = call_once(&router, &ManualClock::auto_advancing()).await.unwrap();
    let routing = response.routing.as_ref().unwrap();
    assert_eq!((routing.member, routing.attempts), (1, 2));
    assert_eq!(response.usage.cost, Some(2e-4));
    // A group of one model without prices returns the response unchanged.
    let alone = [strict(vec![answer().into()])];
    let response = call_once(&with(&alone, RouterConfig::default()), &ManualClock::auto_advancing()).await.unwrap();
    assert_eq!(*response, answer());
}

#[tokio::test]
async fn an_abandoned_call_counts_neither_as_success_nor_as_failure() {
    let config =
        RouterConfig { allowed_fails: Some(1), strategy: RoutingStrategy::LeastBusy, ..RouterConfig::default() };
    let models = [strict(vec![FAILING.into(), "lost".into(), "hi".into()]), strict(vec!["2".into()])];
    let router = with(&models, config);
    let clock = ManualClock::auto_advancing();
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "2");
    clock.advance(limits::MODEL_COOLDOWN);
    let probe = router.chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap();
    drop(probe);
    assert_eq!(&*call_once(&router, &clock).await.unwrap().text, "hi", "the next call probes the member");
}

#[tokio::test]
async fn a_fallback_group_is_called_when_a_group_fails() {
    let script = |rules: &str| {
        let source = crate::ScriptSource::Text { name: "s.yml".into(), text: rules.into() };
        crate::ModelConfig { provider: "scripted".into(), source: Some(source), ..Default::default() }
    };
    let environment = crate::LlmEnvironment::default();
    let open =
        |rules: [&str; 2]| crate::open_group(&rules.map(script), &RouterConfig::default(), &environment).unwrap();
    let failing = open(["rules: [{fail: {status: 500}}]", "rules: [{fail: {status: 404}}]"]);
    let with_fallback = crate::with_fallback_groups(
        failing,
        &[open(["rules: [{say: third}]", "rules: [{say: fourth}]"])],
        &environment,
    );
    let stream =
        with_fallback.chat(hello(), &ManualClock::auto_advancing().context(Duration::from_secs(60))).await.unwrap();
    assert_eq!(&*stream.finish().await.unwrap().text, "third");
}

#[tokio::test]
async fn a_request_over_the_context_window_is_shortened_and_retried_once() {
    let models = [strict(vec![
        LlmErrorKind::ContextLengthExceeded.into(),
        "hi".into(),
        LlmErrorKind::ContextLengthExceeded.into(),
    ])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let mut request = hello();
    request.messages = vec![ChatMessage::user("old"), ChatMessage::assistant("old"), ChatMessage::user("new")];
    let stream = router.chat(request, &clock.context(Duration::from_secs(60))).await.unwrap();
    let answer = stream.finish().await.unwrap();
    assert!(answer.routing.as_ref().is_some_and(|routing| routing.shortened && routing.attempts == 2), "{answer:?}");
    let sizes: Vec<usize> = models[0].requests().iter().map(|request| request.messages.len()).collect();
    assert_eq!(sizes, [3, 2]);
    // A request without removable content fails at once.
    assert_eq!(call_once(&router, &clock).await.unwrap_err().kind, LlmErrorKind::ContextLengthExceeded);
    models[0].verify().unwrap();
}

#[tokio::test]
async fn groups_with_one_account_and_model_share_the_wait_that_the_provider_asked_for() {
    let limits = RateLimits::default();
    let of = |key: &str, model: &str| {
        let api_key = Some(segue_base::secret::Secret::new(key));
        limits.of(&crate::ModelConfig { api_key, model: model.into(), ..crate::ModelConfig::default() })
    };
    let group = |model: &Arc<StrictLlm>, rate_limit: RateLimit| {
        let member = GroupMember { rate_limit, ..member(model.clone()) };
        Router::new(member, vec![], RouterConfig::default(), RetryPolicy::default(), 7)
    };
    let wait = Duration::from_secs(30);
    let limited = strict(vec![LlmErrorKind::RateLimited { after: Some(wait) }.into()]);
    let [same, other_key, other_model] = [vec!["later".into()], vec!["hi".into()], vec!["hi".into()]].map(strict);
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(3600));
    let ask = async |group: &Router| match group.chat(hello(), &cx).await {
        Ok(stream) => stream.finish().await.map(|answer| answer.text.to_string()),
        Err(error) => Err(error),
    };
    let kind = |answer: Result<String, LlmError>| answer.unwrap_err().kind;
    assert_eq!(kind(ask(&group(&limited, of("a", "m"))).await), LlmErrorKind::RateLimited { after: Some(wait) });
    let shared = group(&same, of("a", "m"));
    clock.advance(Duration::from_secs(10));
    let left = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(20)) };
    assert_eq!(kind(ask(&shared).await), left, "it is not called");
    assert_eq!(ask(&group(&other_key, of("b", "m"))).await, Ok("hi".into()));
    assert_eq!(ask(&group(&other_model, of("a", "n"))).await, Ok("hi".into()));
    clock.advance(Duration::from_secs(20));
    assert_eq!(ask(&shared).await, Ok("later".into()));
}
