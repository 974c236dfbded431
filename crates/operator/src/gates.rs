//! Feature gates, as Strimzi's users write them: `+KafkaNodePools,-SomethingElse`.
//!
//! Karst has none of its own. It understands those that it could not run without, so that settings that were written
//! for Strimzi say the same here or are refused.

use anyhow::bail;

/// Gates that stand for what Karst always does.
const ALWAYS_ON: &[(&str, &str)] = &[
    ("KafkaNodePools", "Karst runs every cluster with node pools, real or virtual"),
    ("UseKRaft", "Karst runs Kafka in KRaft mode only"),
];

/// Gates that Strimzi has or had, and that have no meaning here.
const WITHOUT_MEANING: &[&str] = &[
    "ContinueReconciliationOnManualRollingUpdateFailure",
    "ControlPlaneListener",
    "ServiceAccountPatching",
    "ServerSideApplyPhase1",
    "StableConnectIdentities",
    "UnidirectionalTopicOperator",
    "UseBackgroundPodDeletion",
    "UseConnectBuildWithBuildah",
    "UseServerSideApply",
    "UseStrimziPodSets",
];

/// Checks the gates. Returns those that have no effect, to be warned about.
pub(crate) fn check(text: &str) -> anyhow::Result<Vec<String>> {
    let mut seen = Vec::new();
    let mut without_effect = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (is_on, name) = match (part.strip_prefix('+'), part.strip_prefix('-')) {
            (Some(name), _) => (true, name),
            (_, Some(name)) => (false, name),
            _ => bail!(
                "STRIMZI_FEATURE_GATES has '{part}'; write +{part} to switch it on, or -{part} to switch it off"
            ),
        };
        if seen.contains(&name) {
            bail!("STRIMZI_FEATURE_GATES names {name} twice");
        }
        seen.push(name);
        match ALWAYS_ON.iter().find(|(known, _)| *known == name) {
            Some((_, why)) if !is_on => {
                bail!("STRIMZI_FEATURE_GATES has -{name}, which is not possible: {why}")
            }
            Some(_) => {}
            None if WITHOUT_MEANING.contains(&name) => without_effect.push(name.to_owned()),
            None => {
                let known: Vec<_> = ALWAYS_ON.iter().map(|(known, _)| *known).collect();
                bail!(
                    "STRIMZI_FEATURE_GATES has '{name}', which is unknown; Karst knows {}",
                    known.join(" and ")
                )
            }
        }
    }
    Ok(without_effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_karst_always_does_can_be_on_but_not_off() {
        assert_eq!(check("").unwrap(), [] as [String; 0]);
        assert_eq!(check("+KafkaNodePools,+UseKRaft").unwrap(), [] as [String; 0]);
        let error = check("+KafkaNodePools,-UseKRaft").unwrap_err().to_string();
        assert!(error.contains("-UseKRaft") && error.contains("KRaft mode only"), "{error}");
    }

    #[test]
    fn gates_of_strimzi_are_warned_about_and_unknown_ones_refused() {
        assert_eq!(check("+UseServerSideApply, -UseBackgroundPodDeletion").unwrap().len(), 2);
        for bad in ["+Nonsense", "KafkaNodePools", "+UseKRaft,+UseKRaft"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
