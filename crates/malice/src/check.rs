//! Does a value fit a schema? As far as bounds, types and enumerations go: what the rest says is left to the API server.

use serde_json::Value;

/// The first thing in a value that its schema does not take.
pub fn violation(path: &str, schema: &Value, value: &Value) -> Option<String> {
    let wrong = |what: &str| Some(format!("{path} {what}"));
    if value.is_null() {
        return None;
    }
    let is_amount = schema["x-kubernetes-int-or-string"] == Value::Bool(true);
    let has_type = match schema["type"].as_str() {
        _ if is_amount => value.is_string() || value.is_i64(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !has_type {
        return wrong("has the wrong type");
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return wrong("is none of those that there are");
    }
    let is_outside = |count: usize, least: &str, most: &str| {
        let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
        bound(least).is_some_and(|least| count < least) || bound(most).is_some_and(|most| count > most)
    };
    match value {
        Value::String(text) if is_outside(text.chars().count(), "minLength", "maxLength") => {
            wrong("is too short or too long")
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let is_low = schema["minimum"].as_f64().is_some_and(|least| number < least);
            let is_high = schema["maximum"].as_f64().is_some_and(|most| number > most);
            if is_low || is_high { wrong("is too small or too large") } else { None }
        }
        Value::Array(items) if is_outside(items.len(), "minItems", "maxItems") => {
            wrong("has too few or too many items")
        }
        Value::Array(items) => {
            items.iter().find_map(|item| violation(&format!("{path}[]"), &schema["items"], item))
        }
        Value::Object(fields) if is_outside(fields.len(), "minProperties", "maxProperties") => {
            wrong("has too few or too many entries")
        }
        Value::Object(fields) => missing(path, schema, value).or_else(|| {
            fields.iter().find_map(|(name, value)| {
                let below = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))?;
                violation(&format!("{path}.{name}"), below, value)
            })
        }),
        _ => None,
    }
}

fn missing(path: &str, schema: &Value, value: &Value) -> Option<String> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut missing = required.filter(|name| value[*name].is_null());
    missing.next().map(|name| format!("{path}.{name} is missing"))
}
