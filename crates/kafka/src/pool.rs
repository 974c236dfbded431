//! The connections of one client: at most one to each endpoint, opened when first needed, kept while they work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kafka_protocol::protocol::Request;
use tokio::time::{Instant, timeout_at};

use crate::calls::{ApiVersionsCall, Call, Context};
use crate::connection::{Connection, timed_out};
use crate::deadline::Deadline;
use crate::error::{Error, Waiting};
use crate::{ClientConfig, Endpoint};

/// The place of a connection. Whoever holds the lock owns the connection until it puts it back; a call that fails or is
/// cancelled does not put it back, and with that closes it.
type Slot = tokio::sync::Mutex<Option<Connection>>;

#[derive(Debug)]
pub(crate) struct Pool {
    config: ClientConfig,
    slots: Mutex<HashMap<Endpoint, Arc<Slot>>>,
}

/// One attempt to get an answer, which may not be the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) deadline: Deadline,
    /// How many nodes could still be asked, this one included: each should get its share of the time to connect.
    pub(crate) candidates: usize,
}

impl Pool {
    pub(crate) fn new(config: ClientConfig) -> Self {
        Self { config, slots: Mutex::default() }
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Asks the node at `endpoint`, over the kept connection if there is one.
    pub(crate) async fn ask<C: Call>(
        &self,
        endpoint: &Endpoint,
        call: &C,
        attempt: Attempt,
    ) -> Result<C::Answer, Error> {
        if !self.config.hosts.include(&endpoint.host) {
            return Err(Error::ForeignHost { endpoint: endpoint.clone() });
        }
        let slot = self.slot(endpoint);
        let mut slot = timeout_at(attempt.deadline.at, slot.lock())
            .await
            .map_err(|_| timed_out(endpoint, Waiting::ForEarlierCall, attempt.deadline))?;
        let (version, response) = self.ask_over(&mut slot, endpoint, call, attempt).await?;
        drop(slot);
        call.answer(response, &Context { endpoint, api: C::API, version })
    }

    async fn ask_over<C: Call>(
        &self,
        slot: &mut Option<Connection>,
        endpoint: &Endpoint,
        call: &C,
        attempt: Attempt,
    ) -> Result<(i16, <C::Request as Request>::Response), Error> {
        if let Some(mut kept) = slot.take()
            && (!C::API.is_change() || is_alive(&mut kept, endpoint, attempt.deadline).await?)
        {
            match ask_and_keep(slot, kept, call, attempt.deadline).await {
                // Kafka closes idle connections after some minutes, and a restarted node has forgotten all of them. That is
                // seen only when the next question is asked, and is no reason to trouble the caller.
                Err(Error::Disconnected { reason, .. }) if !C::API.is_change() => {
                    tracing::debug!(%endpoint, %reason, "a kept connection has died; opening another");
                }
                outcome => return outcome,
            }
        }
        // Reckoned only now, so that waiting for an earlier call leaves this one its time to connect.
        let connected_by = attempt.deadline.for_one_of(attempt.candidates, self.config.connect_timeout);
        let fresh = Connection::open(endpoint, &self.config, connected_by).await?;
        ask_and_keep(slot, fresh, call, attempt.deadline).await
    }

    /// Closes what was not used since then, and forgets places that are empty.
    pub(crate) fn close_idle(&self, not_used_since: Instant) {
        self.slots().retain(|_, slot| {
            // Whoever is about to use it has a share of the place, or the lock.
            let Some(slot) = Arc::get_mut(slot) else { return true };
            slot.get_mut().take_if(|kept| kept.last_used() <= not_used_since);
            slot.get_mut().is_some()
        });
    }

    pub(crate) fn connections(&self) -> Vec<Instant> {
        let used = |slot: &Arc<Slot>| slot.try_lock().ok()?.as_ref().map(Connection::last_used);
        self.slots().values().filter_map(used).collect()
    }

    fn slot(&self, endpoint: &Endpoint) -> Arc<Slot> {
        Arc::clone(self.slots().entry(endpoint.clone()).or_default())
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Endpoint, Arc<Slot>>> {
        // The map is whole between any two statements, so a panic elsewhere is no reason to give up on it.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a kept connection still works. A change cannot be asked for twice, so a question that can is asked first: a connection
/// that died long ago is then no reason to leave the caller in doubt whether the change was made.
async fn is_alive(kept: &mut Connection, endpoint: &Endpoint, deadline: Deadline) -> Result<bool, Error> {
    match kept.ask(&ApiVersionsCall, deadline).await {
        Ok(_) => Ok(true),
        Err(Error::Disconnected { reason, .. }) => {
            tracing::debug!(%endpoint, %reason, "a kept connection has died; opening another");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Asks, and puts the connection into `slot` if it can be used again.
async fn ask_and_keep<C: Call>(
    slot: &mut Option<Connection>,
    mut connection: Connection,
    call: &C,
    deadline: Deadline,
) -> Result<(i16, <C::Request as Request>::Response), Error> {
    let outcome = connection.ask(call, deadline).await;
    // A question that this node cannot be asked was not sent: the connection is as good as before.
    if matches!(outcome, Ok(_) | Err(Error::Unsupported { .. })) {
        *slot = Some(connection);
    }
    outcome
}
