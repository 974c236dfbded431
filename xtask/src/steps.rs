//! Says what is being done and how long it took, one line for each step.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs a step and prints `what`, then how long it took. A step that fails is marked; its error is
/// printed by whoever ends the program.
pub(crate) fn step<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let in_place = std::io::stdout().is_terminal();
    if in_place {
        print!("  … {what}");
        flush();
    } else {
        println!("  … {what}");
    }
    let result = work();
    let mark = if result.is_ok() { "✓" } else { "✗" };
    let took = Elapsed(started.elapsed());
    if in_place {
        println!("\r\x1b[K  {mark} {what} ({took})");
    } else {
        println!("  {mark} {what} ({took})");
    }
    result
}

/// Prints a line that belongs to the step that is running, or to none.
pub(crate) fn note(text: impl Display) {
    if std::io::stdout().is_terminal() {
        println!("\r\x1b[K    {text}");
    } else {
        println!("    {text}");
    }
}

pub(crate) fn headline(text: impl Display) {
    println!("\n{text}");
}

fn flush() {
    // A terminal that went away is no reason to stop the work.
    let _ = std::io::stdout().flush();
}

/// A duration as a person would say it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elapsed(pub Duration);

impl Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        if seconds >= 60 {
            write!(f, "{} min {} s", seconds / 60, seconds % 60)
        } else {
            write!(f, "{:.1} s", self.0.as_secs_f64())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_naturally() {
        assert_eq!(Elapsed(Duration::from_millis(340)).to_string(), "0.3 s");
        assert_eq!(Elapsed(Duration::from_secs(59)).to_string(), "59.0 s");
        assert_eq!(Elapsed(Duration::from_secs(671)).to_string(), "11 min 11 s");
    }
}
