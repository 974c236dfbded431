//! The fields of a schema, and how a value gets into one of them.

use serde_json::{Map, Value, json};

use crate::values;

/// One step from an object to a value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To the field of this name.
    Field(String),
    /// To the first item of a list.
    Item,
    /// To an entry of a map.
    Entry,
}

/// A field of a schema.
#[derive(Debug, Clone)]
pub struct Field {
    /// Where it is; each step with the schema that it leads to.
    steps: Vec<(Step, Value)>,
}

/// Collects all fields of a schema.
pub(crate) fn collect(above: &mut Vec<(Step, Value)>, schema: &Value, fields: &mut Vec<Field>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let properties = properties.map(|(name, below)| (Step::Field(name.clone()), below));
    let items = schema.get("items").map(|below| (Step::Item, below));
    let values = schema.get("additionalProperties").filter(|below| below.is_object());
    let values = values.map(|below| (Step::Entry, below));
    for (step, below) in properties.chain(items).chain(values) {
        above.push((step, below.clone()));
        fields.push(Field { steps: above.clone() });
        collect(above, below, fields);
        above.pop();
    }
}

/// Fields that every object has and that mean something to an operator: labels, and these annotations.
pub(crate) fn of_metadata(keys: &[&str]) -> Vec<Field> {
    let text = json!({ "type": "string", "maxLength": 4096 });
    let map = json!({ "type": "object", "additionalProperties": text, "maxProperties": 1024 });
    let metadata = || (Step::Field("metadata".to_owned()), json!({ "type": "object" }));
    let part = |name: &str| (Step::Field(name.to_owned()), map.clone());
    let mut fields = Vec::new();
    for name in ["labels", "annotations"] {
        fields.push(Field { steps: vec![metadata(), part(name)] });
        fields.push(Field { steps: vec![metadata(), part(name), (Step::Entry, text.clone())] });
    }
    fields.extend(keys.iter().map(|key| Field {
        steps: vec![metadata(), part("annotations"), (Step::Field((*key).to_owned()), text.clone())],
    }));
    fields
}

impl Field {
    /// What it can be.
    pub fn schema(&self) -> &Value {
        self.steps.last().map_or(&Value::Null, |(_, schema)| schema)
    }

    /// Where it is, for people.
    pub fn name(&self) -> String {
        let mut name = String::new();
        for (step, _) in &self.steps {
            match step {
                Step::Field(field) => name.push_str(&format!(".{field}")),
                Step::Item => name.push_str("[0]"),
                Step::Entry => name.push_str(".*"),
            }
        }
        name
    }

    /// The steps to it.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().map(|(step, _)| step)
    }

    /// Does the API server answer for it?
    pub(crate) fn is_of_every_object(&self) -> bool {
        let top = self.steps.first().map(|(step, _)| step);
        ["apiVersion", "kind", "metadata"].iter().any(|name| top == Some(&Step::Field((*name).to_owned())))
    }

    /// Puts a value there, or takes the field away. What is missing on the way is made as the schema wants it.
    pub(crate) fn put(&self, object: &mut Value, value: Option<Value>) {
        let Some(((last, _), way)) = self.steps.split_last() else { return };
        let mut place = object;
        for (step, schema) in way {
            let wanted = if schema["type"] == "array" { Value::is_array } else { Value::is_object };
            let next = enter(place, step);
            if !wanted(next) {
                *next = values::good(schema);
            }
            if !wanted(next) {
                *next = if schema["type"] == "array" { json!([]) } else { json!({}) };
            }
            place = next;
        }
        match value {
            Some(value) => *enter(place, last) = value,
            None => leave(place, last),
        }
    }
}

/// The place that a step leads to, made if it is missing.
fn enter<'a>(place: &'a mut Value, step: &Step) -> &'a mut Value {
    match step {
        Step::Field(name) => &mut as_object(place)[name.as_str()],
        Step::Entry => &mut as_object(place)["a"],
        Step::Item => {
            if place.as_array().is_none_or(Vec::is_empty) {
                *place = json!([null]);
            }
            &mut place[0]
        }
    }
}

fn as_object(place: &mut Value) -> &mut Value {
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    place
}

fn leave(place: &mut Value, step: &Step) {
    match (place, step) {
        (Value::Object(fields), Step::Field(name)) => drop(fields.remove(name)),
        (Value::Object(fields), Step::Entry) => fields.clear(),
        (Value::Array(items), Step::Item) if !items.is_empty() => drop(items.remove(0)),
        _ => {}
    }
}
