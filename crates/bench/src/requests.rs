//! Requests to the API server, counted by verb and resource.

use std::collections::BTreeMap;

use serde::Serialize;

/// The one resource that a quiet operator still asks for.
const LEASES: &str = "leases";

/// What kind of request it was. The resource has its subresource behind a slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) resource: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Requests(BTreeMap<Request, u64>);

impl Requests {
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Request, u64)> {
        self.0.iter().map(|(request, count)| (request, *count))
    }

    pub(crate) fn count(&self, request: &Request) -> u64 {
        self.0.get(request).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, others: Self) {
        for (request, count) in others.0 {
            *self.0.entry(request).or_default() += count;
        }
    }

    /// Those that keep the leadership, and all others.
    pub(crate) fn split_leases(self) -> (Self, Self) {
        let (leases, others) = self.0.into_iter().partition(|(request, _)| request.resource == LEASES);
        (Self(leases), Self(others))
    }

    pub(crate) fn without_leases(self) -> Self {
        self.split_leases().1
    }

    pub(crate) fn by_verb(&self) -> BTreeMap<&str, u64> {
        let mut verbs = BTreeMap::new();
        for (request, count) in &self.0 {
            *verbs.entry(request.verb.as_str()).or_default() += count;
        }
        verbs
    }
}

impl FromIterator<Request> for Requests {
    fn from_iter<T: IntoIterator<Item = Request>>(requests: T) -> Self {
        let mut counts = BTreeMap::new();
        for request in requests {
            *counts.entry(request).or_default() += 1;
        }
        Self(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, resource: &str) -> Request {
        Request { verb: verb.into(), resource: resource.into() }
    }

    #[test]
    fn leases_are_told_apart_from_all_else() {
        let all = [("get", "leases"), ("update", "leases"), ("create", "pods"), ("create", "pods")];
        let all: Requests = all.map(|(verb, resource)| request(verb, resource)).into_iter().collect();
        let (leases, others) = all.split_leases();
        assert_eq!(leases.total(), 2);
        assert_eq!(others.count(&request("create", "pods")), 2);
        assert_eq!(others.by_verb(), BTreeMap::from([("create", 2)]));
    }

    #[test]
    fn counts_add_up() {
        let mut sum: Requests = [request("create", "pods")].into_iter().collect();
        sum.add([request("create", "pods"), request("patch", "kafkas/status")].into_iter().collect());
        assert_eq!(sum.total(), 3);
    }
}
