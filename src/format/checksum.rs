//! The checksum that ends a line of ours: `,"crc":"xxxxxxxx"}`, CRC32C of the bytes before it.

pub(super) const CRC_KEY: &[u8] = b",\"crc\":\"";
/// `,"crc":"xxxxxxxx"}`
pub(super) const CRC_BYTES: usize = 18;

/// The digits in which a line states its checksum.
pub(super) fn checksum_digits(crc: u32) -> [u8; 8] {
    std::array::from_fn(|at| b"0123456789abcdef"[(crc >> (28 - 4 * at) & 0xf) as usize])
}

/// Whether the bytes end in a checksum; if so, whether it is right.
pub(crate) fn checksum_of(line: &[u8]) -> Option<bool> {
    checksum_behind(0, line)
}

/// The same, of the rest of a line whose beginning has this checksum.
pub(super) fn checksum_behind(begun: u32, rest: &[u8]) -> Option<bool> {
    let (body, tail) = rest.split_at(rest.len().checked_sub(CRC_BYTES)?);
    let stated = tail.strip_prefix(CRC_KEY)?.strip_suffix(b"\"}")?;
    let is_right = *stated == checksum_digits(crc32c::crc32c_append(begun, body));
    let is_checksum = is_right || stated.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_checksum.then_some(is_right)
}

/// How many bytes of a checksum may have changed before it cannot be told any more that it was one.
const SPOILT_BYTES_MAX: usize = 2;

/// Whether a line ends in what is or was a checksum: all but a byte or two of what frames the digits is there.
pub(super) fn looks_checked(line: &[u8]) -> bool {
    let Some(start) = line.len().checked_sub(CRC_BYTES) else { return false };
    let frame = line[start..].iter().zip(CRC_KEY).chain(line[line.len() - 2..].iter().zip(b"\"}"));
    frame.filter(|(found, known)| found != known).count() <= SPOILT_BYTES_MAX
}

/// A line whose checksum is so little spoilt that what it stands for is certain: it is right but for a byte or two. With
/// the checksum that it had; nothing if it is whole, or never had one.
pub fn with_checksum_restored(line: &[u8]) -> Option<Vec<u8>> {
    let (body, end) = line.split_at(line.len().checked_sub(CRC_BYTES)?);
    // Most lines without a checksum do not even look like one that had it.
    let frame = end.iter().zip(CRC_KEY).filter(|(found, known)| found != known).count();
    if frame > SPOILT_BYTES_MAX {
        return None;
    }
    let right = [CRC_KEY, &checksum_digits(crc32c::crc32c(body)), b"\"}"].concat();
    let spoilt = end.iter().zip(&right).filter(|(found, known)| found != known).count();
    (1..=SPOILT_BYTES_MAX).contains(&spoilt).then(|| [body, &right].concat())
}

/// A JSON object with the checksum as its last key.
pub(crate) fn with_checksum(mut object: Vec<u8>) -> Vec<u8> {
    let brace = object.pop();
    debug_assert_eq!(brace, Some(b'}'));
    let digits = checksum_digits(crc32c::crc32c(&object));
    [&*object, CRC_KEY, &digits, b"\"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_gets_the_checksum_of_what_stands_before_it() {
        let checked = with_checksum(br#"{"version":1}"#.to_vec());
        assert!(checked.starts_with(br#"{"version":1,"crc":""#));
        assert_eq!(checksum_of(&checked), Some(true));
        assert_eq!(checksum_of(br#"{"version":1}"#), None);
        for bit in 0..(checked.len() - CRC_BYTES) * 8 {
            let mut flipped = checked.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(checksum_of(&flipped), Some(false), "bit {bit}");
        }
    }
}
