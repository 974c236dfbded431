//! Schemas that cannot be derived from a Rust type, because the Rust type belongs to somebody else or says
//! less than the wire does.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A number or a text, as Kubernetes writes quantities.
pub(crate) fn int_or_string() -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true })
}

/// A list of objects that are kept as they are.
pub(crate) fn free_form_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
    })
}

/// A Kubernetes label selector.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "description": "Conditions on labels, all of which must hold.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "description": "Name of the label." },
                        "operator": { "type": "string", "description": "In, NotIn, Exists or DoesNotExist." },
                        "values": {
                            "type": "array",
                            "description": "Values for the operators In and NotIn.",
                            "items": { "type": "string" }
                        }
                    }
                }
            },
            "matchLabels": {
                "type": "object",
                "description": "Labels and the values they must have.",
                "additionalProperties": { "type": "string" }
            }
        }
    })
}

/// A list of peers as network policies know them.
pub(crate) fn network_policy_peers(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "ipBlock": {
                    "type": "object",
                    "description": "A range of addresses.",
                    "required": ["cidr"],
                    "properties": {
                        "cidr": { "type": "string", "description": "The range, in CIDR form." },
                        "except": {
                            "type": "array",
                            "description": "Ranges inside it, in CIDR form, that are left out.",
                            "items": { "type": "string" }
                        }
                    }
                },
                "namespaceSelector": described(label_selector(generator), "Namespaces that are let in."),
                "podSelector": described(label_selector(generator), "Pods that are let in.")
            }
        }
    })
}

fn described(mut schema: Schema, description: &str) -> Schema {
    schema.insert("description".to_owned(), description.into());
    schema
}
