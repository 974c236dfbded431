//! Frames: four bytes of length, then the message.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The longest message that is believed to be an answer. Metadata of a cluster with half a million partitions has some thirty
/// megabytes; a web server that is mistaken for a broker announces a gigabyte, "HTTP" read as a number.
pub(crate) const LONGEST: usize = 32 << 20;

/// From here on a message takes a share of what all clients of the process may read at once.
const LARGE: usize = 1 << 20;

/// How much of large messages may be under way at once, in KiB: however many peers announce however much, and send it slowly.
static SHARES: Semaphore = Semaphore::const_new(2 * (LONGEST >> 10));

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

/// Reads a message of at most `largest` bytes.
pub(crate) async fn read_frame<S: AsyncRead + Unpin>(
    stream: &mut S,
    largest: usize,
) -> Result<Bytes, FrameError> {
    let length = read_length(stream).await?;
    if length > largest {
        return Err(FrameError::Malformed(format!(
            "a frame of {length} bytes, and no more than {largest} are read of this answer"
        )));
    }
    let _share = share(length).await;
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

/// Waits until there is memory for a message of this length. Whoever reads it has a deadline.
async fn share(length: usize) -> Option<SemaphorePermit<'static>> {
    if length < LARGE {
        return None;
    }
    // The semaphore is never closed.
    SHARES.acquire_many(u32::try_from(length >> 10).ok()?).await.ok()
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
    use tokio::io::AsyncWriteExt as _;

    async fn read(mut bytes: &[u8]) -> Result<Bytes, FrameError> {
        read_frame(&mut bytes, LONGEST).await
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

    /// Peers that announce much and send nothing, as many as there are shares for.
    #[tokio::test(start_paused = true)]
    async fn large_messages_share_what_memory_there_is_and_small_ones_do_not_wait() {
        let announced = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
        let mut open = Vec::new();
        for _ in 0..2 {
            let (mut peer, mut stream) = tokio::io::duplex(64);
            peer.write_all(&announced(LONGEST)).await.unwrap();
            open.push((peer, tokio::spawn(async move { read_frame(&mut stream, LONGEST).await })));
        }
        tokio::task::yield_now().await;
        let large = [&announced(LARGE)[..], &vec![0; LARGE]].concat();
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, read(&large)).await.is_err(), "there is no memory left");
        assert!(read(&[0, 0, 0, 1, 7]).await.is_ok());
        open.pop();
        tokio::task::yield_now().await;
        assert_eq!(tokio::time::timeout(soon, read(&large)).await.unwrap().unwrap().len(), LARGE);
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_for_its_question_is_refused_before_it_comes() {
        let length = u32::try_from(LARGE + 1).unwrap().to_be_bytes();
        match read_frame(&mut &length[..], LARGE).await {
            Err(FrameError::Malformed(why)) => {
                assert_eq!(why, "a frame of 1048577 bytes, and no more than 1048576 are read of this answer");
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn lengths_that_cannot_be_are_refused() {
        let too_long = u32::try_from(LONGEST + 1).unwrap().to_be_bytes();
        assert!(complaint(&too_long).await.contains("is this a Kafka listener?"));
        assert!(complaint(&[0xff, 0xff, 0xff, 0xff]).await.contains("-1 bytes"));
        assert!(complaint(&[0x15, 3, 3, 0, 2, 2, 80]).await.contains("this listener speaks TLS only"));
        assert!(complaint(b"HTTP/1.1 400 Bad Request").await.contains("is this a Kafka listener?"));
    }
}
