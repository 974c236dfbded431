//! The loop that takes work from the queue and has it done: as much at once as there are places, each piece on its own.
//!
//! What goes wrong with one piece, a panic included, is the outcome of that piece.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::heartbeats::{Heartbeats, Part};
use crate::metrics::Metrics;
use crate::panics::{Panicked, contained};
use crate::places::{Place, Places};
use crate::queue::{Outcome, Queue, Work};

/// How often the loop says that it goes on when there is nothing to do.
const TICK: Duration = Duration::from_secs(10);

/// Who does the work.
pub(crate) trait Job: Send + Sync + 'static {
    /// Does a piece of work.
    fn work(&self, work: &Work, place: &Place) -> impl Future<Output = Outcome> + Send;

    /// Says that a piece of work panicked.
    fn tell_panic(&self, work: &Work, panicked: &Panicked) -> impl Future<Output = ()> + Send;
}

/// The loop and what it needs.
#[derive(Debug)]
pub(crate) struct Workers<J> {
    pub(crate) job: J,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) heartbeats: Arc<Heartbeats>,
    pub(crate) places: Arc<Places>,
    /// How often clusters are looked at though nothing changed.
    pub(crate) resync: Duration,
}

impl<J: Job> Workers<J> {
    /// Takes work until `stop`, and then waits for what was begun. Whoever drops this ends that too.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), JoinError> {
        let mut begun = JoinSet::new();
        while let Some((work, place)) = stop.run_until_cancelled(self.next()).await {
            begun.spawn(Arc::clone(&self).finish(work, place));
            while let Some(ended) = begun.try_join_next() {
                ended?;
            }
        }
        while let Some(ended) = begun.join_next().await {
            ended?;
        }
        Ok(())
    }

    async fn next(&self) -> (Work, Place) {
        let place = self.places.one().await;
        loop {
            self.heartbeats.beat(Part::Work);
            if let Ok(work) = timeout(TICK, self.queue.next()).await {
                return (work, place);
            }
        }
    }

    async fn finish(self: Arc<Self>, work: Work, place: Place) {
        let began = Instant::now();
        let outcome = match Box::pin(contained(place.not_for_long(self.job.work(&work, &place)))).await {
            Ok(outcome) => self.with_resync(&work, outcome),
            Err(panicked) => self.after_panic(&work, &panicked).await,
        };
        drop(place);
        self.heartbeats.beat(Part::Work);
        self.metrics.count(&work, &outcome, began.elapsed());
        self.queue.finish(work, &outcome);
    }

    /// To tell it may panic as well: what is wrong with the cluster may be in what is told.
    async fn after_panic(&self, work: &Work, panicked: &Panicked) -> Outcome {
        let cluster = work.cluster();
        tracing::error!(%cluster, %panicked, "the cluster is left as it is for now; all others go on");
        if contained(self.job.tell_panic(work, panicked)).await.is_err() {
            tracing::error!(%cluster, "its status could not be written either");
        }
        Outcome::Panicked { why: panicked.to_string() }
    }

    /// Clusters are looked at now and then though nothing changed, each at its own time.
    fn with_resync(&self, work: &Work, outcome: Outcome) -> Outcome {
        match (work, outcome) {
            (Work::Cluster(_), Outcome::Done { look_again: None }) => {
                let mut hasher = DefaultHasher::new();
                work.hash(&mut hasher);
                let jitter = self.resync.mul_f64((hasher.finish() % 1000) as f64 / 4000.0);
                Outcome::Done { look_again: Some(self.resync + jitter) }
            }
            (_, outcome) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use karst_core::names::ClusterKey;

    use super::*;
    use crate::places::{Pace, Room};

    const DONE: Outcome = Outcome::Done { look_again: None };
    /// How long Kafka that hangs is waited for.
    const HANG: Duration = Duration::from_secs(4);

    fn key(name: &str) -> ClusterKey {
        ClusterKey { namespace: "ns".into(), name: name.into() }
    }

    /// Clusters whose names say what happens to them.
    #[derive(Default)]
    struct Story {
        done: Mutex<Vec<(String, Instant)>>,
        told: Mutex<Vec<(String, String)>>,
    }

    impl Job for Story {
        async fn work(&self, work: &Work, place: &Place) -> Outcome {
            let name = work.cluster().name.clone();
            if name.starts_with("hung") {
                let room = place.room(Pace::Prompt).await;
                place.aside(room, tokio::time::sleep(HANG)).await;
            }
            assert!(!name.starts_with("broken"), "it is broken");
            self.done.lock().unwrap().push((name, Instant::now()));
            DONE
        }

        async fn tell_panic(&self, work: &Work, panicked: &Panicked) {
            let name = work.cluster().name.clone();
            self.told.lock().unwrap().push((name.clone(), panicked.to_string()));
            assert!(name != "broken to the core", "its status cannot even be told");
        }
    }

    fn workers(workers: usize) -> Arc<Workers<Story>> {
        Arc::new(Workers {
            job: Story::default(),
            queue: Arc::default(),
            metrics: Arc::new(Metrics::new()),
            heartbeats: Arc::default(),
            places: Places::new(workers),
            resync: Duration::from_secs(600),
        })
    }

    /// Lets them work for a while, and tells when each cluster was done for the first time.
    async fn run(
        workers: &Arc<Workers<Story>>,
        clusters: &[&str],
        time: Duration,
    ) -> Vec<(String, Duration)> {
        let (stop, began) = (CancellationToken::new(), Instant::now());
        workers.queue.push(clusters.iter().map(|name| Work::Cluster(key(name))));
        let running = tokio::spawn(Arc::clone(workers).run(stop.clone()));
        tokio::time::sleep(time).await;
        stop.cancel();
        running.await.unwrap().unwrap();
        let done = workers.job.done.lock().unwrap();
        done.iter().map(|(name, at)| (name.clone(), *at - began)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_panics_harms_no_other_cluster() {
        let workers = workers(2);
        let clusters = ["broken", "broken to the core", "a", "b", "c"];
        let done = run(&workers, &clusters, Duration::from_millis(500)).await;
        assert_eq!(done.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(done.iter().all(|(_, after)| after.is_zero()), "nobody waited: {done:?}");
        let told = workers.job.told.lock().unwrap();
        let told: Vec<_> = told.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(told, ["broken", "broken to the core"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_panics_is_tried_less_and_less_often_and_counted() {
        let workers = workers(1);
        run(&workers, &["broken"], Duration::from_secs(60)).await;
        // At 0, 1, 3, 7, 15, 31.
        assert_eq!(workers.job.told.lock().unwrap().len(), 6);
        assert_eq!(workers.metrics.panics(&Work::Cluster(key("x"))), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn twenty_clusters_that_hang_do_not_make_another_wait() {
        let workers = workers(2);
        let hung: Vec<_> = (0..20).map(|number| format!("hung-{number}")).collect();
        let mut clusters: Vec<_> = hung.iter().map(String::as_str).collect();
        clusters.push("healthy");
        let done = run(&workers, &clusters, Duration::from_secs(10)).await;
        assert_eq!(done[0], ("healthy".to_owned(), Duration::ZERO));
        assert_eq!(done.len(), 21, "those that hang got their turn too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_work_says_that_it_goes_on_and_one_that_stands_still_does_not() {
        let workers = workers(1);
        run(&workers, &[], Duration::from_secs(300)).await;
        assert!(workers.heartbeats.check().is_ok());
        let place = workers.places.one().await;
        let (stop, stands_still) = (CancellationToken::new(), Arc::clone(&workers));
        let running = tokio::spawn(stands_still.run(stop));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(workers.heartbeats.check().is_err());
        drop(place);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert!(workers.heartbeats.check().is_ok());
        running.abort();
    }

    #[tokio::test]
    async fn a_question_that_is_not_asked_leaves_no_place_taken() {
        let places = Places::new(1);
        let place = places.one().await;
        let room = place.room(Pace::Hangs).await;
        assert!(matches!(room, Room::Free(_)));
        place.aside(room, std::future::ready(())).await;
        drop(place);
        assert!(futures::FutureExt::now_or_never(places.one()).is_some());
    }
}
