//! The duties of PID 1: starts one program at a time, passes signals on to it, collects every dead process, and tells how
//! the program ended.
//!
//! Children are waited for here and nowhere else: a second waiter would steal exit codes.

use std::io;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tracing::{debug, info, warn};

/// How a supervised program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(u8),
    Killed(Signal),
}

impl Ending {
    /// The code by which a shell, or a container runtime, would report it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)),
        }
    }

    /// The ending that a wait status tells of, if it tells of one at all.
    fn from_status(status: WaitStatus) -> Option<(Pid, Self)> {
        match status {
            // The kernel keeps the lowest eight bits of an exit code.
            WaitStatus::Exited(pid, code) => {
                Some((pid, Self::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX))))
            }
            WaitStatus::Signaled(pid, signal, _) => Some((pid, Self::Killed(signal))),
            _ => None,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "signal {}", signal.as_str()),
        }
    }
}

/// The handlers of this process, installed once, before anything is started. Signals that arrive while nobody listens are
/// kept until somebody does.
#[derive(Debug)]
pub struct Supervisor {
    terminate: SignalStream,
    interrupt: SignalStream,
    hang_up: SignalStream,
    quit: SignalStream,
    child: SignalStream,
}

impl Supervisor {
    /// # Errors
    /// When the kernel refuses a handler.
    pub fn install() -> io::Result<Self> {
        // Where the launcher is not PID 1 (a shared process namespace) orphans of the JVM would go elsewhere.
        prctl::set_child_subreaper(true)?;
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            child: signal(SignalKind::child())?,
        })
    }

    /// Waits until a signal asks to stop, while no program runs.
    pub async fn stop_asked(&mut self) -> Ending {
        let signal = tokio::select! {
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.hang_up.recv() => Signal::SIGHUP,
        };
        info!("{signal} received");
        Ending::Killed(signal)
    }

    /// Runs a program to its end. `on_stop` is called when a signal asks it to stop, before that signal is passed on.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub async fn run(&mut self, command: &mut Command, on_stop: impl FnMut()) -> io::Result<Ending> {
        let child = command.spawn()?;
        self.see_to_the_end(&child, on_stop).await
    }

    /// The same, of a program that was just started.
    ///
    /// # Errors
    /// When its pid is not one.
    pub async fn see_to_the_end(&mut self, child: &Child, mut on_stop: impl FnMut()) -> io::Result<Ending> {
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        debug!(%pid, "started");
        loop {
            if let Some(ending) = reap_all(pid) {
                return Ok(ending);
            }
            // Until it is reaped above the child's pid cannot be given to another process: a signal never goes astray.
            let signal = tokio::select! {
                _ = self.child.recv() => continue,
                _ = self.terminate.recv() => Signal::SIGTERM,
                _ = self.interrupt.recv() => Signal::SIGINT,
                _ = self.hang_up.recv() => Signal::SIGHUP,
                _ = self.quit.recv() => Signal::SIGQUIT,
            };
            if asks_to_stop(signal) {
                info!("{signal} received; passing it on and waiting for the end");
                on_stop();
            }
            if let Err(error) = kill(pid, signal) {
                warn!("{signal} could not be passed on: {error}");
            }
        }
    }
}

/// SIGQUIT asks a JVM for the stacks of its threads, and no more.
fn asks_to_stop(signal: Signal) -> bool {
    signal != Signal::SIGQUIT
}

/// Collects all that is dead, orphans included; `Some` when the watched child is among them.
fn reap_all(watched: Pid) -> Option<Ending> {
    let mut ending = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ending,
            Ok(status) => match Ending::from_status(status) {
                Some((pid, how)) if pid == watched => ending = Some(how),
                Some((pid, how)) => debug!(%pid, "collected an orphan that ended with {how}"),
                None => {}
            },
            Err(Errno::EINTR) => {}
            Err(error) => {
                warn!("cannot collect dead processes: {error}");
                return ending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_reported_as_a_shell_would() {
        assert_eq!(Ending::Exited(7).code(), 7);
        assert_eq!(Ending::Killed(Signal::SIGTERM).code(), 143);
        assert_eq!(Ending::Killed(Signal::SIGKILL).code(), 137);
    }

    #[test]
    fn a_process_that_is_merely_stopped_has_not_ended() {
        assert_eq!(Ending::from_status(WaitStatus::Stopped(Pid::from_raw(7), Signal::SIGSTOP)), None);
        assert_eq!(Ending::from_status(WaitStatus::StillAlive), None);
    }
}
