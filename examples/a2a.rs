//! A2A as server and client: one assistant is an A2A server, and a flow of another assistant calls it. The projects are
//! `examples/projects/restaurant` and `examples/projects/concierge`; in production each runs in a process of its own.
//!
//! `cargo run --example a2a`

use std::{error::Error, io::Write, sync::Arc};

use segue::{
    llm::scripted::ScriptedLlm,
    prelude::*,
    server::{self, ServerSettings},
};

const PROJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The server: its flows are the skills in its agent card.
    let restaurant = Assistant::load(format!("{PROJECTS}/restaurant"))?;
    let listener = server::listen(&ServerSettings::new().port(0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = axum_router(&restaurant);
    tokio::spawn(async move { server::serve(listener, router, &restaurant, std::future::pending()).await });

    // The client: its `agent_card` is the address of the server.
    let concierge = concierge(&url)?;
    for (message, expected) in [
        ("We would like a table", "For how many people?"),
        ("There are 4 of us", "At what time?"),
        ("Say at eight", "The table is booked for eight."),
    ] {
        let turn = concierge.say("ada", message).await?;
        assert!(turn.text().starts_with(expected), "{message}: {} {:?}", turn.text(), turn.failures);
        writeln!(std::io::stdout(), "{message}: {}", turn.text())?;
    }
    Ok(())
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
