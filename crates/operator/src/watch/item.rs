//! One object of a list or of a watch, decoded by itself.
//!
//! What arrives is cut into objects without looking into them, which works however large, deep or odd they are. Then each is decoded
//! for itself, so one that cannot be read harms no other. Of such an object nothing is ever repeated but its metadata: errors of the
//! decoder quote what they choke on, and that may be a password.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api::Condition;
use karst_core::names::{CLUSTER_LABEL, POOL_LABEL};
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::index::CONTROLLER_NAME_LABEL;
use crate::panics::contain;

/// An object may have one list or map for so many of the bytes that it may have. A large `Kafka` has less than a thousand of them.
const BYTES_FOR_EACH: usize = 50;
/// Of kinds whose size has no bound, such as pod sets with hundreds of pods.
const MOST_NESTED: usize = 50_000;
/// How many entries each of them may have on average.
const ENTRIES_FOR_EACH: usize = 5;

/// The labels by which an object that cannot be read finds its way to those who must know.
const ROUTES: [&str; 3] = [CLUSTER_LABEL, POOL_LABEL, CONTROLLER_NAME_LABEL];
/// How many conditions are kept of a status that nobody can read.
const CONDITIONS: usize = 100;

/// So many parts of a path tell where to look.
const DEEPEST_SHOWN: usize = 8;

/// An object, or what is known of one that cannot be read.
pub(crate) type Read<K> = Result<K, Unreadable>;

/// An object that exists, and cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    /// What it is.
    pub(crate) kind: String,
    pub(crate) api_version: String,
    /// Who it is: name, namespace, uid, version and labels, and nothing else.
    pub(crate) meta: ObjectMeta,
    /// What its status says, if that can be read.
    pub(crate) conditions: Option<Vec<Condition>>,
    /// What is wrong with it, without its content.
    pub(crate) why: String,
}

/// Not even its metadata can be read. The API server stores no such object.
#[derive(Debug)]
pub(crate) struct Nameless;

/// Who an object is, whether or not it can be read.
pub(crate) fn meta<K: Resource>(read: &Read<K>) -> &ObjectMeta {
    match read {
        Ok(object) => object.meta(),
        Err(unreadable) => &unreadable.meta,
    }
}

/// Decodes an object of at most this many bytes.
pub(crate) fn read<K>(text: &RawValue, largest: usize) -> Result<Read<K>, Nameless>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let size = text.get().len();
    if size > largest {
        let why = format!("it has {} KiB, and no more than {} KiB are read", size / 1024, largest / 1024);
        return unreadable::<K>(text, why).map(Err);
    }
    if let Some(why) = too_many_parts(text.get(), largest) {
        return unreadable::<K>(text, why).map(Err);
    }
    let decoded = contain(|| serde_json::from_str(text.get()).map_err(|_| where_it_fails::<K>(text.get())));
    match decoded.map_err(|panicked| panicked.to_string()).flatten() {
        Ok(object) => Ok(Ok(object)),
        Err(why) => unreadable::<K>(text, why).map(Err),
    }
}

/// Makes something of an object that was read, and says these conditions. One that makes this panic cannot be read: it harms its
/// cluster, and no other.
pub(crate) fn contained<K, T>(
    read: Read<K>,
    conditions: impl FnOnce(&K) -> Option<Vec<Condition>>,
    make: impl FnOnce(K) -> T,
) -> Result<T, Box<Unreadable>>
where
    K: Resource<DynamicType = ()>,
{
    let object = read?;
    let conditions = conditions(&object);
    let known = object.meta();
    let meta = ObjectMeta {
        name: known.name.clone(),
        namespace: known.namespace.clone(),
        uid: known.uid.clone(),
        resource_version: known.resource_version.clone(),
        labels: known.labels.clone(),
        ..ObjectMeta::default()
    };
    let unreadable = |why| Unreadable {
        kind: K::kind(&()).into_owned(),
        api_version: K::api_version(&()).into_owned(),
        meta,
        conditions,
        why,
    };
    contain(|| make(object)).map_err(|panicked| Box::new(unreadable(panicked.to_string())))
}

/// What is small as text can be large as an object: a map with a single entry has nine bytes, and takes more than six hundred. So they
/// are counted before anything is decoded.
fn too_many_parts(json: &str, largest: usize) -> Option<String> {
    let most_nested = (largest / BYTES_FOR_EACH).min(MOST_NESTED);
    let most_entries = most_nested * ENTRIES_FOR_EACH;
    if json.len() <= most_nested {
        return None;
    }
    let Parts { nested, entries } = Parts::of(json);
    if nested > most_nested {
        return Some(format!("it has {nested} lists and maps, and no more than {most_nested} are read"));
    }
    (entries > most_entries)
        .then(|| format!("it has {entries} entries, and no more than {most_entries} are read"))
}

/// How much there is in a JSON text, strings aside.
struct Parts {
    nested: usize,
    entries: usize,
}

impl Parts {
    fn of(json: &str) -> Self {
        let (mut parts, mut in_string, mut is_escaped) = (Self { nested: 0, entries: 0 }, false, false);
        for byte in json.bytes() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => parts.nested += 1,
                b',' if !in_string => parts.entries += 1,
                _ => {}
            }
        }
        parts
    }
}

/// What is known of an object that is not to be decoded.
pub(crate) fn unreadable<K>(text: &RawValue, why: String) -> Result<Unreadable, Nameless>
where
    K: Resource<DynamicType = ()>,
{
    let thin: Thin = serde_json::from_str(text.get()).map_err(|_| Nameless)?;
    let status: Option<ThinStatus> = serde_json::from_str(text.get()).ok();
    Ok(Unreadable {
        kind: K::kind(&()).into_owned(),
        api_version: K::api_version(&()).into_owned(),
        meta: thin.metadata.into(),
        conditions: status.and_then(|thin| thin.status).and_then(|status| status.conditions).map(
            |mut conditions| {
                conditions.truncate(CONDITIONS);
                conditions
            },
        ),
        why,
    })
}

/// The version of an object of which nothing else is wanted.
pub(crate) fn version(text: &RawValue) -> Result<String, Nameless> {
    let thin: Thin = serde_json::from_str(text.get()).map_err(|_| Nameless)?;
    thin.metadata.resource_version.ok_or(Nameless)
}

/// Decodes once more, to find the field. What stands in the field is not told.
fn where_it_fails<K: DeserializeOwned>(text: &str) -> String {
    let mut decoder = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, K>(&mut decoder) {
        Ok(_) => "it cannot be decoded".to_owned(),
        Err(error) => {
            format!("{}: {}", field(&error.path().to_string()), without_content(error.inner()))
        }
    }
}

/// A field as its user wrote it, without the rest of one that has no end. What is nested too deeply stands among the managed
/// fields first, which nobody wrote.
fn field(path: &str) -> String {
    let written = path.split_once(".fieldsV1.").map(|(_, managed)| managed.replace("f:", ""));
    let written = written.as_deref().unwrap_or(path);
    let mut parts = written.split('.');
    let shown: Vec<_> = parts.by_ref().take(DEEPEST_SHOWN).collect();
    let rest = if parts.next().is_some() { "…" } else { "" };
    let shown: String = shown.join(".").chars().take(200).collect();
    format!("{shown}{rest}")
}

/// What a decoder complains about, without what it found.
pub(crate) fn without_content(error: &serde_json::Error) -> String {
    let words = error.to_string();
    if words.starts_with("recursion limit exceeded") {
        return "nested too deeply".to_owned();
    }
    if words.starts_with("missing field `") {
        return words.split(" at line ").next().unwrap_or_default().to_owned();
    }
    match words.rsplit_once(", expected ") {
        Some((_, expected)) => {
            format!("expected {}", expected.split(" at line ").next().unwrap_or_default())
        }
        None => "it cannot be decoded".to_owned(),
    }
}

#[derive(Deserialize)]
struct Thin {
    metadata: ThinMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThinMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

impl From<ThinMeta> for ObjectMeta {
    fn from(mut thin: ThinMeta) -> Self {
        thin.labels.iter_mut().for_each(|labels| labels.retain(|key, _| ROUTES.contains(&key.as_str())));
        Self {
            name: thin.name,
            namespace: thin.namespace,
            uid: thin.uid,
            resource_version: thin.resource_version,
            labels: thin.labels,
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
struct ThinStatus {
    status: Option<ThinConditions>,
}

#[derive(Deserialize)]
struct ThinConditions {
    conditions: Option<Vec<Condition>>,
}

/// A kind that nobody can decode, and of which nobody can look at an object that is called broken.
#[cfg(test)]
pub(crate) mod fragile {
    use std::borrow::Cow;

    use kube::core::NamespaceResourceScope;

    use super::*;

    #[derive(Debug, Clone)]
    pub(crate) struct Fragile {
        metadata: ObjectMeta,
    }

    impl<'de> Deserialize<'de> for Fragile {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("hunter2")
        }
    }

    impl Fragile {
        pub(crate) fn new(cluster: &str, name: &str) -> Self {
            Self::at(cluster, name, 7)
        }

        pub(crate) fn at(cluster: &str, name: &str, version: u64) -> Self {
            let metadata = serde_json::json!({"namespace": "ns", "name": name, "uid": "1", "resourceVersion": version.to_string(),
                "labels": {"strimzi.io/cluster": cluster}});
            Self { metadata: serde_json::from_value(metadata).unwrap() }
        }

        pub(crate) fn look(&self) {
            assert_ne!(self.metadata.name.as_deref(), Some("broken"), "a password");
        }
    }

    impl Resource for Fragile {
        type DynamicType = ();
        type Scope = NamespaceResourceScope;

        fn kind((): &()) -> Cow<'_, str> {
            "Fragile".into()
        }

        fn group((): &()) -> Cow<'_, str> {
            "".into()
        }

        fn version((): &()) -> Cow<'_, str> {
            "v1".into()
        }

        fn plural((): &()) -> Cow<'_, str> {
            "fragiles".into()
        }

        fn meta(&self) -> &ObjectMeta {
            &self.metadata
        }

        fn meta_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }
}

#[cfg(test)]
mod tests {
    use karst_api::{Kafka, StrimziPodSet};
    use serde_json::json;

    use super::*;

    const SECRET: &str = "hunter2, expected hunter3";

    fn raw(text: String) -> Box<RawValue> {
        RawValue::from_string(text).unwrap()
    }

    fn kafka(spec: &str) -> Box<RawValue> {
        raw(format!(
            r#"{{"apiVersion":"kafka.strimzi.io/v1","kind":"Kafka","metadata":{{"name":"c","namespace":"ns","uid":"u","resourceVersion":"7",
            "managedFields":[{{"manager":"m","operation":"Update","fieldsV1":{}}}]}},"spec":{spec}}}"#,
            nested(200)
        ))
    }

    fn nested(depth: usize) -> String {
        format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth))
    }

    fn unread<K: Resource<DynamicType = ()> + DeserializeOwned>(text: &RawValue) -> Unreadable {
        let read = read::<K>(text, 1 << 20).unwrap();
        let unreadable = read.err().unwrap();
        assert_eq!(
            (unreadable.meta.name.as_deref(), unreadable.meta.resource_version.as_deref()),
            (Some("c"), Some("7"))
        );
        assert!(!format!("{unreadable:?}").contains("hunter"), "{unreadable:?}");
        unreadable
    }

    #[test]
    fn an_object_nested_too_deeply_is_known_by_its_metadata() {
        let spec = format!(r#"{{"kafka":{{"listeners":[],"config":{}}}}}"#, nested(130));
        let text = kafka(&spec);
        let why = unread::<Kafka>(&text).why;
        assert!(why.ends_with("nested too deeply"), "{why}");
    }

    #[test]
    fn a_path_without_an_end_begins_where_its_user_wrote_it() {
        let managed =
            "metadata.managedFields[0].fieldsV1.f:spec.f:kafka.f:config.f:x.f:a.f:a.f:a.f:a.f:a.f:a";
        assert_eq!(field(managed), "spec.kafka.config.x.a.a.a.a…");
        assert_eq!(field("spec.kafka.config.x.a.a.a.a.a"), "spec.kafka.config.x.a.a.a.a…");
        assert_eq!(field("spec.kafka.listeners[0].port"), "spec.kafka.listeners[0].port");
    }

    #[test]
    fn what_is_wrong_is_told_without_what_is_written_there() {
        let text = json!({"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "metadata": {"name": "c", "resourceVersion": "7"},
                          "spec": {"kafka": {"listeners": [{"name": "a", "port": SECRET, "type": "internal", "tls": true}]}}});
        let why = unread::<Kafka>(&raw(text.to_string())).why;
        assert!(why.starts_with("spec.kafka.listeners[0].port: expected "), "{why}");
        let text = json!({"metadata": {"name": "c", "resourceVersion": "7"}, "kind": SECRET, "spec": {"pods": SECRET}});
        unread::<StrimziPodSet>(&raw(text.to_string()));
        let words = serde_json::from_value::<Vec<u8>>(json!(SECRET)).unwrap_err();
        assert_eq!(without_content(&words), "expected a sequence");
    }

    #[test]
    fn an_object_that_is_too_large_is_known_by_its_metadata() {
        let text =
            raw(json!({"metadata": {"name": "c", "resourceVersion": "7"}, "spec": "x".repeat(2 << 20)})
                .to_string());
        assert_eq!(unread::<Kafka>(&text).why, "it has 2048 KiB, and no more than 1024 KiB are read");
    }

    /// Half a megabyte that would be forty when it is decoded, and be kept.
    #[test]
    fn an_object_that_grows_when_it_is_decoded_is_not() {
        let largest = 512 << 10;
        let why = |config: &str| {
            let text = kafka(&format!(r#"{{"kafka":{{"listeners":[],"config":{{"x":{config}}}}}}}"#));
            assert!(text.get().len() <= largest);
            read::<Kafka>(&text, largest).unwrap().err().map(|unreadable| unreadable.why)
        };
        let many = |one: &str, times: usize| format!("[{}]", vec![one; times].join(","));
        let nested = why(&many(r#"{"":0}"#, 60_000)).unwrap();
        assert!(nested.ends_with("lists and maps, and no more than 10485 are read"), "{nested}");
        assert!(why(&many("[]", 60_000)).is_some());
        let flat = why(&many("0", 100_000)).unwrap();
        assert!(flat.ends_with("entries, and no more than 52425 are read"), "{flat}");
        // What people write is text.
        let text = format!("\"{}\"", r#"[{,\"\\"#.repeat(60_000));
        let complaint = why(&text).unwrap_or_default();
        assert!(!complaint.contains("no more than"), "{complaint}");
    }

    #[test]
    fn of_its_labels_only_those_are_kept_by_which_it_is_found() {
        let labels: serde_json::Map<String, serde_json::Value> =
            (0..10_000).map(|n| (format!("l{n}"), json!(""))).collect();
        let mut labels = serde_json::Value::from(labels);
        labels["strimzi.io/cluster"] = json!("c");
        let text = json!({"metadata": {"name": "c", "resourceVersion": "7", "labels": labels}, "spec": 1});
        let kept = unread::<Kafka>(&raw(text.to_string())).meta.labels.unwrap();
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("strimzi.io/cluster".to_owned(), "c".to_owned())]);
    }

    #[test]
    fn an_object_whose_decoder_panics_is_known_by_its_metadata() {
        let text = json!({"metadata": {"name": "c", "resourceVersion": "7"}});
        let why = unread::<fragile::Fragile>(&raw(text.to_string())).why;
        assert!(why.starts_with("an internal error at "), "{why}");
    }

    #[test]
    fn what_its_status_says_is_known() {
        let text = json!({"metadata": {"name": "c", "resourceVersion": "7"}, "spec": 1, "status": {"conditions": [{"type": "Ready"}]}});
        let conditions = unread::<Kafka>(&raw(text.to_string())).conditions.unwrap();
        assert_eq!(conditions[0].type_.as_deref(), Some("Ready"));
    }
}
