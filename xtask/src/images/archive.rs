//! Images as containerd imports them: a tar of layers, one configuration for each image, and a manifest
//! that says what belongs together. Layers that images share are written once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::layer::Layer;
use crate::hash;

#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The full name, such as `docker.io/apache/kafka:4.1.1`.
    pub reference: String,
    /// From the bottom to the top.
    pub layers: Vec<Layer>,
    /// What a container of this image runs: entry point, user, environment.
    pub config: Value,
}

impl Image {
    /// The hash of all that makes up the image.
    pub(crate) fn identity(&self) -> String {
        hash::of_bytes(self.configuration().to_string().as_bytes())
    }

    fn configuration(&self) -> Value {
        let layers: Vec<_> = self.layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": layers },
        })
    }
}

/// The name that images give to this machine's processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(crate) fn write(images: &[&Image], target: impl Write) -> Result<()> {
    let mut tar = tar::Builder::new(target);
    let mut written = BTreeSet::new();
    for layer in images.iter().flat_map(|image| &image.layers) {
        if written.insert(&layer.digest) {
            let mut file =
                File::open(&layer.file).with_context(|| format!("opening {}", layer.file.display()))?;
            tar.append_file(layer_name(layer), &mut file)?;
        }
    }
    let mut manifest = Vec::new();
    for image in images {
        let configuration = format!("{}.json", image.identity());
        append_json(&mut tar, &configuration, &image.configuration())?;
        let layers: Vec<_> = image.layers.iter().map(layer_name).collect();
        manifest.push(json!({ "Config": configuration, "RepoTags": [image.reference], "Layers": layers }));
    }
    append_json(&mut tar, "manifest.json", &Value::Array(manifest))?;
    tar.finish()?;
    Ok(())
}

fn layer_name(layer: &Layer) -> String {
    format!("{}.tar", layer.digest)
}

fn append_json(tar: &mut tar::Builder<impl Write>, name: &str, content: &Value) -> Result<()> {
    let content = content.to_string();
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, name, content.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::path::Path;

    fn layer(directory: &Path, content: &str) -> Layer {
        let digest = hash::of_bytes(content.as_bytes());
        let file = directory.join(&digest);
        std::fs::write(&file, content).unwrap();
        Layer { file, digest }
    }

    fn image(reference: &str, layers: Vec<Layer>) -> Image {
        Image { reference: reference.to_owned(), layers, config: json!({}) }
    }

    #[test]
    fn a_shared_layer_is_written_once_and_named_by_both_images() {
        let directory = tempfile::tempdir().unwrap();
        let (base, one, two) = ("base", "one", "two");
        let base = layer(directory.path(), base);
        let first = image("first:1", vec![base.clone(), layer(directory.path(), one)]);
        let second = image("second:1", vec![base.clone(), layer(directory.path(), two)]);

        let mut bytes = Vec::new();
        write(&[&first, &second], &mut bytes).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert!(files.insert(name, text).is_none(), "a file was written twice");
        }

        let manifest: Value = serde_json::from_str(&files["manifest.json"]).unwrap();
        for image in manifest.as_array().unwrap() {
            assert_eq!(image["Layers"][0], layer_name(&base));
            assert!(files.contains_key(image["Config"].as_str().unwrap()));
        }
        assert_eq!(files.values().filter(|text| *text == "base").count(), 1);
    }

    #[test]
    fn another_layer_or_another_user_is_another_image() {
        let directory = tempfile::tempdir().unwrap();
        let plain = image("a:1", vec![layer(directory.path(), "one")]);
        let changed = image("a:1", vec![layer(directory.path(), "two")]);
        let other_user = Image { config: json!({ "User": "1000" }), ..plain.clone() };
        assert_ne!(plain.identity(), changed.identity());
        assert_ne!(plain.identity(), other_user.identity());
    }
}
