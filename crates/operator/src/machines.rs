//! The machines that pods run on, as far as somebody asks: one label, read once for each new pod. They are not watched, so
//! an operator needs no rights on them unless racks are used.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use karst_core::names::{ClusterKey, RACK_ANNOTATION};
use karst_core::plan::Racked;
use karst_core::world::Answer;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::failure::Failure;
use crate::hands::{Hands, few_at_once};
use crate::views::PodWire;

/// Why nothing is known of a machine that was not asked for.
const UNASKED: &str = "the API server did not answer for others";

impl Hands {
    /// Reads a label of each machine. That it cannot be read is an answer too.
    pub(crate) async fn racks(
        &self,
        machines: &BTreeMap<String, String>,
    ) -> BTreeMap<String, Answer<Option<String>>> {
        let api: Api<Node> = Api::all(self.client.clone());
        let api = &api;
        let asked = machines.iter().map(|(machine, label)| async move {
            let what = format!("could not read node {machine}");
            let answer = match self.call(&what, api.get_metadata(machine)).await {
                Ok(node) => Answer::Known(node.metadata.labels.and_then(|mut all| all.remove(label))),
                Err(failure) => Answer::Silent(failure.words()),
            };
            (machine.clone(), answer)
        });
        let is_silent = |(_, answer): &(String, Answer<_>)| matches!(answer, Answer::Silent(_));
        let unasked = |machine: &String| (machine.clone(), Answer::Silent(UNASKED.to_owned()));
        let mut answers: BTreeMap<_, _> = machines.keys().map(unasked).collect();
        answers.extend(few_at_once(asked.collect(), is_silent).await);
        answers
    }

    /// Writes on a pod which rack it is in.
    pub(crate) async fn tell_rack(&self, key: &ClusterKey, racked: &Racked) -> Result<(), Failure> {
        let what = format!("could not write the rack of pod {}", racked.pod);
        let patch =
            json!({ "metadata": { "uid": racked.uid, "annotations": { RACK_ANNOTATION: racked.rack } } });
        let api: Api<PodWire> = self.api(&key.namespace);
        let patched =
            self.call(&what, api.patch(&racked.pod, &PatchParams::default(), &Patch::Merge(&patch))).await?;
        self.learn(patched);
        Ok(())
    }
}
