//! Who may work, and who waits for others.
//!
//! A pass that works has one of few places. While it waits for Kafka it gives its place away: a cluster that does not answer costs
//! the others nothing. How many may wait is bounded too, and clusters that are known to hang or to be slow have places of their own for
//! it, so that they never stand in front of those that answer. Whoever works for long for another reason goes on in a place of its
//! own as well, as long as there is one.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many clusters may be asked at once of which it is not known that they hang.
const ASKING: usize = 32;
/// How many clusters that hang, or are slow, may be asked at once.
const HANGING: usize = 8;
/// How many may work for long beside the others.
const LONG: usize = 16;
/// How long a pass may have its place before it makes room for others.
const LONGEST: Duration = Duration::from_secs(2);

/// The places of one process.
#[derive(Debug)]
pub(crate) struct Places {
    working: Arc<Semaphore>,
    asking: Arc<Semaphore>,
    hanging: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// How a cluster answered lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Prompt,
    /// It lets others wait, and says something in the end.
    Slow,
    /// It says nothing.
    Hangs,
}

/// The place of one piece of work.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Whether a cluster that hangs may be asked now.
#[derive(Debug)]
pub(crate) enum Room {
    /// It has a place to wait.
    Free(#[allow(dead_code, reason = "it is held, and not read")] Option<OwnedSemaphorePermit>),
    /// As many are being asked as may be: what it did not answer before it will not answer now.
    Full,
}

impl Places {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Arc::new(Self {
            working: semaphore(workers.max(1)),
            asking: semaphore(ASKING),
            hanging: semaphore(HANGING),
            long: semaphore(LONG),
        })
    }

    /// Waits for a place to work.
    pub(crate) async fn one(self: &Arc<Self>) -> Place {
        let held = free(&self.working).await;
        Place { places: Arc::clone(self), held: Mutex::new(held) }
    }
}

impl Place {
    /// Room for a question to a cluster. Whoever waits for it has given the place to work away.
    pub(crate) async fn room(&self, pace: Pace) -> Room {
        match pace {
            Pace::Prompt => {
                self.give_away();
                return Room::Free(free(&self.places.asking).await);
            }
            Pace::Slow => return self.room_whatever_it_takes().await,
            Pace::Hangs => {}
        }
        match Arc::clone(&self.places.hanging).try_acquire_owned() {
            Ok(free) => Room::Free(Some(free)),
            Err(_) => Room::Full,
        }
    }

    /// Room for what must be asked, though the cluster is known to hang or to be slow.
    pub(crate) async fn room_whatever_it_takes(&self) -> Room {
        self.give_away();
        Room::Free(free(&self.places.hanging).await)
    }

    /// Waits for what others do. Meanwhile somebody else may work.
    pub(crate) async fn aside<T>(&self, room: Room, waiting: impl Future<Output = T>) -> T {
        self.give_away();
        let done = waiting.await;
        drop(room);
        self.take_back().await;
        done
    }

    /// Does work. What takes long goes on in another place, so that others get this one.
    pub(crate) async fn not_for_long<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = timeout(LONGEST, work.as_mut()).await {
                return done;
            }
            let other = Arc::clone(&self.places.long).try_acquire_owned();
            if let (Ok(other), Some(held)) = (other, self.lock().as_mut()) {
                *held = other;
            }
        }
    }

    fn give_away(&self) {
        self.lock().take();
    }

    async fn take_back(&self) {
        let free = free(&self.places.working).await;
        *self.lock() = free;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// None of them is ever closed, so there is always a permit in the end.
async fn free(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places).acquire_owned().await.ok()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_others_takes_no_place_from_those_who_work() {
        let places = Places::new(1);
        let first = places.one().await;
        assert!(places.one().now_or_never().is_none());
        let room = first.room(Pace::Prompt).await;
        let mut asking = Box::pin(first.aside(room, pending::<()>()));
        assert!(asking.as_mut().now_or_never().is_none());
        assert!(places.one().now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_is_done_waiting_works_on_only_with_a_place() {
        let places = Places::new(1);
        let first = places.one().await;
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let room = first.room(Pace::Prompt).await;
        let mut asking = Box::pin(first.aside(room, answered));
        assert!(asking.as_mut().now_or_never().is_none());
        let second = places.one().await;
        answer.send(()).unwrap();
        assert!(asking.as_mut().now_or_never().is_none());
        drop(second);
        assert!(asking.as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn clusters_that_hang_are_few_at_a_time_and_leave_room_for_the_others() {
        let places = Places::new(1);
        let place = places.one().await;
        let mut rooms = Vec::new();
        for _ in 0..HANGING {
            rooms.push(place.room(Pace::Hangs).await);
        }
        assert!(rooms.iter().all(|room| matches!(room, Room::Free(Some(_)))));
        assert!(matches!(place.room(Pace::Hangs).await, Room::Full));
        assert!(matches!(place.room(Pace::Prompt).now_or_never(), Some(Room::Free(Some(_)))));
        rooms.pop();
        assert!(matches!(place.room(Pace::Hangs).await, Room::Free(Some(_))));
    }

    #[tokio::test]
    async fn whoever_waits_for_room_keeps_nobody_from_working() {
        let places = Places::new(1);
        let mut rooms = Vec::new();
        for pace in [Pace::Prompt, Pace::Slow] {
            let place = places.one().await;
            while let Some(Room::Free(room)) = place.room(pace).now_or_never() {
                rooms.push(room);
            }
            let mut waiting = Box::pin(place.room(pace));
            assert!(waiting.as_mut().now_or_never().is_none(), "{pace:?}");
            assert!(places.one().now_or_never().is_some(), "{pace:?}");
        }
        assert_eq!(rooms.len(), ASKING + HANGING);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_works_for_long_makes_room_for_others_as_far_as_there_is_another_place() {
        let places = Places::new(1);
        let mut long = Vec::new();
        for others in 0..=LONG {
            let place = places.one().await;
            let mut working = Box::pin(async move { place.not_for_long(pending::<()>()).await });
            assert!(working.as_mut().now_or_never().is_none());
            assert!(places.one().now_or_never().is_none(), "it has its place at first");
            assert!(timeout(LONGEST + Duration::from_millis(1), working.as_mut()).await.is_err());
            long.push(working);
            assert_eq!(places.one().now_or_never().is_some(), others < LONG, "{others} others");
        }
        // The last one still has its place, and leaves it when there is room.
        drop(long.remove(0));
        let last = long.last_mut().unwrap();
        assert!(timeout(LONGEST + Duration::from_millis(1), last.as_mut()).await.is_err());
        assert!(places.one().now_or_never().is_some());
    }
}
