//! Certificates that users bring for listeners.
//!
//! They are in Secrets of the users, under names of their choice. Karst checks them and copies the good ones into a Secret of its
//! own, from which brokers load them: key and chain in one file, as Kafka wants it. What cannot be used is reported, and
//! what was good before stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use karst_api as api;
use karst_api::bounds;
use karst_certs::{Certificate, Stored, trust};

use crate::certificates::Issue;
use crate::cluster::Cluster;
use crate::listeners::{ClientListener, kept};
use crate::names::listeners_secret;
use crate::notice::{Meanwhile, Notice};
use crate::references::Reference;
use crate::world::World;

/// How long before its end a certificate is warned of, when that is less than a quarter of its life: tools that renew by themselves
/// do so before.
const ANNOUNCED: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Files, some of them secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Files {
    /// Without the contents: they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The longest entry of a user's Secret that is read. A certificate with its chain has a few kilobytes.
pub const LARGEST_ENTRY: usize = 256 << 10;
/// A cluster has no more listeners, whatever its resource says.
const MOST_LISTENERS: usize = bounds::LISTENERS as usize;

/// The Secrets that a cluster's listeners name, and which of their entries.
pub fn names(kafka: &api::Kafka) -> BTreeMap<String, BTreeSet<String>> {
    let mut names = BTreeMap::<_, BTreeSet<_>>::new();
    for listener in kafka.spec.kafka.listeners.iter().take(MOST_LISTENERS) {
        let configuration = listener.configuration.as_ref();
        let Some(own) = configuration.and_then(|all| all.broker_cert_chain_and_key.as_ref()) else {
            continue;
        };
        if !own.secret_name.trim().is_empty() {
            let entries = names.entry(own.secret_name.clone()).or_default();
            entries.extend([own.certificate.clone(), own.key.clone()]);
        }
    }
    names
}

/// The file with key and chain, as the broker of a listener loads it.
pub(crate) fn keystore(listener: &ClientListener) -> String {
    format!("{}-{}.pem", listener.name, listener.port)
}

/// The file with the chain alone, for those who ask what to trust.
fn chain(listener: &ClientListener) -> String {
    format!("{}-{}.crt", listener.name, listener.port)
}

fn copied(world: &World) -> Option<&Files> {
    world.secrets.get(&listeners_secret(&world.key.name))?.listeners()
}

/// Has the listener the certificate that it is to have?
pub(crate) fn is_there(world: &World, listener: &ClientListener) -> bool {
    let has = |files: &Files| files.0.contains_key(&keystore(listener));
    listener.own_certificate().is_none() || copied(world).is_some_and(has)
}

/// Was the user's Secret looked at, so that it is clear whether the listener can be served?
pub(crate) fn was_read(world: &World, listener: &ClientListener) -> bool {
    listener.own_certificate().is_none_or(|own| {
        is_there(world, listener)
            // Good ones are copied before anything else is done.
            || world.referenced.contains_key(&own.secret_name)
    })
}

/// The certificate that clients of the listener see first, in PEM.
pub(crate) fn published(world: &World, listener: &ClientListener) -> Option<String> {
    listener.own_certificate()?;
    let chain = copied(world)?.0.get(&chain(listener))?;
    String::from_utf8(chain.clone()).ok()
}

/// What came of looking at the users' certificates.
#[derive(Debug, Default)]
pub(crate) struct OwnCertificates {
    pub(crate) issue: Option<Issue>,
    pub(crate) notices: Vec<Notice>,
    /// When the next of them is about to end, or ends.
    pub(crate) look_again: Option<Duration>,
}

/// Decides what is to be copied.
pub(crate) fn next(world: &World, cluster: &Cluster) -> OwnCertificates {
    let mut result = OwnCertificates::default();
    let seen = copied(world);
    let mut files = BTreeMap::new();
    for listener in &cluster.listeners {
        let Some(own) = listener.own_certificate() else { continue };
        let kept = || {
            let names = [keystore(listener), chain(listener)];
            let kept = names.into_iter().filter_map(|name| Some((name.clone(), seen?.0.get(&name)?.clone())));
            kept.collect::<Vec<_>>()
        };
        match world.referenced.get(&own.secret_name).map(|referenced| read(referenced, own)) {
            // To be read in a moment.
            None => files.extend(kept()),
            Some(Ok((key, certificates))) => {
                files.insert(keystore(listener), [key, certificates.clone()].concat());
                files.insert(chain(listener), certificates);
            }
            Some(Err(why)) => {
                let kept = kept();
                let meanwhile = if !kept.is_empty() {
                    Meanwhile::LastGood
                } else if cluster.kept_listener(listener).shows_brokers {
                    Meanwhile::OfBrokers
                } else if kept::is_only_loaded(world, cluster, listener) {
                    Meanwhile::Loaded
                } else {
                    Meanwhile::Closed
                };
                result.notices.push(Notice::OwnCertificate {
                    listener: listener.name.clone(),
                    secret: own.secret_name.clone(),
                    why,
                    meanwhile,
                });
                files.extend(kept);
            }
        }
        if let Some(first) = files.get(&chain(listener)).and_then(|chain| first_to_end(chain)) {
            let (notice, next) = end(world, listener, own, &first);
            result.notices.extend(notice);
            result.look_again = result.look_again.into_iter().chain(next).min();
        }
    }
    let files = Files(files);
    let is_needed = seen.map_or(!files.0.is_empty(), |seen| *seen != files);
    if is_needed {
        result.issue = Some(Issue::Listeners { secret: listeners_secret(&world.key.name), files });
    }
    result
}

/// Of the certificates that clients see, the one that ends first: a chain is as good as each of its parts.
fn first_to_end(chain: &[u8]) -> Option<Certificate> {
    Certificate::all_from_pem(chain).ok()?.into_iter().min_by_key(|certificate| certificate.not_after)
}

/// What is to be said of the end of a certificate, and when there is something else to say.
fn end(
    world: &World,
    listener: &ClientListener,
    own: &api::CertificateAndKey,
    certificate: &Certificate,
) -> (Option<Notice>, Option<Duration>) {
    let end = certificate.not_after;
    let life = end.duration_since(certificate.not_before);
    let warned = end.checked_sub(ANNOUNCED.min(life / 4)).unwrap_or(end);
    let is_over = certificate.is_expired(world.now);
    let notice = (world.now >= warned).then(|| Notice::OwnCertificateEnds {
        listener: listener.name.clone(),
        secret: own.secret_name.clone(),
        entry: own.certificate.clone(),
        subject: certificate.subject.clone(),
        end,
        is_over,
    });
    let next = [warned, end].into_iter().find(|time| *time >= world.now);
    // Just after it: at the very instant a certificate is good.
    let next = next.and_then(|next| Duration::try_from(next.duration_since(world.now)).ok());
    (notice, next.map(|next| next.saturating_add(Duration::from_secs(1))))
}

/// Key and chain of a user's Secret, each ending with a new line; or what is wrong with them.
fn read(
    referenced: &Reference<Arc<Files>>,
    own: &api::CertificateAndKey,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let files = match referenced {
        Reference::Missing => {
            let (certificate, key) = (&own.certificate, &own.key);
            return Err(format!(
                "it does not exist; create it with the entries '{certificate}' and '{key}', or name another"
            ));
        }
        Reference::Unreadable(why) => return Err(format!("it cannot be read: {why}")),
        Reference::Found(files) => files,
    };
    let entry = |key: &str| {
        let there: Vec<_> = files.0.keys().map(String::as_str).collect();
        let missing =
            || format!("it has no entry '{key}' (it has: {}); add it, or name another", there.join(", "));
        let found = files.0.get(key).ok_or_else(missing)?;
        let unread = || {
            let most = LARGEST_ENTRY / 1024;
            format!("its entry '{key}' is empty or larger than {most} KiB, and such a one is not read")
        };
        (!found.is_empty()).then_some(found).ok_or_else(unread)
    };
    let (certificate, key) = (entry(&own.certificate)?, entry(&own.key)?);
    let readable = Certificate::all_from_pem(certificate);
    let certificates = readable.map_err(|why| {
        format!("its entry '{}' {why}; put the certificate and its chain there, in PEM", own.certificate)
    })?;
    let stored = Stored::read(certificate, key)
        .ok_or_else(|| format!("its entry '{}' is not a private key in PEM without a password", own.key))?;
    if !stored.has_its_key() {
        let (key, certificate) = (&own.key, &own.certificate);
        return Err(format!("its entry '{key}' is not the key of the certificate in '{certificate}'"));
    }
    let key = karst_certs::key::to_pkcs8(key).ok_or_else(|| {
        let (key, form) = (&own.key, "openssl pkcs8 -topk8 -nocrypt");
        format!("its entry '{key}' cannot be brought into the form that Kafka reads; convert it with {form}")
    })?;
    // Only what was read: an entry may hold more, such as the key, and what is published must not.
    Ok((lines(key.as_bytes()), trust::bundle(&certificates).into_bytes()))
}

fn lines(pem: &[u8]) -> Vec<u8> {
    let mut text = pem.trim_ascii().to_vec();
    text.push(b'\n');
    text
}
