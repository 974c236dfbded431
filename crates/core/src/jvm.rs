//! The JVM's arguments: heap, and what the user sets.

use std::collections::BTreeMap;

use karst_api as api;

use crate::quantity::Quantity;

const GIB: i128 = 1024 * 1024 * 1024;
/// Kafka lives from the page cache: more heap than this takes memory away from it.
const LARGEST_HEAP: i128 = 5 * GIB;

/// Java remembers addresses for half a minute, and for ten seconds that a name has none. A pod that restarts has another
/// address: what is remembered only keeps nodes from finding each other. DNS servers in a cluster are near.
pub(crate) const SECURITY: &str = "networkaddress.cache.ttl=1\nnetworkaddress.cache.negative.ttl=0\n";
/// Where the node finds [`SECURITY`].
const SECURITY_FILE: &str = "/opt/kafka/custom-config/java.security";

/// The arguments, one a line, as the launcher reads them.
///
/// `memory` is what the container may use, when it is limited.
pub(crate) fn options(wanted: Option<&api::JvmOptions>, memory: Option<Quantity>) -> String {
    let default = api::JvmOptions::default();
    let wanted = wanted.unwrap_or(&default);
    let xx = wanted.xx.clone().unwrap_or_default();
    let mut arguments = vec![format!("-Djava.security.properties={SECURITY_FILE}")];
    arguments.extend(heap(wanted, &xx, memory));
    arguments.extend(xx_arguments(&xx));
    for property in wanted.java_system_properties.iter().flatten() {
        let name = property.name.as_deref().unwrap_or_default();
        arguments.push(format!("-D{name}={}", property.value.as_deref().unwrap_or_default()));
    }
    if wanted.gc_logging_enabled == Some(true) {
        arguments.push("-Xlog:gc*".to_owned());
    }
    arguments.retain(|argument| !argument.contains(['\n', '\r']));
    arguments.iter().map(|argument| format!("{argument}\n")).collect()
}

fn heap(wanted: &api::JvmOptions, xx: &BTreeMap<String, String>, memory: Option<Quantity>) -> Vec<String> {
    let given: Vec<_> = [("-Xms", &wanted.xms), ("-Xmx", &wanted.xmx)]
        .into_iter()
        .filter_map(|(option, value)| value.as_ref().map(|value| format!("{option}{value}")))
        .collect();
    if wanted.xmx.is_some() || xx.contains_key("MaxRAMPercentage") {
        return given;
    }
    match memory {
        Some(memory) => {
            let half = (memory.units() / 2).min(LARGEST_HEAP);
            // A JVM that is to begin with more than it may have does not start.
            let first = wanted.xms.as_deref().and_then(bytes).unwrap_or(half);
            vec![format!("-Xms{first}"), format!("-Xmx{}", half.max(first))]
        }
        None if given.is_empty() => vec!["-Xms128M".to_owned()],
        None => given,
    }
}

/// A size as the JVM reads it.
fn bytes(size: &str) -> Option<i128> {
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match size.get(digits.len()..)? {
        "" => 1,
        "k" | "K" => 1024,
        "m" | "M" => 1024 * 1024,
        "g" | "G" => GIB,
        _ => return None,
    };
    digits.parse::<i128>().ok()?.checked_mul(unit)
}

/// Unlocking options come first: the JVM refuses what it has not unlocked yet.
fn xx_arguments(xx: &BTreeMap<String, String>) -> impl Iterator<Item = String> + '_ {
    let (unlocking, others): (Vec<_>, Vec<_>) = xx.iter().partition(|(key, _)| key.starts_with("Unlock"));
    unlocking.into_iter().chain(others).map(|(key, value)| match value.as_str() {
        "true" => format!("-XX:+{key}"),
        "false" => format!("-XX:-{key}"),
        value => format!("-XX:{key}={value}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(wanted: serde_json::Value, memory: Option<&str>) -> Vec<String> {
        let wanted = serde_json::from_value(wanted).unwrap();
        let text = options(Some(&wanted), memory.map(|memory| memory.parse().unwrap()));
        let mut lines = text.lines().map(str::to_owned);
        assert_eq!(lines.next(), Some(format!("-Djava.security.properties={SECURITY_FILE}")));
        lines.collect()
    }

    #[test]
    fn the_heap_is_half_of_the_memory_and_never_above_five_gibibytes() {
        assert_eq!(of(json!({}), Some("2Gi")), ["-Xms1073741824", "-Xmx1073741824"]);
        assert_eq!(of(json!({}), Some("64Gi")), ["-Xms5368709120", "-Xmx5368709120"]);
        assert_eq!(of(json!({}), None), ["-Xms128M"]);
    }

    #[test]
    fn what_the_user_says_of_the_heap_wins() {
        assert_eq!(of(json!({"-Xmx": "3g", "-Xms": "1g"}), Some("64Gi")), ["-Xms1g", "-Xmx3g"]);
        let percentage = json!({"-XX": {"MaxRAMPercentage": "70"}});
        assert_eq!(of(percentage, Some("64Gi")), ["-XX:MaxRAMPercentage=70"]);
    }

    #[test]
    fn the_first_heap_alone_leaves_the_largest_to_the_memory() {
        assert_eq!(of(json!({"-Xms": "512m"}), Some("2Gi")), ["-Xms536870912", "-Xmx1073741824"]);
        assert_eq!(of(json!({"-Xms": "3g"}), Some("4Gi")), ["-Xms3221225472", "-Xmx3221225472"]);
        assert_eq!(of(json!({"-Xms": "512m"}), None), ["-Xms512m"]);
    }

    #[test]
    fn properties_and_the_log_of_the_collector_are_passed_on() {
        let wanted = json!({"-Xmx": "1g", "gcLoggingEnabled": true,
                            "javaSystemProperties": [{"name": "javax.net.debug", "value": "ssl"}]});
        assert_eq!(of(wanted, None), ["-Xmx1g", "-Djavax.net.debug=ssl", "-Xlog:gc*"]);
        assert_eq!(of(json!({"-Xmx": "1g", "gcLoggingEnabled": false}), None), ["-Xmx1g"]);
    }

    #[test]
    fn unlocking_comes_before_what_it_unlocks() {
        let xx = json!({"-Xmx": "1g", "-XX": {"AlwaysPreTouch": "true", "UnlockExperimentalVMOptions": "true", "UseG1GC": "false"}});
        let expected = ["-Xmx1g", "-XX:+UnlockExperimentalVMOptions", "-XX:+AlwaysPreTouch", "-XX:-UseG1GC"];
        assert_eq!(of(xx, None), expected);
    }

    #[test]
    fn a_property_cannot_smuggle_in_another_argument() {
        let property =
            json!({"-Xmx": "1g", "javaSystemProperties": [{"name": "a", "value": "b\n-javaagent:x"}]});
        assert_eq!(of(property, None), ["-Xmx1g"]);
    }
}
