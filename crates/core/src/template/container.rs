//! What users add to the containers of a pod, or replace in them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvVar, SecurityContext, VolumeMount};
use karst_api as api;

use super::free_form;
use crate::problem::Problem;

/// Where additional volumes may be mounted: nothing that Kafka or the launcher needs is below it.
const MOUNTS: &str = "/mnt/";

/// What users say about a container.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ContainerTemplate {
    pub(crate) env: Option<Vec<EnvVar>>,
    /// Instead of the one that Karst sets.
    pub(crate) security_context: Option<SecurityContext>,
    /// In addition to those that the container needs.
    pub(crate) volume_mounts: Vec<VolumeMount>,
}

impl ContainerTemplate {
    /// Reads the template at `field`. What cannot be used is reported and left out.
    pub(super) fn read(
        field: &str,
        written: Option<&api::ContainerTemplate>,
        volumes: &Volumes<'_>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let Some(written) = written else { return Self::default() };
        let at = |part: &str| format!("{field}.{part}");
        Self {
            env: free_form::list(&at("env"), written.env.as_ref(), problems),
            security_context: free_form::one(
                &at("securityContext"),
                written.security_context.as_ref(),
                problems,
            ),
            volume_mounts: mounts(&at("volumeMounts"), written.volume_mounts.as_ref(), volumes, problems),
        }
    }
}

/// The volumes that can be mounted.
pub(super) struct Volumes<'a> {
    /// Where they are written.
    pub(super) field: String,
    /// What they are called.
    pub(super) names: BTreeSet<&'a str>,
}

fn mounts(
    field: &str,
    written: Option<&Vec<api::FreeForm>>,
    volumes: &Volumes<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<VolumeMount> {
    let mut mounts = Vec::new();
    let mut paths = BTreeSet::new();
    for (index, written) in written.into_iter().flatten().enumerate() {
        let field = format!("{field}[{index}]");
        if let Some(mount) = free_form::one::<VolumeMount>(&field, Some(written), problems) {
            let is_new = paths.insert(mount.mount_path.trim_end_matches('/').to_owned());
            problems.extend(path_problem(&field, &mount.mount_path, is_new));
            problems.extend(volume_problem(&field, &mount.name, volumes));
            mounts.push(mount);
        }
    }
    mounts
}

fn path_problem(field: &str, path: &str, is_new: bool) -> Option<Problem> {
    let below = path.strip_prefix(MOUNTS);
    let is_inside = below.is_some_and(|below| !below.is_empty() && below.split('/').all(|part| part != ".."));
    let (found, advice) = match (is_inside, is_new) {
        (true, true) => return None,
        (true, false) => {
            (format!("is '{path}', where another volume is mounted"), "choose another path".into())
        }
        (false, _) => (
            format!("is '{path}'"),
            format!("additional volumes are mounted below {MOUNTS}, for example at {MOUNTS}plugins"),
        ),
    };
    Some(Problem::Template { field: format!("{field}.mountPath"), found, advice })
}

fn volume_problem(field: &str, name: &str, volumes: &Volumes<'_>) -> Option<Problem> {
    (!volumes.names.contains(name)).then(|| Problem::Template {
        field: format!("{field}.name"),
        found: format!("is '{name}', and {} has no such volume", volumes.field),
        advice: "add the volume there, or correct the name".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problems(mounts: &Value) -> Vec<String> {
        let written = serde_json::from_value(json!({"volumeMounts": mounts})).unwrap();
        let volumes = Volumes { field: "p.volumes".into(), names: ["plugins"].into() };
        let mut problems = Vec::new();
        ContainerTemplate::read("c", Some(&written), &volumes, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn additional_volumes_are_mounted_where_nothing_of_ours_is() {
        assert_eq!(problems(&json!([{"name": "plugins", "mountPath": "/mnt/plugins"}])), [""; 0]);
        for path in ["/opt/kafka/custom-config", "/mnt", "/mnt/", "/mnt/../karst", "mnt/x", "/mntx/y"] {
            let problems = problems(&json!([{"name": "plugins", "mountPath": path}]));
            let start = format!("c.volumeMounts[0].mountPath is '{path}'; ");
            assert!(problems.len() == 1 && problems[0].starts_with(&start), "{problems:?}");
        }
    }

    #[test]
    fn a_path_holds_one_volume() {
        let mount = |path: &str| json!({"name": "plugins", "mountPath": path});
        let problems = problems(&json!([mount("/mnt/a"), mount("/mnt/a/")]));
        assert!(problems[0].starts_with("c.volumeMounts[1].mountPath is '/mnt/a/', where"), "{problems:?}");
    }

    #[test]
    fn only_additional_volumes_can_be_mounted() {
        let problems = problems(&json!([{"name": "data-0", "mountPath": "/mnt/data"}]));
        assert!(problems[0].starts_with("c.volumeMounts[0].name is 'data-0', and p.volumes has no such"));
    }
}
