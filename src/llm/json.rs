//! Writing JSON by hand into one buffer, where the form is known and the texts are long: prompts and histories go through here
//! twice for each model call. `serde_json` looks at a text byte by byte, this looks at whole blocks of it.

/// Bytes that are looked at together: what the vector registers of every 64-bit machine hold.
const BLOCK: usize = 16;

/// Writes a text with its quotes, byte for byte as `serde_json` does.
pub(super) fn text(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest.split_at(plain(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = tail.split_first() else { break };
        escape(*byte, out);
        rest = after;
    }
    out.push(b'"');
}

/// Writes what stands before a text (the key, its colon), and the text.
pub(super) fn field(before: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(before.as_bytes());
    text(value, out);
}

/// Writes items with commas between them.
pub(super) fn list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(item, out)?;
    }
    Ok(())
}

/// How many bytes at the start stand in a JSON string as they are.
pub(super) fn plain(bytes: &[u8]) -> usize {
    let blocks = bytes.chunks_exact(BLOCK);
    let whole = blocks.take_while(|block| block.iter().fold(true, |all, byte| all & is_plain(*byte))).count() * BLOCK;
    // The block with the first other byte: prompts have short lines, so that every third block is one.
    let (eights, tail) = bytes.get(whole..).unwrap_or_default().as_chunks();
    for (i, eight) in eights.iter().enumerate() {
        let others = others(u64::from_le_bytes(*eight));
        if others != 0 {
            return whole + i * 8 + others.trailing_zeros() as usize / 8;
        }
    }
    whole + eights.len() * 8 + tail.iter().take_while(|byte| is_plain(**byte)).count()
}

/// The high bit of each of eight bytes that is not plain. Exact up to the first one: what is borrowed from the next byte there may
/// mark that as well ("Bit Twiddling Hacks", determine if a word has a byte less than n).
fn others(eight: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let less = |bytes: u64, than: u8| bytes.wrapping_sub(EACH * u64::from(than)) & !bytes & (EACH << 7);
    let equal = |byte: u8| less(eight ^ (EACH * u64::from(byte)), 1);
    less(eight, b' ') | equal(b'"') | equal(b'\\')
}

fn is_plain(byte: u8) -> bool {
    (byte >= b' ') & (byte != b'"') & (byte != b'\\')
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or(b'0');
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        other => return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(other >> 4), digit(other & 15)]),
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn written(value: &str) -> String {
        let mut out = Vec::new();
        text(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_byte_is_written_as_serde_json_writes_it_wherever_it_stands() {
        for special in (0..=0x80_u8).map(char::from) {
            for before in 0..=2 * BLOCK {
                let value = format!("{}{special}{}", "a".repeat(before), "ü".repeat(BLOCK));
                assert_eq!(written(&value), serde_json::to_string(&value).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_written_as_serde_json_writes_it(value in any::<String>()) {
            prop_assert_eq!(written(&value), serde_json::to_string(&value).unwrap());
        }
    }
}
