//! Bytes as hexadecimal digits.

pub(crate) fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Fills `into` from exactly twice as many digits; `None` if `digits` are not that.
pub(crate) fn decode(digits: &[u8], into: &mut [u8]) -> Option<()> {
    if digits.len() != into.len() * 2 {
        return None;
    }
    for (byte, pair) in into.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn digits_are_bytes_and_back() {
        let mut bytes = [0; 3];
        decode(b"00fFa5", &mut bytes).unwrap();
        assert_eq!((bytes, encode(&bytes).as_str()), ([0, 255, 0xa5], "00ffa5"));
        for wrong in ["", "00fFa", "00fFa5a", "00fFg5", "00fF\u{e9}"] {
            assert_eq!(decode(wrong.as_bytes(), &mut bytes), None, "{wrong}");
        }
    }
}
