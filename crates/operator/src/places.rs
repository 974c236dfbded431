//! Who may work, and who waits for others.
//!
//! A pass that works has one of few places. While it waits for Kafka it gives its place away: a cluster that does not answer costs
//! the others nothing. How many may wait is bounded too, and clusters that are known to hang have places of their own for it, so
//! that they never stand in front of those that answer.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many clusters may be asked at once of which it is not known that they hang.
const ASKING: usize = 32;
/// How many clusters that hang may be asked at once.
const HANGING: usize = 8;

/// The places of one process.
#[derive(Debug)]
pub(crate) struct Places {
    working: Arc<Semaphore>,
    asking: Arc<Semaphore>,
    hanging: Arc<Semaphore>,
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
        })
    }

    /// Waits for a place to work.
    pub(crate) async fn one(self: &Arc<Self>) -> Place {
        let held = free(&self.working).await;
        Place { places: Arc::clone(self), held: Mutex::new(held) }
    }
}

impl Place {
    /// Room for a question to a cluster, before its place to work is given away.
    pub(crate) async fn room(&self, hangs: bool) -> Room {
        if !hangs {
            return Room::Free(free(&self.places.asking).await);
        }
        match Arc::clone(&self.places.hanging).try_acquire_owned() {
            Ok(free) => Room::Free(Some(free)),
            Err(_) => Room::Full,
        }
    }

    /// Room for a question that must be asked, though the cluster is known to hang.
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
        let room = first.room(false).await;
        let mut asking = Box::pin(first.aside(room, pending::<()>()));
        assert!(asking.as_mut().now_or_never().is_none());
        assert!(places.one().now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_is_done_waiting_works_on_only_with_a_place() {
        let places = Places::new(1);
        let first = places.one().await;
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let room = first.room(false).await;
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
            rooms.push(place.room(true).await);
        }
        assert!(rooms.iter().all(|room| matches!(room, Room::Free(Some(_)))));
        assert!(matches!(place.room(true).await, Room::Full));
        assert!(matches!(place.room(false).now_or_never(), Some(Room::Free(Some(_)))));
        rooms.pop();
        assert!(matches!(place.room(true).await, Room::Free(Some(_))));
    }
}
