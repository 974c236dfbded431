//! Panics. One in the work for a cluster is that cluster's, and the process goes on; any other ends the process at once, loudly,
//! because a process of which a part is dead looks alive and does nothing.
//!
//! What a panic says may quote what a user wrote. So it is in the log and nowhere else, cut to a decent length; statuses name the
//! place in the program.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// How much of what a panic says is logged.
const LONGEST: usize = 500;

thread_local! {
    /// Does this thread run something whose panic is caught?
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of this thread began.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Something panicked, and was stopped there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an internal error at {place}")]
pub(crate) struct Panicked {
    /// File and line.
    place: String,
}

impl Panicked {
    fn here() -> Self {
        let place = PLACE.take().unwrap_or_else(|| "a place that is not known".to_owned());
        Self { place }
    }
}

/// Logs every panic, and ends the process for those that nothing contains.
pub(crate) fn end_the_process_unless_contained() {
    std::panic::set_hook(Box::new(|panic| {
        log(panic);
        if !CONTAINED.get() {
            std::process::abort();
        }
    }));
}

fn log(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
    let said = shortened(said(panic.payload()));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(place, "panic: {said}\n{backtrace}");
    } else {
        tracing::error!(place, "panic: {said}");
    }
    PLACE.set(Some(place));
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

fn shortened(said: &str) -> &str {
    let end = (0..=LONGEST.min(said.len())).rev().find(|end| said.is_char_boundary(*end));
    &said[..end.unwrap_or_default()]
}

/// While this lives, panics of this thread are contained.
struct Containment {
    before: bool,
}

impl Containment {
    fn begin() -> Self {
        Self { before: CONTAINED.replace(true) }
    }
}

impl Drop for Containment {
    fn drop(&mut self) {
        CONTAINED.set(self.before);
    }
}

/// Runs this. That it panics is an answer.
///
/// What it shares with others must be whole between any two statements; locks are taken over from whoever panicked.
pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let _contained = Containment::begin();
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked::here())
}

/// The same for what waits now and then.
pub(crate) async fn contained<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| match contain(|| work.as_mut().poll(context)) {
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for a process that these tests start: how it is to panic.
    const HOW: &str = "KARST_TEST_PANIC";

    /// Runs in a process of its own, where a panic may end everything.
    #[test]
    fn a_process_that_panics() {
        let Ok(how) = std::env::var(HOW) else { return };
        end_the_process_unless_contained();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            match how.as_str() {
                "contained" => {
                    let outcome = contained(async {
                        tokio::task::yield_now().await;
                        panic!("in a pass")
                    });
                    let panicked: Result<(), Panicked> = outcome.await;
                    assert!(panicked.unwrap_err().to_string().contains("panics.rs:"));
                }
                // Nobody waits for it: without the hook nobody would notice.
                "task" => {
                    let task = tokio::spawn(async { panic!("in a watch") });
                    let _: Result<(), _> = task.await;
                }
                // A pass that is being waited for must not contain the panics of others.
                _ => {
                    let other = tokio::spawn(async { panic!("in a watch") });
                    let waits = contained(async {
                        let _: Result<(), _> = other.await;
                    });
                    let _ = waits.await;
                }
            }
        });
    }

    fn survives(how: &str) -> bool {
        let program = std::env::current_exe().unwrap();
        let test = "panics::tests::a_process_that_panics";
        let process = Command::new(program).args(["--exact", test]).env(HOW, how).output().unwrap();
        process.status.success()
    }

    #[test]
    fn a_panic_that_is_contained_leaves_the_process_alive_and_any_other_ends_it() {
        assert!(survives("contained"));
        assert!(!survives("task"));
        assert!(!survives("task beside a pass"));
    }

    #[test]
    fn what_is_contained_inside_of_what_is_contained_leaves_the_rest_contained() {
        let outer = contain(|| {
            let inner: Result<(), _> = contain(|| panic!("inner"));
            assert!(inner.is_err());
            CONTAINED.get()
        });
        assert_eq!(outer, Ok(true));
        assert!(!CONTAINED.get());
    }

    #[test]
    fn what_a_panic_says_is_cut_between_letters() {
        let text = format!("{}ä", "x".repeat(LONGEST - 1));
        assert_eq!(shortened(&text).len(), LONGEST - 1);
    }
}
