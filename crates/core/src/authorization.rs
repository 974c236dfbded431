//! Who may do what: the authorizer of all nodes, and who is above it.
//!
//! Nodes and the operator are above it whatever users write: a cluster whose own brokers are refused stops.

use std::collections::{BTreeMap, BTreeSet};

use karst_api as api;

use crate::problem::Problem;
use crate::properties::Properties;

/// Kafka's own authorizer. Its rules are kept in the cluster's metadata.
const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
/// The setting that lists who may do everything.
pub(crate) const SUPER_USERS: &str = "super.users";
/// What separates principals in Kafka's list.
const SEPARATOR: char = ';';

/// Access control that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    class: String,
    super_users: Vec<String>,
}

impl Authorization {
    /// Reads what users wrote.
    pub(crate) fn read(written: Option<&api::Authorization>, problems: &mut Vec<Problem>) -> Option<Self> {
        let written = written?;
        let class = match written.type_ {
            api::AuthorizationType::Simple => STANDARD.to_owned(),
            api::AuthorizationType::Custom => {
                let class = written.authorizer_class.as_deref().map(str::trim).unwrap_or_default();
                if class.is_empty() || class.contains(char::is_whitespace) {
                    problems.push(Problem::AuthorizerClass { class: class.to_owned() });
                }
                class.to_owned()
            }
        };
        let mut super_users = Vec::new();
        for (index, user) in written.super_users.iter().flatten().enumerate() {
            if user.trim().is_empty() || user.contains(SEPARATOR) || user.contains(['\n', '\r']) {
                problems.push(Problem::SuperUser { index, user: user.clone() });
            }
            super_users.push(principal(user.trim()));
        }
        Some(Self { class, super_users })
    }

    /// Puts it into the settings of a node of this cluster. `super_users` are those in another order.
    pub(crate) fn add_to(&self, config: &mut Properties, cluster: &str, super_users: Option<&str>) {
        config.set("authorizer.class.name", &self.class);
        config.set(SUPER_USERS, super_users.map_or_else(|| self.super_users(cluster), str::to_owned));
    }

    /// Who may do everything, in the order in which the node has them already, when that is another one. A restart for another order
    /// would be for nothing.
    pub(crate) fn ordered_as(&self, written: &str, cluster: &str) -> Option<String> {
        let wanted = self.super_users(cluster);
        if Properties::escaped(&wanted) == written {
            return None;
        }
        let places = written.split(SEPARATOR).enumerate().map(|(place, user)| (user, place));
        let places: BTreeMap<&str, usize> = places.collect();
        let place = |user: &&str| places.get(&*Properties::escaped(user)).copied().unwrap_or(usize::MAX);
        let mut users: Vec<_> = wanted.split(SEPARATOR).collect();
        users.sort_by_cached_key(place);
        Some(users.join(&SEPARATOR.to_string())).filter(|ordered| *ordered != wanted)
    }

    fn super_users(&self, cluster: &str) -> String {
        let own = [format!("{cluster}-kafka"), "cluster-operator".to_owned()];
        let own = own.iter().map(|name| format!("User:CN={name},O=io.strimzi"));
        let mut seen = BTreeSet::new();
        let users = own.chain(self.super_users.iter().cloned()).filter(|user| seen.insert(user.clone()));
        let users: Vec<String> = users.collect();
        users.join(&SEPARATOR.to_string())
    }
}

/// Users write names such as `CN=alice` or `bob`; Kafka wants the kind of principal before it.
fn principal(user: &str) -> String {
    if user.starts_with("User:") { user.to_owned() } else { format!("User:{user}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(written: Value) -> (Properties, Vec<String>) {
        let written = serde_json::from_value(written).unwrap();
        let mut problems = Vec::new();
        let read = Authorization::read(Some(&written), &mut problems).unwrap();
        let mut config = Properties::default();
        read.add_to(&mut config, "my-cluster", None);
        (config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nodes_and_the_operator_may_do_everything_and_users_add_others() {
        let (config, problems) =
            read(json!({"type": "simple", "superUsers": ["CN=alice", "User:bob", "bob"]}));
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(config.get("authorizer.class.name"), Some(STANDARD));
        assert_eq!(
            config.get("super.users"),
            Some(
                "User:CN=my-cluster-kafka,O=io.strimzi;User:CN=cluster-operator,O=io.strimzi;User:CN=alice;User:bob"
            )
        );
    }

    #[test]
    fn a_class_of_the_users_is_used_and_must_be_named() {
        let (config, problems) = read(json!({"type": "custom", "authorizerClass": "com.example.Mine"}));
        assert_eq!((config.get("authorizer.class.name"), problems.len()), (Some("com.example.Mine"), 0));
        assert_eq!(read(json!({"type": "custom"})).1.len(), 1);
    }

    /// It would take minutes if each were looked for among all others.
    #[test]
    fn very_many_super_users_are_no_more_work_each() {
        let users: Vec<_> = (0..200_000).map(|user| format!("CN=user-{user}")).collect();
        let (config, _) = read(json!({"type": "simple", "superUsers": users}));
        assert!(config.get("super.users").is_some_and(|users| users.ends_with("User:CN=user-199999")));
    }

    #[test]
    fn one_entry_cannot_smuggle_in_another() {
        let (_, problems) = read(json!({"type": "simple", "superUsers": ["alice;User:mallory", " "]}));
        assert_eq!(problems.len(), 2);
        assert!(
            problems[0].starts_with("spec.kafka.authorization.superUsers[0] is 'alice;User:mallory'"),
            "{problems:?}"
        );
    }
}
