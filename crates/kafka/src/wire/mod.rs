//! Bytes in, bytes out: frames, headers, and the checks that stand between a peer's bytes and the decoder.
//!
//! Nothing here knows of endpoints, deadlines or what a message means.

mod codec;
mod frame;
mod guard;

pub(crate) use codec::{decode_response, encode_request};
pub(crate) use frame::{FrameError, LONGEST, read_frame};
