#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use super::*;
use crate::llm::{
    ChatMessage, Purpose,
    scripted::{ScriptedLlm, Step, StrictLlm},
    testing::ManualClock,
};

fn strict(steps: Vec<Step>) -> Arc<StrictLlm> {
    Arc::new(ScriptedLlm::strict(steps))
}

fn group(models: &[Arc<StrictLlm>]) -> Router {
    let mut members = models.iter().map(|model| Member { model: model.clone(), tries: 2 });
    Router::new(members.next().unwrap(), members.collect(), RetryPolicy::default(), 7)
}

fn hello() -> ChatRequest {
    ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")])
}

/// Asks the group, checks that all its steps were used, and gives its end and the waits.
async fn ask(models: &[Arc<StrictLlm>]) -> (Result<String, LlmError>, Vec<Duration>) {
    let clock = ManualClock::jumping();
    let cx = clock.cx(Duration::from_secs(3600));
    let end = match group(models).chat(hello(), &cx).await {
        Ok(stream) => stream.finish().await.map(|answer| answer.text.to_string()),
        Err(error) => Err(error),
    };
    for model in models {
        model.verify().unwrap();
    }
    let slept = clock.slept.lock().unwrap().clone();
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
async fn a_stream_that_breaks_before_any_text_is_asked_again() {
    struct Breaks(StrictLlm);
    impl Llm for Breaks {
        fn profile(&self) -> &ModelProfile {
            self.0.profile()
        }
        fn chat<'a>(&'a self, request: ChatRequest, cx: &'a Cx) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
            Box::pin(async move {
                if self.0.requests().is_empty() {
                    self.0.chat(request, cx).await?;
                    let began = Delta::CallBegan { index: 0, name: "pay".into() };
                    return Ok(ChatStream::new(stream::iter([Ok(began), Err(LlmErrorKind::CutShort.into())])));
                }
                self.0.chat(request, cx).await
            })
        }
    }
    let model = Arc::new(Breaks(ScriptedLlm::strict(["lost", "hi"])));
    let clock = ManualClock::jumping();
    let router = Router::new(Member { model: model.clone(), tries: 2 }, vec![], RetryPolicy::default(), 7);
    let stream = router.chat(hello(), &clock.cx(Duration::from_secs(60))).await.unwrap();
    assert_eq!(&*stream.finish().await.unwrap().text, "hi");
    model.0.verify().unwrap();
}

#[tokio::test]
async fn cancelling_ends_the_waiting() {
    let models = [strict(vec![LIMITED.into()])];
    let clock = ManualClock::new();
    let cx = clock.cx(Duration::from_secs(60));
    let router = group(&models);
    let (end, ()) = tokio::join!(router.chat(hello(), &cx), async {
        while clock.slept.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        cx.cancel.cancel();
    });
    assert_eq!(end.unwrap_err().kind, LlmErrorKind::Cancelled);
}
