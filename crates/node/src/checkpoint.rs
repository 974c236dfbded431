//! The first snapshot of a metadata log, at offset 0 and epoch 0: does it say who votes?
//!
//! Up to Kafka 4.3 the storage tool writes it for first voters only, so that it is there says enough. KIP-1170 (after 4.3) puts what
//! `bootstrap.checkpoint` held into it, on every controller. Then only its content tells a first voter from a node that joins later.

use bytes::Buf;

/// From the first byte of a batch to the end of its length, and what follows up to the number of its records.
const BEFORE_LENGTH: usize = 8;
const MAGIC: usize = 4;
const ATTRIBUTES: usize = 9;
const HEADER: usize = 49;
/// The form of batches since Kafka 0.11.
const MAGIC_2: u8 = 2;
/// The batch holds records for Kafka itself.
const CONTROL: u8 = 0x20;
/// Of all control records, this kind says who votes.
const VOTERS: u16 = 6;

/// Whether a snapshot says who votes. One that cannot be read does not.
pub(crate) fn names_voters(mut snapshot: &[u8]) -> bool {
    while let Some(batch) = next_batch(&mut snapshot) {
        if has_voters(batch).unwrap_or(false) {
            return true;
        }
    }
    false
}

/// What follows the length of the next batch.
fn next_batch<'a>(snapshot: &mut &'a [u8]) -> Option<&'a [u8]> {
    *snapshot = snapshot.get(BEFORE_LENGTH..)?;
    let length = usize::try_from(snapshot.try_get_i32().ok()?).ok()?;
    let (batch, rest) = snapshot.split_at_checked(length)?;
    *snapshot = rest;
    Some(batch)
}

fn has_voters(batch: &[u8]) -> Option<bool> {
    let is_control = *batch.get(MAGIC)? == MAGIC_2 && batch.get(ATTRIBUTES + 1)? & CONTROL != 0;
    let mut records = batch.get(HEADER..)?;
    while is_control && !records.is_empty() {
        let length = varint(&mut records)?;
        let (record, rest) = records.split_at_checked(length)?;
        records = rest;
        if kind(record)? == VOTERS {
            return Some(true);
        }
    }
    Some(false)
}

/// The kind of a control record, from its key.
fn kind(mut record: &[u8]) -> Option<u16> {
    let _attributes = record.try_get_u8().ok()?;
    let _later = varint(&mut record)?;
    let _offset = varint(&mut record)?;
    let _length_of_key = varint(&mut record)?;
    let _version = record.try_get_u16().ok()?;
    record.try_get_u16().ok()
}

/// A number as Kafka writes it in records: seven bits a byte, and the sign in the last one. None that is expected here is negative.
fn varint(from: &mut &[u8]) -> Option<usize> {
    let mut number = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (number & 1 == 0).then(|| usize::try_from(number >> 1).ok()).flatten();
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As the storage tool of Kafka 4.3.1 writes it with `--initial-controllers`.
    pub(crate) const OF_A_FIRST_VOTER: &[u8] = include_bytes!("checkpoint/of-a-first-voter");
    /// As KIP-1170 wants it with `--no-initial-controllers`: written by the same classes, without voters, with the metadata version.
    pub(crate) const OF_ANOTHER_NODE: &[u8] = include_bytes!("checkpoint/of-another-node");

    #[test]
    fn only_the_snapshot_of_a_first_voter_names_voters() {
        assert!(names_voters(OF_A_FIRST_VOTER));
        assert!(!names_voters(OF_ANOTHER_NODE));
    }

    #[test]
    fn a_snapshot_that_is_cut_off_or_broken_proves_nothing() {
        let end_of_voters = 12 + 0x9a;
        for length in 0..end_of_voters {
            assert!(!names_voters(&OF_A_FIRST_VOTER[..length]), "{length} bytes");
        }
        for nonsense in [&[0xff; 200][..], &[0; 200], b"content"] {
            assert!(!names_voters(nonsense));
        }
    }

    #[test]
    fn no_byte_that_is_wrong_makes_it_panic() {
        for at in 0..OF_A_FIRST_VOTER.len() {
            for wrong in [0, 0x7f, 0x80, 0xff] {
                let mut bytes = OF_A_FIRST_VOTER.to_vec();
                bytes[at] = wrong;
                names_voters(&bytes);
            }
        }
    }
}
