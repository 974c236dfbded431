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
use crate::hands::Hands;
use crate::views::PodWire;

impl Hands {
    /// Reads a label of each machine. That it cannot be read is an answer too.
    pub(crate) async fn racks(
        &self,
        machines: &BTreeMap<String, String>,
    ) -> BTreeMap<String, Answer<Option<String>>> {
        let api: Api<Node> = Api::all(self.client.clone());
        let asked = machines.iter().map(async |(machine, label)| {
            let what = format!("could not read node {machine}");
            let answer = match self.call(&what, api.get_metadata(machine)).await {
                Ok(node) => Answer::Known(node.metadata.labels.and_then(|mut all| all.remove(label))),
                Err(failure) => Answer::Silent(failure.words()),
            };
            (machine.clone(), answer)
        });
        futures::future::join_all(asked).await.into_iter().collect()
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
