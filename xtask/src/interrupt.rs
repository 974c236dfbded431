//! Ctrl-C, and whoever else asks a run to stop: what it runs is ended, what it made is removed, and then it ends.
//!
//! The one who runs the parts goes on to the end, as if the part that ran had failed: so there is one way in which things are
//! cleaned up. All that happens here is that no program is started any more, and that those which run are asked to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::instance::process::{self, Process};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The exit code of a program that Ctrl-C ended, as shells have it.
pub(crate) const EXIT_CODE: u8 = 130;

/// Who was asked politely is given so long.
const GRACE: Duration = Duration::from_secs(3);

/// From now on a request to stop is heard. `leftover` says what stays when somebody cannot wait.
pub(crate) fn listen(leftover: String) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listening for Ctrl-C")?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if REQUESTED.swap(true, Ordering::SeqCst) {
                eprintln!("\nStopped at once. {leftover}");
                std::process::exit(EXIT_CODE.into());
            }
            eprintln!("\nStopping, and removing what this run made. Once more, and it stays.");
            thread::spawn(end_programs);
        }
    });
    Ok(())
}

pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// To be asked before anything is begun.
pub(crate) fn check() -> Result<()> {
    if is_requested() {
        bail!("it was asked to stop");
    }
    Ok(())
}

/// What an instance runs is in sessions of its own, and ends with the instance.
fn end_programs() {
    let running = process::below_in_session(std::process::id());
    send(&running, Signal::TERM);
    thread::sleep(GRACE);
    send(&running, Signal::KILL);
}

fn send(processes: &[Process], signal: Signal) {
    let alive = processes.iter().filter(|process| process.is_alive());
    for pid in alive.filter_map(|process| Pid::from_raw(i32::try_from(process.pid).ok()?)) {
        // It may be gone already, which is what we want.
        let _ = kill_process(pid, signal);
    }
}
