//! Kafka's output, read on its way to the output of the container.
//!
//! Only a Kafka whose words are of interest is given a pipe, and a thread of its own carries what comes out of it: every
//! byte, in order, as it comes. The rest of the launcher cannot hold it up, and Kafka waits for nobody it would not wait for
//! without it. Lines are looked at until the listener has heard enough; longer ones than any that could matter are not.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// As much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// Lines that are longer are passed on like all others, and not looked at.
const LONGEST_LINE: usize = 16 * 1024;

/// What is still on its way when Kafka ends is there at once, unless somebody else holds the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Output that is being carried.
#[derive(Debug)]
pub(crate) struct Output {
    ended: oneshot::Receiver<()>,
}

impl Output {
    /// Puts a pipe before the output of a command that is not started yet. The command is to be dropped when it is: it holds
    /// the pipe open.
    pub(crate) fn overhear(
        command: &mut Command,
        hear: impl FnMut(&str) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<Self> {
        // Not through the buffer of the standard library, nor its lock: the launcher's own lines go there.
        let to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let (from, pipe) = io::pipe()?;
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            carry(from, to, hear);
            // Nobody waits any more when the launcher is on its way out.
            let _ = end.send(());
        })?;
        command.stdout(pipe);
        Ok(Self { ended })
    }

    /// Waits until the last words of a Kafka that has ended are out.
    pub(crate) async fn last_words(self) {
        let _ = timeout(LAST_WORDS, self.ended).await;
    }
}

/// Until nobody can write any more.
fn carry(mut from: PipeReader, mut to: impl Write, mut hear: impl FnMut(&str) -> ControlFlow<()>) {
    let mut chunk = vec![0; CHUNK];
    let mut lines = Some(Lines::default());
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        // Where the container's output cannot be written to, Kafka has to go on all the same: it would ignore it as well.
        let _ = to.write_all(read);
        if lines.as_mut().is_some_and(|lines| lines.each(read, &mut hear).is_break()) {
            lines = None;
        }
    }
}

/// Puts pieces together to lines.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of a line that is not whole yet.
    begun: Vec<u8>,
    /// It got too long, and is not kept.
    is_too_long: bool,
}

impl Lines {
    fn each(&mut self, piece: &[u8], hear: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.is_too_long |= self.begun.len() + part.len() > LONGEST_LINE;
            if self.is_too_long {
                self.begun.clear();
            } else {
                self.begun.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                if !self.is_too_long {
                    hear(&String::from_utf8_lossy(&self.begun))?;
                }
                self.begun.clear();
                self.is_too_long = false;
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard of these pieces, until one line says to stop.
    fn heard(pieces: &[&[u8]]) -> Vec<String> {
        let mut heard = Vec::new();
        let mut hear = |line: &str| {
            heard.push(line.trim_end().to_owned());
            if line == "stop\n" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut lines = Lines::default();
        let _ = pieces.iter().try_for_each(|piece| lines.each(piece, &mut hear));
        heard
    }

    #[test]
    fn lines_are_heard_whole_however_they_come() {
        assert_eq!(heard(&[b"one\ntwo\n"]), ["one", "two"]);
        assert_eq!(heard(&[b"o", b"ne", b"\n", b"tw", b"o\nthr"]), ["one", "two"]);
        assert_eq!(heard(&[b"\xff\xfe\n\n"]), ["\u{fffd}\u{fffd}", ""]);
    }

    #[test]
    fn nothing_is_heard_after_the_listener_has_heard_enough() {
        assert_eq!(heard(&[b"one\nstop\ntwo\n", b"three\n"]), ["one", "stop"]);
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_hides_no_other_line() {
        let long = vec![b'x'; LONGEST_LINE];
        assert_eq!(heard(&[&long, &long, b"still\none\n"]), ["one"]);
        let mut lines = Lines::default();
        for _ in 0..10 {
            let _ = lines.each(&long, &mut |_| ControlFlow::Continue(()));
        }
        assert!(lines.begun.len() <= LONGEST_LINE, "{}", lines.begun.len());
    }

    #[test]
    fn every_byte_is_passed_on_in_order_heard_or_not() {
        let (from, mut pipe) = io::pipe().unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let expected = sent.clone();
        let writer = thread::spawn(move || pipe.write_all(&sent).unwrap());
        let mut passed = Vec::new();
        carry(from, &mut passed, |_| ControlFlow::Break(()));
        writer.join().unwrap();
        assert!(passed == expected);
    }

    /// Takes nothing.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn kafka_is_not_held_up_by_an_output_that_takes_nothing() {
        let (from, mut pipe) = io::pipe().unwrap();
        let writer = thread::spawn(move || pipe.write_all(&vec![b'x'; 4 * CHUNK]).unwrap());
        carry(from, Broken, |_| ControlFlow::Continue(()));
        writer.join().unwrap();
    }
}
