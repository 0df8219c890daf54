//! A2A both ways: one assistant is offered to other agents, and a flow of another one calls it. The two projects stand in
//! `examples/projects/restaurant` and `examples/projects/concierge`; in life each runs in a process of its own.
//!
//! `cargo run --example agents_of_others`

use std::{error::Error, io::Write, net::Ipv4Addr, sync::Arc};

use segue::{
    Assistant, Incoming, NoSink,
    channels::a2a::{A2aAgent, Offer},
    llm::scripted::ScriptedLlm,
    server,
};

const PROJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The restaurant: its flows become skills, its address stands in the card.
    let restaurant = Assistant::load(format!("{PROJECTS}/restaurant"))?;
    let offer = restaurant.project().endpoints.a2a_server.as_ref().ok_or("it is not offered")?;
    let settings = server::Settings {
        host: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        api: false,
        api_has_token: false,
        open_agent: true,
    };
    let listener = server::listen(&settings).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let agent = A2aAgent::new(&restaurant, offer, &Offer { url: url.clone(), local: true })?;
    let router = server::offered(server::router(&restaurant, &[]), &agent, &restaurant);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = server::serve(listener, router, &restaurant, async move {
        let _ = ended.await;
    });

    // The concierge: its `agent_card` names the port that the restaurant got.
    let talking = async {
        let concierge = concierge(&url)?;
        for (words, expected) in [
            ("We would like a table", "For how many people?"),
            ("There are 4 of us", "At what time?"),
            ("Say at eight", "The table is booked for eight."),
        ] {
            let report = concierge.receive(Incoming::text("ada", words, "example"), Box::new(NoSink)).await?;
            let said: Vec<_> = report.replies.iter().filter_map(|reply| reply.reply.text.as_deref()).collect();
            assert!(
                said.first().is_some_and(|text| text.starts_with(expected)),
                "{words}: {said:?} {:?}",
                report.failures
            );
            writeln!(std::io::stdout(), "{words}: {}", said.join(" / "))?;
        }
        let _ = end.send(());
        Ok::<_, Box<dyn Error>>(())
    };
    let (served, talked) = tokio::join!(serving, talking);
    talked?;
    Ok(served?)
}

fn concierge(restaurant: &str) -> Result<Assistant, Box<dyn Error>> {
    let read = |path: &str| std::fs::read_to_string(format!("{PROJECTS}/concierge/{path}"));
    let card = read("sub_agents/restaurant/config.yml")?.replace("http://127.0.0.1:5005", restaurant);
    let files = [
        ("config.yml", read("config.yml")?),
        ("endpoints.yml", read("endpoints.yml")?),
        ("domain.yml", read("domain.yml")?),
        ("flows/dinner.yml", read("flows/dinner.yml")?),
        ("sub_agents/restaurant/config.yml", card),
    ];
    let model = ScriptedLlm::from_text("script.yml", &read("script.yml")?, 7)?;
    let builder = Assistant::builder_from_texts(files.iter().map(|(path, text)| (*path, text.as_str())))?;
    Ok(builder.model(Arc::new(model)).build()?)
}
