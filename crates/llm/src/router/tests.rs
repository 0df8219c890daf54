#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use segue_base::{limits, manual_clock::ManualClock};

use super::*;
use crate::{
    ChatMessage, Purpose,
    scripted::{ScriptedLlm, Step, StrictLlm},
};

fn strict(steps: Vec<Step>) -> Arc<StrictLlm> {
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
    GroupMember { model, tries: 2, share: Share::default() }
}

/// A request whose answer somebody watches.
fn hello() -> ChatRequest {
    ChatRequest { shown: true, ..ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]) }
}

/// Asks the group, checks that all its steps were used, and gives its end and the waits.
async fn ask(models: &[Arc<StrictLlm>]) -> (Result<String, LlmError>, Vec<Duration>) {
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
async fn the_first_model_answers_alone() {
    let models = [strict(vec!["hi".into()]), strict(vec![])];
    assert_eq!(ask(&models).await, (Ok("hi".into()), vec![]));
}

#[tokio::test]
async fn what_may_be_repeated_is_repeated_after_the_wait_asked_for() {
    let (end, slept) = ask(&[strict(vec![LIMITED.into(), "hi".into()])]).await;
    assert_eq!(end.unwrap(), "hi");
    assert_eq!(slept, [Duration::from_secs(2)]);
}

#[tokio::test]
async fn the_tries_are_counted_and_then_the_next_model_is_asked() {
    let models = [strict(vec![LIMITED.into(), LIMITED.into()]), strict(vec!["hi".into()])];
    assert_eq!(ask(&models).await.0.unwrap(), "hi");
    let models = [strict(vec![LIMITED.into(), LIMITED.into()])];
    assert_eq!(ask(&models).await.0.unwrap_err().kind, LIMITED);
}

#[tokio::test]
async fn what_another_model_may_know_goes_to_it_at_once() {
    for kind in [LlmErrorKind::Quota, LlmErrorKind::NotFound, LlmErrorKind::FirstTokenTimeout, LlmErrorKind::Idle] {
        let models = [strict(vec![kind.into()]), strict(vec!["hi".into()])];
        assert_eq!(ask(&models).await, (Ok("hi".into()), vec![]));
    }
}

#[tokio::test]
async fn what_the_caller_must_mend_comes_back_at_once() {
    for kind in [LlmErrorKind::BadRequest, LlmErrorKind::TooLong, LlmErrorKind::ContentFilter] {
        let models = [strict(vec![kind.clone().into()]), strict(vec![])];
        assert_eq!(ask(&models).await.0.unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn after_text_was_shown_nothing_is_repeated() {
    let models = [strict(vec![Step::broken("Hel", LlmErrorKind::CutShort)]), strict(vec![])];
    assert_eq!(ask(&models).await, (Err(LlmErrorKind::CutShort.into()), vec![]));
}

#[tokio::test]
async fn what_nobody_saw_is_repeated_and_comes_in_one_piece() {
    let model = strict(vec![Step::broken("Hel", LlmErrorKind::CutShort), "Hello.".into()]);
    let cx = ManualClock::auto_advancing().context(Duration::from_secs(60));
    let request = ChatRequest { shown: false, ..hello() };
    let mut stream = group(std::slice::from_ref(&model)).chat(request, &cx).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(Delta::Text("Hello.".into()))), "nothing of the first");
    assert!(matches!(stream.next().await, Some(Ok(Delta::Done(_)))));
    model.verify().unwrap();
}

#[tokio::test]
async fn a_stream_that_breaks_before_any_text_is_asked_again() {
    struct Breaks(StrictLlm);
    impl Llm for Breaks {
        fn profile(&self) -> &ModelProfile {
            self.0.profile()
        }
        fn chat<'a>(
            &'a self,
            request: ChatRequest,
            cx: &'a CallContext,
        ) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
            Box::pin(async move {
                if self.0.requests().is_empty() {
                    self.0.chat(request, cx).await?;
                    let began = Delta::CallBegan { index: 0, name: "pay".into() };
                    return Ok(ChatStream::new(futures::stream::iter([Ok(began), Err(LlmErrorKind::CutShort.into())])));
                }
                self.0.chat(request, cx).await
            })
        }
    }
    let model = Arc::new(Breaks(ScriptedLlm::strict(["lost", "hi"])));
    let clock = ManualClock::auto_advancing();
    let router = Router::new(member(model.clone()), vec![], RouterConfig::default(), RetryPolicy::default(), 7);
    let stream = router.chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap();
    assert_eq!(&*stream.finish().await.unwrap().text, "hi");
    model.0.verify().unwrap();
}

#[tokio::test]
async fn cancelling_ends_the_waiting() {
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

fn steps(kind: &LlmErrorKind, times: usize) -> Vec<Step> {
    (0..times).map(|_| kind.clone().into()).collect()
}

/// Asks once at the clock's time.
async fn once(router: &Router, clock: &ManualClock) -> Result<Arc<ChatResponse>, LlmError> {
    match router.chat(hello(), &clock.context(Duration::from_secs(3600))).await {
        Ok(stream) => stream.finish().await,
        Err(error) => Err(error),
    }
}

#[tokio::test]
async fn who_fails_too_often_is_left_alone_and_tried_again_by_one_call() {
    let fails: Vec<Step> =
        steps(&FAILING, limits::MODEL_FAILURES + 1).into_iter().chain(["back".into(), "well".into()]).collect();
    let models = [strict(fails), strict(vec!["2"; 10].into_iter().map(Step::from).collect())];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let mut answers = Vec::new();
    // Two tries a call: the fifth failure comes in the third call.
    for _ in 0..5 {
        answers.push(once(&router, &clock).await.unwrap().text.to_string());
    }
    assert_eq!(answers, ["2"; 5]);
    assert_eq!(models[0].requests().len(), limits::MODEL_FAILURES, "then nobody asks it");
    clock.advance(limits::MODEL_COOLDOWN);
    // Half open: one call tries it, and its failure shuts it again at once.
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    assert_eq!(models[0].requests().len(), limits::MODEL_FAILURES + 1);
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    assert_eq!(models[0].requests().len(), limits::MODEL_FAILURES + 1);
    clock.advance(limits::MODEL_COOLDOWN);
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "back");
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "well", "closed again");
}

#[tokio::test]
async fn failures_of_long_ago_are_forgotten() {
    let models = [strict(steps(&FAILING, 2 * limits::MODEL_FAILURES))];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    for _ in 0..limits::MODEL_FAILURES {
        assert_eq!(once(&router, &clock).await.unwrap_err().kind, FAILING);
        clock.advance(limits::MODEL_FAILURE_WINDOW);
    }
    models[0].verify().unwrap();
}

#[tokio::test]
async fn a_group_that_is_left_alone_as_a_whole_fails_at_once_and_says_until_when() {
    let config =
        RouterConfig { allowed_fails: Some(1), cooldown: Some(Duration::from_secs(20)), ..RouterConfig::default() };
    let models = [strict(vec![FAILING.into()]), strict(vec![FAILING.into()])];
    let router = with(&models, config);
    let clock = ManualClock::auto_advancing();
    assert_eq!(once(&router, &clock).await.unwrap_err().kind, FAILING);
    clock.advance(Duration::from_secs(5));
    let error = once(&router, &clock).await.unwrap_err();
    assert!(
        matches!(error.kind, LlmErrorKind::Overloaded { after: Some(after) } if after <= Duration::from_secs(15)),
        "{error:?}"
    );
    models.iter().for_each(|model| model.verify().unwrap());
}

#[tokio::test]
async fn an_account_without_quota_is_left_alone_for_long() {
    let models = [strict(vec![LlmErrorKind::Quota.into(), "paid".into()]), strict(vec!["2".into(), "2".into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    clock.advance(limits::MODEL_COOLDOWN_QUOTA - Duration::from_secs(1));
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    clock.advance(Duration::from_secs(1));
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "paid");
}

/// Other turns wait as well when a model asked one of them to (`docs/faults.md` L1).
#[tokio::test]
async fn a_limit_holds_for_all_calls_of_the_group() {
    let limited = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(4)) };
    let models = [strict(vec![limited.clone().into(), limited.into(), "hi".into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    assert!(once(&router, &clock).await.is_err(), "both tries of the first call");
    let begun = clock.slept().len();
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "hi");
    assert_eq!(clock.slept()[begun..], [Duration::from_secs(4)], "the second call waits before it asks");
    models[0].verify().unwrap();
}

#[tokio::test]
async fn an_answer_that_began_earlier_does_not_end_the_wait_that_a_vendor_asked_for() {
    let limited = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(20)) };
    let models = [strict(vec!["early".into(), limited.clone().into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let early = router.chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap();
    clock.advance(Duration::from_secs(1));
    assert!(once(&router, &clock).await.is_err());
    clock.advance(Duration::from_secs(1));
    assert_eq!(&*early.finish().await.unwrap().text, "early");
    let after = Some(Duration::from_secs(19));
    assert_eq!(once(&router, &clock).await.unwrap_err().kind, LlmErrorKind::RateLimited { after });
    models[0].verify().unwrap();
}

#[tokio::test]
async fn an_answer_that_began_earlier_does_not_close_what_failures_opened() {
    let fails = std::iter::once("early".into()).chain(steps(&FAILING, limits::MODEL_FAILURES));
    let models = [strict(fails.collect()), strict(vec!["2"; 4].into_iter().map(Step::from).collect())];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let early = router.chat(hello(), &clock.context(Duration::from_secs(600))).await.unwrap();
    clock.advance(Duration::from_millis(1));
    for _ in 0..3 {
        assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    }
    assert_eq!(&*early.finish().await.unwrap().text, "early");
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    models.iter().for_each(|model| model.verify().unwrap());
}

#[tokio::test]
async fn a_limit_that_is_too_long_to_wait_for_is_told() {
    let limited = LlmErrorKind::RateLimited { after: Some(Duration::from_secs(40)) };
    let models = [strict(vec![limited.into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    assert!(once(&router, &clock).await.is_err());
    let error = once(&router, &clock).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::RateLimited { after: Some(Duration::from_secs(40)) });
    assert_eq!(clock.slept().len(), 0);
}

#[tokio::test]
async fn tries_of_a_group_are_counted_over_all_members() {
    let config = RouterConfig { num_retries: Some(1), ..RouterConfig::default() };
    let models = [strict(vec![LIMITED.into(), FAILING.into()]), strict(vec![])];
    let router = with(&models, config);
    assert_eq!(once(&router, &ManualClock::auto_advancing()).await.unwrap_err().kind, FAILING);
    models.iter().for_each(|model| model.verify().unwrap());
}

#[tokio::test]
async fn an_answer_says_who_gave_it_and_what_it_cost() {
    let usage = crate::Usage { input: 100, output: 10, ..Default::default() };
    let answer = || ChatResponse { usage, ..ChatResponse::text("hi") };
    let priced = |model: Arc<StrictLlm>, input: f64| {
        let extra = serde_json::json!({"input_cost_per_token": input, "output_cost_per_token": 1e-5});
        let config = crate::ModelConfig { extra: extra.as_object().unwrap().clone(), ..Default::default() };
        GroupMember { share: Share::of(&config), ..member(model) }
    };
    let models = [strict(vec![LlmErrorKind::NotFound.into()]), strict(vec![answer().into()])];
    let others = vec![priced(models[1].clone(), 1e-6)];
    let router =
        Router::new(priced(models[0].clone(), 1.0), others, RouterConfig::default(), RetryPolicy::default(), 7);
    let told = once(&router, &ManualClock::auto_advancing()).await.unwrap();
    let route = told.route.as_ref().unwrap();
    assert_eq!((route.member, route.tries), (1, 2));
    assert_eq!(told.usage.cost, Some(2e-4));
    // A model alone and without prices passes its answer on as it is.
    let alone = [strict(vec![answer().into()])];
    let told = once(&with(&alone, RouterConfig::default()), &ManualClock::auto_advancing()).await.unwrap();
    assert_eq!(*told, answer());
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_counts_neither_for_nor_against() {
    let config =
        RouterConfig { allowed_fails: Some(1), strategy: RoutingStrategy::LeastBusy, ..RouterConfig::default() };
    let models = [strict(vec![FAILING.into(), "lost".into(), "hi".into()]), strict(vec!["2".into()])];
    let router = with(&models, config);
    let clock = ManualClock::auto_advancing();
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "2");
    clock.advance(limits::MODEL_COOLDOWN);
    let probe = router.chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap();
    drop(probe);
    assert_eq!(&*once(&router, &clock).await.unwrap().text, "hi", "the next call may try it");
}

#[tokio::test]
async fn other_groups_stand_in_for_one_that_fails_as_a_whole() {
    let script = |rules: &str| {
        let source = crate::Source::Text { name: "s.yml".into(), text: rules.into() };
        crate::ModelConfig { provider: "scripted".into(), source: Some(source), ..Default::default() }
    };
    let around = crate::LlmEnvironment::default();
    let open = |rules: [&str; 2]| crate::open_group(&rules.map(script), &RouterConfig::default(), &around).unwrap();
    let broken = open(["rules: [{fail: {status: 500}}]", "rules: [{fail: {status: 404}}]"]);
    let whole = crate::with_stand_ins(broken, &[open(["rules: [{say: third}]", "rules: [{say: fourth}]"])], &around);
    let stream = whole.chat(hello(), &ManualClock::auto_advancing().context(Duration::from_secs(60))).await.unwrap();
    assert_eq!(&*stream.finish().await.unwrap().text, "third");
}

#[tokio::test]
async fn a_request_that_is_too_long_is_asked_once_more_with_less() {
    let models = [strict(vec![LlmErrorKind::TooLong.into(), "hi".into(), LlmErrorKind::TooLong.into()])];
    let router = with(&models, RouterConfig::default());
    let clock = ManualClock::auto_advancing();
    let mut request = hello();
    request.messages = vec![ChatMessage::user("old"), ChatMessage::assistant("old"), ChatMessage::user("new")];
    let stream = router.chat(request, &clock.context(Duration::from_secs(60))).await.unwrap();
    let answer = stream.finish().await.unwrap();
    assert!(answer.route.as_ref().is_some_and(|route| route.shrunk && route.tries == 2), "{answer:?}");
    let sizes: Vec<usize> = models[0].requests().iter().map(|request| request.messages.len()).collect();
    assert_eq!(sizes, [3, 2]);
    // What has nothing to leave out fails at once.
    assert_eq!(once(&router, &clock).await.unwrap_err().kind, LlmErrorKind::TooLong);
    models[0].verify().unwrap();
}
