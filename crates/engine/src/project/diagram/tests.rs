//! Diagrams of flows: their content, and escaping of texts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::{super::load::tests::load, *};

const DOMAIN: &str = "slots:
  amount: {type: float}
  name: {type: text}
responses:
  utter_ask_amount: [{text: How much?}]
  utter_ask_name: [{text: Who?}]
  utter_done: [{text: \"<b>Done</b> & \\\"well\\\" #1; {name}\"}]
  utter_bad: [{text: No.}]
";
const FLOWS: &str = "flows:
  pay:
    description: send money
    if: slots.name is not \"x\"
    nlu_trigger: [{intent: pay}]
    steps:
      - id: ask
        collect: amount
        rejections: [{if: slots.amount < 1, utter: utter_bad}]
        next:
          - if: slots.amount > 10 and slots.name != \"a|b\"
            then:
              - call: who
                next: done
          - if: slots.amount = 5
            then:
              - set_slots: [{amount: null}]
                next: ask
          - else: done
      - id: done
        action: utter_done
      - link: who
  who:
    description: asks for a name
    steps:
      - collect: name
";

fn project() -> Project {
    let config = ("config.yml", "recipe: default.v1\n");
    let domain = format!("{DOMAIN}intents: [pay]\n");
    // A called flow may be linked to here: only the picture counts.
    load(&[config, ("domain.yml", &domain), ("data/a.yml", FLOWS)]).project.unwrap()
}

fn pay() -> Diagram {
    Diagram::of_flow(&project(), &"pay".into()).unwrap()
}

#[test]
fn mermaid_shows_steps_branches_and_back_edges() {
    let text = pay().write(DiagramFormat::Mermaid);
    let body: Vec<&str> = text.lines().take_while(|line| !line.starts_with("  classDef")).collect();
    assert_eq!(
        body.join("\n"),
        "flowchart TD
  subgraph part0[\"pay: pay<br/>“send money”<br/>only if slots.name is not #34;x#34;<br/>started by /pay\"]
    p0n0([\"pay\"]):::kStart
    p0n1[/\"ask amount<br/>1 rejection\"/]:::kAsk
    p0n2[[\"call who\"]]:::kCall
    p0n3(\"amount = null\"):::kSet
    p0n4[\"utter_done<br/>“#60;b#62;Done#60;/b#62; #38; #34;well#34; #35;1; {name}”\"]:::kSay
    p0n5>\"link who\"]:::kLink
    p0n0 --> p0n1
    p0n1 -->|\"slots.amount #62; 10 and slots.name !=<br/>#34;a|b#34;\"| p0n2
    p0n1 -->|\"slots.amount = 5\"| p0n3
    p0n1 -->|\"else\"| p0n4
    p0n2 --> p0n4
    p0n3 --> p0n1
    p0n4 --> p0n5
  end"
    );
}

#[test]
fn dot_shows_the_same_and_escapes_quotes() {
    let text = pay().write(DiagramFormat::Dot);
    assert!(text.contains("p0n1 -> p0n2 [label=\"slots.amount > 10 and slots.name !=\\n\\\"a|b\\\"\"];"), "{text}");
    assert!(text.contains("“<b>Done</b> & \\\"well\\\" #1; {name}”\", shape=box"), "{text}");
    assert_eq!(text.matches('{').count() - text.matches("{name}").count(), 2, "{text}");
}

#[test]
fn the_overview_shows_calls_and_links() {
    let text = Diagram::map(&project()).write(DiagramFormat::Mermaid);
    assert!(text.contains("p0n0 -.->|\"call\"| p0n1") && text.contains("p0n0 ==>|\"link\"| p0n1"), "{text}");
    assert!(text.contains("p0n0(\"pay<br/>if slots.name is not #34;x#34;<br/>/pay\"):::kFlow"), "{text}");
}

#[test]
fn the_same_project_gives_the_same_bytes() {
    let (one, other) = (project(), project());
    for format in [DiagramFormat::Mermaid, DiagramFormat::Dot] {
        assert_eq!(Diagram::of_all(&one).write(format), Diagram::of_all(&other).write(format));
    }
}
