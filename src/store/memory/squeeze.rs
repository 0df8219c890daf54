//! Squeezing records in memory: an idle conversation should cost little, and the events of a talk repeat themselves.
//!
//! A byte below 32 never stands in our JSON, so it is free to say "repeat": what is repeated may lie earlier in the record or in a
//! dictionary of what events usually hold. Five events take about 2 µs.
//!
//! ```text
//! 32..=255          that byte
//! 0..=29, d, d      repeat 4 + n bytes from d bytes back (16 bits, little endian)
//! 30, n, d, d       repeat 34 + n bytes
//! 31, b             the byte b
//! ```
//!
//! Nothing of this is ever stored outside the process: it may change at any time.

use std::sync::LazyLock;

/// Texts that events usually hold; what is usual comes last, where it is near. Not a format: a bad guess costs only space.
const DICTIONARY: &[u8] = br#"{"timestamp":176,"event":"session_started"},"event":"action","name":"action_listen"},"event":"followup","name":null,"event":"flow_interrupted","event":"flow_resumed","event":"flow_cancelled","event":"agent_started","agent_id":"","event":"agent_completed","status":"completed","event":"agent_exchanges","exchanges":[{"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"","arguments":"{}"}}]},{"role":"tool","tool_call_id":"","content":""}]},"event":"tool_executed","server":"","tool_name":"","arguments":{},"status":"done","summary":"","type":"agent","state":"waiting_for_input","metadata":{}},"event":"flow_completed","flow_id":"","step_id":"END","metadata":{"active_flow":"pattern_completed","previous_flow_name":"","frame_type":"interrupt","frame_type":"call","frame_type":"link","pattern":"continue_interrupted","pattern":"cancel_flow","pattern":"clarification","buttons":[{"title":"","payload":"/SetSlots("}],"in_exchange":true,"agent":"","utter_action":"utter_ask_","kind":"response","event":"flow_started","flow_id":"","fingerprint":1,"commands":[{"command":"start flow","flow":""},{"command":"set slot","name":"","value":"","extractor":"LLM"}],"source":"model","event":"user","text":"","message_id":"","input_channel":"rest"},{"timestamp":176,"event":"understood","commands":[{"command":"set slot","name":"","value":"","extractor":"LLM"}],"source":"model","metadata":{"active_flow":"","step_id":""}},{"timestamp":176,"event":"slot","name":"","value":"","filled_by":"LLM","metadata":{"active_flow":"","step_id":""}},{"timestamp":176,"event":"stack","frames":[{"frame_id":"","flow_id":"","at":{"at":""},"type":"flow","frame_type":"regular"},{"frame_id":"","flow_id":"pattern_collect_information","at":{"at":"listen"},"type":"pattern","context":{"pattern":"collect_information","collect":"","utter":"utter_ask_","collect_action":"action_ask_","step_id":""}}],"next_frame":2,"metadata":{"active_flow":"","step_id":""}},{"timestamp":176,"event":"bot","text":"","utter_action":"utter_ask_","kind":"response","reply_id":"","metadata":{"active_flow":"","step_id":""}}][{"id":"","reply":{"text":""},"kind":"response"}]"#;

/// The shortest repetition that is worth its three bytes.
const SHORTEST: usize = 4;
/// The shortest repetition that needs a byte of its own for its length.
const LONG: usize = SHORTEST + 30;
const LONGEST: usize = LONG + 255;
/// Places remembered by the hash of the four bytes that stand there. A power of two.
const PLACES: usize = 4096;

type Places = [u16; PLACES];

static USUAL: LazyLock<Box<Places>> = LazyLock::new(|| {
    let mut places = Box::new([0; PLACES]);
    for at in 1..DICTIONARY.len() {
        remember(&mut places, DICTIONARY, at);
    }
    places
});

/// The place that four bytes hash to; `None` near the end.
fn place(text: &[u8], at: usize) -> Option<usize> {
    let four = text.get(at..)?.first_chunk::<4>()?;
    // The multiplier is 2^32 divided by the golden ratio, which spreads neighbours; the upper 12 bits are the place.
    Some((u32::from_le_bytes(*four).wrapping_mul(0x9e37_79b1) >> 20) as usize)
}

fn remember(places: &mut Places, text: &[u8], at: usize) {
    // What lies beyond 16 bits is not remembered; 0 stands for nothing.
    if let (Some(place), Ok(at)) = (place(text, at).and_then(|place| places.get_mut(place)), u16::try_from(at)) {
        *place = at;
    }
}

/// Squeezes a record.
pub(super) fn squeeze(record: &[u8]) -> Box<[u8]> {
    let text = [DICTIONARY, record].concat();
    let mut places = USUAL.clone();
    let mut out = Vec::with_capacity(record.len() / 2 + 16);
    let mut at = DICTIONARY.len();
    while let Some(&byte) = text.get(at) {
        let (from, length) = longest(&text, &places, at);
        if length < SHORTEST {
            remember(&mut places, &text, at);
            if byte < 32 {
                out.push(31);
            }
            out.push(byte);
            at += 1;
            continue;
        }
        if length < LONG {
            out.push((length - SHORTEST) as u8);
        } else {
            out.extend([30, (length - LONG) as u8]);
        }
        out.extend(((at - from) as u16).to_le_bytes());
        (at..at + length).for_each(|at| remember(&mut places, &text, at));
        at += length;
    }
    out.into_boxed_slice()
}

/// Where the text at `at` stood before, and for how many bytes.
fn longest(text: &[u8], places: &Places, at: usize) -> (usize, usize) {
    let from = place(text, at).and_then(|place| places.get(place)).map_or(0, |from| usize::from(*from));
    let (Some(here), Some(there)) = (text.get(at..), text.get(from..)) else { return (0, 0) };
    if from == 0 || at - from > usize::from(u16::MAX) {
        return (0, 0);
    }
    (from, here.iter().zip(there).take(LONGEST).take_while(|(here, there)| here == there).count())
}

/// Gives the record back; `None` when what was kept is damaged.
pub(super) fn stretch(squeezed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(DICTIONARY.len() + squeezed.len() * 4);
    text.extend_from_slice(DICTIONARY);
    let mut bytes = squeezed.iter().copied();
    while let Some(byte) = bytes.next() {
        let length = match byte {
            32.. => {
                text.push(byte);
                continue;
            }
            31 => {
                text.push(bytes.next()?);
                continue;
            }
            30 => LONG + usize::from(bytes.next()?),
            short => SHORTEST + usize::from(short),
        };
        let back = usize::from(u16::from_le_bytes([bytes.next()?, bytes.next()?]));
        let from = text.len().checked_sub(back).filter(|_| back > 0)?;
        // Byte by byte: a repetition may reach into what it makes.
        for at in from..from + length {
            text.push(*text.get(at)?);
        }
    }
    Some(text.split_off(DICTIONARY.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn every_record_comes_back(
            words in vec(prop_oneof![vec(any::<u8>(), 0..9), Just(b"\"event\":\"slot\",\"name\":".to_vec())], 0..60),
            repeat in 1..40_usize,
        ) {
            let record = words.concat().repeat(repeat);
            prop_assert_eq!(stretch(&squeeze(&record)).unwrap(), record);
        }

        #[test]
        fn damage_is_told_or_gives_something(squeezed in vec(any::<u8>(), 0..200)) {
            // The checksum of the record tells the rest.
            let _ = stretch(&squeezed);
        }
    }

    #[test]
    fn far_repetitions_are_left_alone() {
        let record: Vec<u8> = (0..60_000_u32).flat_map(|n| (n / 2).to_be_bytes()).collect();
        assert_eq!(stretch(&squeeze(&record)).unwrap(), record);
    }

    #[test]
    fn usual_events_shrink() {
        let event = br#"{"timestamp":1763726400.123,"event":"slot","name":"seats","value":3,"filled_by":"LLM"}"#;
        let record = event.repeat(3);
        assert!(squeeze(&record).len() * 4 < record.len(), "{}", squeeze(&record).len());
    }
}
