//! The configuration files of an instance's components, filled in from the templates in `local/config`.
//!
//! Every instance has a network namespace of its own, so all of them use the same addresses and ports.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Instance;

pub(crate) const BRIDGE: &str = "karst0";
/// The node's own address, at which pods find the API server's and the DNS server's door.
pub(crate) const GATEWAY: &str = "10.85.0.1";
pub(crate) const GATEWAY_WITH_MASK: &str = "10.85.0.1/16";
pub(crate) const PODS: &str = "10.85.0.0/16";
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The first address of the services' range is that of the API server.
pub(crate) const API_SERVICE: &str = "10.96.0.1";
pub(crate) const API_PORT: u16 = 6443;
pub(crate) const NODE: &str = "karst";
pub(crate) const PAUSE_IMAGE: &str = "docker.io/karst/pause:local";
/// Where CNI plugins are: by Debian, by everybody else, by Fedora.
const CNI_PLACES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
/// Those that `cni.conflist` names, and the one that every pod needs.
const CNI_PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];

/// The first place that has all the plugins that are needed.
pub(crate) fn cni_plugins() -> Option<&'static str> {
    CNI_PLACES
        .into_iter()
        .find(|place| CNI_PLUGINS.iter().all(|plugin| Path::new(place).join(plugin).is_file()))
}

const FILES: [(&str, &str); 7] = [
    ("containerd.toml", include_str!("../../../local/config/containerd.toml")),
    ("cni/karst.conflist", include_str!("../../../local/config/cni.conflist")),
    ("kubelet.yaml", include_str!("../../../local/config/kubelet.yaml")),
    ("kube-proxy.yaml", include_str!("../../../local/config/kube-proxy.yaml")),
    ("Corefile", include_str!("../../../local/config/Corefile")),
    ("audit-policy.yaml", include_str!("../../../local/config/audit-policy.yaml")),
    ("resolv.conf", include_str!("../../../local/config/resolv.conf")),
];

pub(crate) fn write(instance: &Instance) -> Result<()> {
    for (name, template) in FILES {
        let path = instance.state().join("config").join(name);
        fs::write(&path, fill(template, instance)).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn fill(template: &str, instance: &Instance) -> String {
    template
        .replace("{state}", &instance.state().to_string_lossy())
        .replace("{cgroup}", instance.cgroup().name())
        .replace("{bridge}", BRIDGE)
        .replace("{gateway}", GATEWAY)
        .replace("{pods}", PODS)
        .replace("{node}", NODE)
        .replace("{pause_image}", PAUSE_IMAGE)
        .replace("{cni_plugins}", cni_plugins().unwrap_or(CNI_PLACES[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_placeholder_is_left_open() {
        let instance = Instance::named(&"karst".parse().unwrap()).unwrap();
        for (name, template) in FILES {
            let filled = fill(template, &instance);
            // A name in braces without spaces is a placeholder; JSON and the Corefile have spaces inside.
            let open = filled.split('{').skip(1).any(|rest| {
                rest.split_once('}').is_some_and(|(inner, _)| {
                    !inner.is_empty() && inner.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                })
            });
            assert!(!open, "{name} has a placeholder that nothing fills:\n{filled}");
        }
    }
}
