//! `segue replay`: a stored conversation again, from its record, with nothing let out.

use super::{
    Done, FINDINGS, out,
    place::{Place, cannot_build},
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The conversation
    id: String,
    #[command(flatten)]
    place: Place,
    /// Where it is kept, as in `sqlite:talks.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Compares every event byte for byte.
pub(super) async fn replay(args: Args) -> Done {
    let Some(opened) = args.place.open()? else { return Ok(FINDINGS) };
    let store = args.place.existing_store(args.store.as_deref(), &opened.project)?;
    let assistant = opened.builder.store(store).offline().build().map_err(cannot_build)?;
    let Some(difference) = assistant.replay(&args.id.as_str().into()).await? else {
        out::line("equal: every event came out as it is stored")?;
        return Ok(0);
    };
    let nothing = "(nothing)".to_owned();
    out::line(&format!("turn {}, event {}: the replay differs", difference.turn, difference.event))?;
    out::line(&format!("  stored:   {}", out::plain(difference.stored.as_ref().unwrap_or(&nothing))))?;
    out::line(&format!("  replayed: {}", out::plain(difference.replayed.as_ref().unwrap_or(&nothing))))?;
    Ok(FINDINGS)
}
