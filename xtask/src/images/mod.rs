//! The container images of the embedded Kubernetes. No registry is involved: they are put together here
//! from what package registries have, and handed to containerd.

pub(crate) mod archive;
pub(crate) mod base;
mod classes;
pub(crate) mod kafka;
pub(crate) mod layer;
mod maven;
pub(crate) mod operator;
mod pins;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

use crate::binaries::Binaries;
use crate::cache::{Cache, Entry};
use crate::command;
use crate::hash::{self, Hasher};
use crate::instance::{Instance, configuration, namespaces};
use archive::Image;
use layer::Layer;

/// The images that every instance needs, whatever is developed on it.
pub(crate) fn foundation(cache: &Cache, binaries: &Binaries) -> Result<Vec<Image>> {
    let mut images = vec![pause(cache, binaries)?];
    images.extend(kafka::images(cache, kafka::USUAL)?);
    Ok(images)
}

fn pause(cache: &Cache, binaries: &Binaries) -> Result<Image> {
    let program = binaries.program("pause");
    let key = Hasher::default().part(hash::of_file(&program)?);
    let entry = Entry { name: "pause-image", key, doing: "Packing the pause image" };
    let layer = Layer::cached(cache, entry, |files| files.program("pause", &program))?;
    Ok(Image {
        reference: configuration::PAUSE_IMAGE.to_owned(),
        layers: vec![layer],
        config: json!({ "Entrypoint": ["/pause"] }),
    })
}

/// Hands images to the instance's containerd, and tells which of them it did not have in this form.
pub(crate) fn load(instance: &Instance, images: &[Image]) -> Result<Vec<String>> {
    let mut loaded = Loaded::read(instance);
    let new: Vec<&Image> = images.iter().filter(|image| !loaded.has(image)).collect();
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let mut import = namespaces::inside(instance, "ctr")?;
    import.args(["--namespace", "k8s.io", "images", "import", "-"]);
    command::run_with_input(&mut import, |input| archive::write(&new, input))
        .context("containerd does not take the images")?;
    for image in &new {
        loaded.add(image);
    }
    loaded.write()?;
    Ok(new.into_iter().map(|image| image.reference.clone()).collect())
}

/// What an instance's containerd was given: the identity of each image by its reference.
struct Loaded {
    file: PathBuf,
    identities: BTreeMap<String, String>,
}

impl Loaded {
    fn read(instance: &Instance) -> Self {
        let file = instance.state().join("images.json");
        let identities =
            fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { file, identities }
    }

    fn has(&self, image: &Image) -> bool {
        self.identities.get(&image.reference) == Some(&image.identity())
    }

    fn add(&mut self, image: &Image) {
        self.identities.insert(image.reference.clone(), image.identity());
    }

    fn write(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(&self.identities)?;
        fs::write(&self.file, text).with_context(|| format!("writing {}", self.file.display()))
    }
}
