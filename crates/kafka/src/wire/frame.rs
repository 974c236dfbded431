//! Frames: four bytes of length, then the message.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest message that is believed to be an answer. Metadata of a cluster with a million partitions has some sixty
/// megabytes; a web server that is mistaken for a broker announces a gigabyte, "HTTP" read as a number.
const LONGEST: usize = 100 << 20;

/// What is reserved before a byte of the message has arrived, so that an announced length alone costs nothing.
const FIRST_RESERVE: usize = 64 << 10;

/// What a TLS server says to somebody who does not speak it. As a length it would be a third of a gigabyte.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// Why no frame could be read.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The connection ended, or broke, before a frame began.
    Lost(io::Error),
    /// The frame is not one that Kafka would send, or ended before its announced length.
    Malformed(String),
}

pub(crate) async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Bytes, FrameError> {
    let length = read_length(stream).await?;
    let mut message = BytesMut::with_capacity(length.min(FIRST_RESERVE));
    let mut rest = stream.take(length as u64);
    loop {
        match rest.read_buf(&mut message).await {
            Ok(0) if message.len() == length => return Ok(message.freeze()),
            Ok(0) => return Err(cut_short(message.len(), length, None)),
            Ok(_) => {}
            Err(error) => return Err(cut_short(message.len(), length, Some(&error))),
        }
    }
}

async fn read_length<S: AsyncRead + Unpin>(stream: &mut S) -> Result<usize, FrameError> {
    let mut prefix = [0; 4];
    // The first byte apart from the rest: a connection that ends between two frames was closed in an orderly way.
    stream.read_exact(&mut prefix[..1]).await.map_err(FrameError::Lost)?;
    stream.read_exact(&mut prefix[1..]).await.map_err(|error| {
        FrameError::Malformed(format!("the connection ended inside a frame's length ({error})"))
    })?;
    if prefix[..2] == TLS_ALERT {
        return Err(FrameError::Malformed("a TLS alert; this listener speaks TLS only".to_owned()));
    }
    let announced = i32::from_be_bytes(prefix);
    usize::try_from(announced).ok().filter(|&length| length <= LONGEST).ok_or_else(|| {
        FrameError::Malformed(format!("a frame of {announced} bytes; is this a Kafka listener?"))
    })
}

fn cut_short(received: usize, announced: usize, cause: Option<&io::Error>) -> FrameError {
    let cause = cause.map_or_else(String::new, |error| format!(" ({error})"));
    FrameError::Malformed(format!("the connection ended after {received} of {announced} bytes{cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(mut bytes: &[u8]) -> Result<Bytes, FrameError> {
        read_frame(&mut bytes).await
    }

    async fn complaint(bytes: &[u8]) -> String {
        match read(bytes).await {
            Err(FrameError::Malformed(detail)) => detail,
            other => panic!("expected a malformed frame, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_frame_is_what_its_length_says() {
        assert_eq!(read(&[0, 0, 0, 2, 7, 8, 9]).await.unwrap(), &[7, 8][..]);
        assert_eq!(read(&[0, 0, 0, 0]).await.unwrap(), &[][..]);
    }

    #[tokio::test]
    async fn an_end_between_frames_is_a_lost_connection() {
        assert!(matches!(read(&[]).await, Err(FrameError::Lost(_))));
    }

    #[tokio::test]
    async fn an_end_inside_a_frame_is_malformed() {
        assert!(complaint(&[0, 0]).await.contains("inside a frame's length"));
        assert_eq!(complaint(&[0, 0, 0, 3, 1, 2]).await, "the connection ended after 2 of 3 bytes");
    }

    #[tokio::test]
    async fn lengths_that_cannot_be_are_refused() {
        assert!(complaint(&[0xff, 0xff, 0xff, 0xff]).await.contains("-1 bytes"));
        assert!(complaint(&[0x15, 3, 3, 0, 2, 2, 80]).await.contains("this listener speaks TLS only"));
        assert!(complaint(b"HTTP/1.1 400 Bad Request").await.contains("is this a Kafka listener?"));
    }
}
