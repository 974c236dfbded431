//! Where the node runs: the address of its Kubernetes node, put into the settings that advertise it.
//!
//! The operator cannot know it when it writes the settings, and it changes when the pod moves. The pod is told by Kubernetes.

use std::net::Ipv6Addr;

use thiserror::Error;

/// Stands for the address in `advertised.listeners`.
const IP: &str = "@node-ip@";
/// Stands for the name.
const NAME: &str = "@node-name@";
/// The only setting in which they stand for something.
const KEY: &[u8] = b"advertised.listeners=";

/// What the pod was told about its Kubernetes node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub ip: Option<String>,
    pub name: Option<String>,
}

/// Something that is to be advertised and that nobody told.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "`advertised.listeners` is to have the {what} of the Kubernetes node, and the variable {variable} is not set"
)]
pub struct Untold {
    pub what: &'static str,
    pub variable: &'static str,
}

/// The settings with the place in them; `None` when they do not ask for it.
///
/// # Errors
/// When they ask for something that is not known.
pub fn resolve(server_config: &[u8], place: &Place) -> Result<Option<Vec<u8>>, Untold> {
    let asks = |line: &[u8], what: &str| line.windows(what.len()).any(|part| part == what.as_bytes());
    let mut out = Vec::with_capacity(server_config.len());
    let mut is_changed = false;
    for line in server_config.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(KEY) || !(asks(line, IP) || asks(line, NAME)) {
            out.extend_from_slice(line);
            continue;
        }
        let mut text = String::from_utf8_lossy(line).into_owned();
        for (stands_for, told, what, variable) in
            [(IP, &place.ip, "address", "KARST_NODE_IP"), (NAME, &place.name, "name", "KARST_NODE_NAME")]
        {
            if text.contains(stands_for) {
                let told = told.as_ref().filter(|told| !told.is_empty()).ok_or(Untold { what, variable })?;
                text = text.replace(stands_for, &host(told));
            }
        }
        out.extend_from_slice(text.as_bytes());
        is_changed = true;
    }
    Ok(is_changed.then_some(out))
}

/// As Kafka wants it before a port.
fn host(told: &str) -> String {
    if told.parse::<Ipv6Addr>().is_ok() { format!("[{told}]") } else { told.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ip: &str) -> Place {
        Place { ip: Some(ip.to_owned()), name: Some("machine-1".to_owned()) }
    }

    fn resolved(text: &str, place: &Place) -> Result<Option<String>, Untold> {
        Ok(resolve(text.as_bytes(), place)?.map(|bytes| String::from_utf8(bytes).unwrap()))
    }

    #[test]
    fn the_place_is_put_where_it_is_advertised_and_nowhere_else() {
        let text = "node.id=1\nadvertised.listeners=A://pod:9091,B://@node-ip@:31000,C://@node-name@:31001\nx=@node-ip@\n";
        assert_eq!(
            resolved(text, &place("10.0.0.1")).unwrap().unwrap(),
            "node.id=1\nadvertised.listeners=A://pod:9091,B://10.0.0.1:31000,C://machine-1:31001\nx=@node-ip@\n"
        );
        assert!(resolved(text, &place("fd00::1")).unwrap().unwrap().contains("B://[fd00::1]:31000"));
    }

    #[test]
    fn settings_that_do_not_ask_stay_as_they_are() {
        assert_eq!(resolved("advertised.listeners=A://pod:9091\nx=@node-ip@", &Place::default()), Ok(None));
    }

    #[test]
    fn a_place_that_nobody_told_is_named() {
        let error = resolved("advertised.listeners=A://@node-ip@:1", &Place::default()).unwrap_err();
        assert!(error.to_string().contains("KARST_NODE_IP"), "{error}");
        let empty = Place { ip: Some(String::new()), name: None };
        assert!(resolved("advertised.listeners=A://@node-ip@:1", &empty).is_err());
    }
}
