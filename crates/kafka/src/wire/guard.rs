//! A buffer that refuses lengths which cannot be true, before the decoder acts on them.
//!
//! The decoder of `kafka-protocol` reserves memory for as many elements as a count announces before it reads the first one. A
//! count of four billion, in a damaged or hostile message of twenty bytes, makes it ask for hundreds of gigabytes, and a
//! failed allocation aborts the process: no error, no unwinding. So counts must be checked before the decoder sees them.
//!
//! In the flexible versions of the protocol, the only ones this client speaks, every count and length is an unsigned varint,
//! which the decoder reads byte by byte through [`Buf::try_get_u8`]. No count or length of a complete message can exceed the
//! bytes that follow it, since every element takes at least one. That is what [`Guarded`] checks.

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::buf::ByteBuf;

/// A varint of 32 bits has at most five bytes.
const LONGEST_VARINT: usize = 5;

/// Values up to this are harmless whatever follows. It leaves room for the numbers of tagged fields, which are varints too but
/// neither counts nor lengths.
const ALWAYS_FINE: u64 = 1024;

/// No list and no text in an answer to an administrator is longer than this, however large the cluster. It keeps what a long
/// message full of lies can reserve to some hundred megabytes of address space.
const NEVER_FINE: u64 = 1 << 20;

/// No answer has more counts, lengths and booleans than this. A partition has at least two of them, and takes some hundred bytes when it
/// is decoded, whatever it has on the wire.
const MOST_NUMBERS: usize = 2 << 20;

/// No answer has more texts than this. An unknown tagged field looks like a text, and takes half a kilobyte when it is decoded.
const MOST_TEXTS: usize = 256 << 10;

/// The bytes of one message, and the varint that is being read from them.
#[derive(Debug)]
pub(super) struct Guarded {
    bytes: Bytes,
    /// The value so far and the number of its bytes. A boolean is read through the same method; a well-formed one ends a
    /// varint of one byte, and one that looks like the beginning of a varint can only make the value of the next appear larger
    /// than the decoder will see it, so the check errs on the side of refusing.
    value: u64,
    length: usize,
    /// How many there were so far.
    numbers: usize,
    texts: usize,
}

impl Guarded {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { bytes, value: 0, length: 0, numbers: 0, texts: 0 }
    }

    fn note(&mut self, byte: u8) -> Result<(), TryGetError> {
        self.value |= u64::from(byte & 0x7f) << (7 * self.length);
        self.length += 1;
        let complete = byte < 0x80;
        self.numbers += usize::from(complete);
        let unbelievable = if complete { !self.is_believable() } else { self.length >= LONGEST_VARINT };
        let unbelievable = unbelievable || self.has_too_much();
        if unbelievable {
            return Err(TryGetError {
                requested: usize::try_from(self.value).unwrap_or(usize::MAX),
                available: self.bytes.remaining(),
            });
        }
        if complete {
            self.value = 0;
            self.length = 0;
        }
        Ok(())
    }

    /// Are there more parts in it than any answer has?
    pub(super) fn has_too_much(&self) -> bool {
        self.numbers > MOST_NUMBERS || self.texts > MOST_TEXTS
    }

    fn is_believable(&self) -> bool {
        // Lengths are sent plus one, zero being "null".
        let most = self.bytes.remaining() as u64 + 1;
        self.value <= most.clamp(ALWAYS_FINE, NEVER_FINE)
    }
}

impl Buf for Guarded {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.bytes.try_get_u8()?;
        self.note(byte)?;
        Ok(byte)
    }

    /// Signed bytes are values, never part of a varint.
    fn try_get_i8(&mut self) -> Result<i8, TryGetError> {
        self.bytes.try_get_i8()
    }
}

impl ByteBuf for Guarded {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.bytes.peek_bytes(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        // What is too much is refused with the next number, of which there is one in front of each text.
        self.texts += 1;
        self.bytes.get_bytes(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(bytes: &[u8], count: usize) -> bool {
        let mut guarded = Guarded::new(Bytes::copy_from_slice(bytes));
        (0..count).all(|_| guarded.try_get_u8().is_ok())
    }

    #[test]
    fn a_count_that_the_message_has_room_for_is_believed() {
        let mut message = vec![0x80, 0x10]; // 2048
        message.resize(2 + 2047, 0);
        assert!(reads(&message, 2));
    }

    #[test]
    fn a_count_beyond_the_end_of_the_message_is_refused() {
        let mut message = vec![0x80, 0x10]; // 2048
        message.resize(2 + 2046, 0);
        assert!(!reads(&message, 2));
    }

    #[test]
    fn four_billion_elements_are_refused() {
        assert!(!reads(&[0xff, 0xff, 0xff, 0xff, 0x0f], 5));
    }

    #[test]
    fn a_million_elements_are_refused_even_if_the_bytes_are_there() {
        let mut message = vec![0x81, 0x80, 0x40]; // 1 Mi + 1
        message.resize(4 << 20, 0);
        assert!(!reads(&message, 3));
    }

    #[test]
    fn millions_of_small_things_are_refused_though_each_of_them_can_be() {
        let mut guarded = Guarded::new(Bytes::from(vec![0; MOST_NUMBERS + 1]));
        assert!((0..MOST_NUMBERS).all(|_| guarded.try_get_u8().is_ok()));
        assert!(!guarded.has_too_much() && guarded.try_get_u8().is_err() && guarded.has_too_much());
        let mut guarded = Guarded::new(Bytes::from(vec![0; 1 << 20]));
        (0..MOST_TEXTS).for_each(|_| drop(guarded.get_bytes(1)));
        assert!(guarded.try_get_u8().is_ok());
        guarded.get_bytes(1);
        assert!(guarded.try_get_u8().is_err());
    }

    #[test]
    fn a_varint_without_an_end_is_refused() {
        assert!(!reads(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 5));
    }

    #[test]
    fn a_boolean_that_poses_as_the_start_of_a_varint_hides_nothing() {
        // The decoder sees true, then 0xf000_0000.
        assert!(!reads(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x0f], 6));
        // The decoder sees true, then 2048.
        assert!(!reads(&[0x80, 0x80, 0x10], 3));
    }

    #[test]
    fn numbers_of_tagged_fields_near_the_end_are_let_through() {
        assert!(reads(&[0x03, 0x00], 2));
    }
}
