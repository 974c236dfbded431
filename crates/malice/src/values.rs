//! Bad values: for a field of any type, by its schema.

use serde_json::{Map, Number, Value, json};

/// More than anybody needs.
const MANY: usize = 20_000;
const HUGE: usize = 300_000;
/// What a reader of JSON may still follow, and what it must not.
const DEEP: usize = 100;
const TOO_DEEP: usize = 130;

/// Characters that mean something to somebody: to a shell, a file of settings, JSON, YAML, a terminal, a reader.
const ODD: &[&str] = &[
    "\0",
    "a\nnode.id=7",
    "a\r\n\tb",
    "\"'`\\",
    "${env:HOME}",
    "${file:/etc/passwd:x}",
    "{nodeId}{nodePodName}",
    "%s%n%00",
    "../../etc/passwd",
    "\u{202e}txet sdrawkcab\u{2066}",
    "\u{feff}\u{200b}\u{2028}\u{85}",
    "ä€😀\u{10ffff}",
    "<script>alert(1)</script>",
    "; rm -rf / #",
    "- a: &x [*x]",
    "\u{1b}[31m",
];

/// In which way a value is bad. Some are not: they are at a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Bad {
    Absent,
    Null,
    Empty,
    Good,
    Other(usize),
    Longest,
    TooLong,
    Huge,
    Repeated(usize),
    Odd(usize),
    NumberInText(usize),
    Least,
    Most,
    BelowLeast,
    AboveMost,
    Extreme(usize),
    Many,
    TooMany,
    Endless,
    Twice,
    Deep,
    TooDeep,
    Whole,
    WrongType(usize),
}

const REPEATED: &[&str] =
    &["*,", "0-59,", "(", "[0-2147483647],", "a.", "{nodeId}", "1 + ", "${", "\\", "$1"];
const NUMBERS_IN_TEXT: &[&str] =
    &["-1", "0", "1e308", "99999999999999999999999999999999999999999", "0x10", "NaN", "1e-9", ".", "12Ei"];

impl Bad {
    /// All of them.
    pub const ALL: &'static [Self] = &{
        use Bad::*;
        [
            Absent,
            Null,
            Empty,
            Good,
            Other(1),
            Other(2),
            Other(3),
            Other(4),
            Other(5),
            Other(6),
            Longest,
            TooLong,
            Huge,
            Repeated(0),
            Repeated(1),
            Repeated(2),
            Repeated(3),
            Repeated(4),
            Repeated(5),
            Repeated(6),
            Repeated(7),
            Repeated(8),
            Repeated(9),
            Odd(0),
            Odd(1),
            Odd(2),
            Odd(3),
            Odd(4),
            Odd(5),
            Odd(6),
            Odd(7),
            Odd(8),
            Odd(9),
            Odd(10),
            Odd(11),
            Odd(12),
            Odd(13),
            Odd(14),
            Odd(15),
            NumberInText(0),
            NumberInText(1),
            NumberInText(2),
            NumberInText(3),
            NumberInText(4),
            NumberInText(5),
            NumberInText(6),
            NumberInText(7),
            NumberInText(8),
            Least,
            Most,
            BelowLeast,
            AboveMost,
            Extreme(0),
            Extreme(1),
            Extreme(2),
            Extreme(3),
            Extreme(4),
            Extreme(5),
            Extreme(6),
            Extreme(7),
            Many,
            TooMany,
            Endless,
            Twice,
            Deep,
            TooDeep,
            Whole,
            WrongType(0),
            WrongType(1),
            WrongType(2),
            WrongType(3),
        ]
    };

    /// The value for a field of this schema; `None` when it means nothing there. The inner `None` is no value at all.
    pub(crate) fn value(self, schema: &Value) -> Option<Option<Value>> {
        match self {
            Self::Absent => return Some(None),
            Self::Null => return Some(Some(Value::Null)),
            Self::Good => return Some(Some(good(schema))),
            Self::WrongType(which) => {
                return Some([json!(7), json!("x"), json!([1]), json!({"a": 1})].get(which).cloned());
            }
            _ => {}
        }
        let is_amount = schema["x-kubernetes-int-or-string"] == json!(true);
        let value = match schema["type"].as_str() {
            _ if is_amount => self.text(schema).or_else(|| self.number(schema)),
            Some("string") => self.text(schema),
            Some("integer" | "number") => self.number(schema),
            Some("boolean") => matches!(self, Self::Other(1)).then(|| json!(true)),
            Some("array") => self.list(schema),
            Some("object") => self.map(schema),
            _ => None,
        };
        value.map(Some)
    }

    fn text(self, schema: &Value) -> Option<Value> {
        let longest = || usize::try_from(schema["maxLength"].as_u64()?).ok();
        let text = match self {
            Self::Empty => String::new(),
            Self::Other(which) => return schema["enum"].get(which).cloned(),
            Self::Longest => "a".repeat(longest()?),
            Self::TooLong => "a".repeat(longest()? + 1),
            Self::Huge => "a".repeat(HUGE),
            Self::Repeated(which) => REPEATED.get(which)?.repeat(HUGE / 3),
            Self::Odd(which) => (*ODD.get(which)?).to_owned(),
            Self::NumberInText(which) => (*NUMBERS_IN_TEXT.get(which)?).to_owned(),
            _ => return None,
        };
        Some(text.into())
    }

    fn number(self, schema: &Value) -> Option<Value> {
        let beyond = |bound: &Value, step: f64| match bound.as_i64() {
            Some(bound) => bound.checked_add(if step > 0.0 { 1 } else { -1 }).map(Value::from),
            None => Number::from_f64(bound.as_f64()? + step).map(Value::Number),
        };
        match self {
            Self::Least => schema.get("minimum").cloned(),
            Self::Most => schema.get("maximum").cloned(),
            Self::BelowLeast => beyond(&schema["minimum"], -1.0),
            Self::AboveMost => beyond(&schema["maximum"], 1.0),
            Self::Extreme(which) => {
                let all = [
                    json!(0),
                    json!(-1),
                    json!(i32::MAX),
                    json!(i32::MIN),
                    json!(i64::MAX),
                    json!(i64::MIN),
                    json!(1e308),
                    json!(0.5),
                ];
                all.get(which).cloned()
            }
            _ => None,
        }
    }

    fn list(self, schema: &Value) -> Option<Value> {
        let most = || usize::try_from(schema["maxItems"].as_u64()?).ok();
        let items =
            |count: usize| (0..count).map(|index| distinct(&schema["items"], index)).collect::<Vec<_>>();
        Some(Value::Array(match self {
            Self::Empty => Vec::new(),
            Self::Many => items(most()?),
            Self::TooMany => items(most()? + 1),
            Self::Endless => items(MANY),
            Self::Twice => vec![good(&schema["items"]); 2],
            Self::Deep => vec![nested(DEEP)],
            Self::TooDeep => vec![nested(TOO_DEEP)],
            Self::Whole => vec![whole(&schema["items"], 0)],
            _ => return None,
        }))
    }

    fn map(self, schema: &Value) -> Option<Value> {
        let values = schema.get("additionalProperties").filter(|values| values.is_object());
        let is_free = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
        if values.is_none() && !is_free {
            return match self {
                Self::Empty => Some(json!({})),
                Self::Whole => Some(whole(schema, 0)),
                _ => None,
            };
        }
        let value = values.map_or_else(|| json!("1"), good);
        let most = || usize::try_from(schema["maxProperties"].as_u64()?).ok();
        let entries = |count: usize| -> Map<String, Value> {
            (0..count).map(|index| (format!("key.{index}"), value.clone())).collect()
        };
        Some(Value::Object(match self {
            Self::Empty => Map::new(),
            Self::Many => entries(most()?),
            Self::TooMany => entries(most()? + 1),
            Self::Endless => entries(MANY),
            Self::Odd(which) => [((*ODD.get(which)?).to_owned(), value)].into_iter().collect(),
            Self::Huge => [("a".repeat(HUGE), value)].into_iter().collect(),
            Self::Deep => [("a".to_owned(), nested(DEEP))].into_iter().collect(),
            Self::TooDeep => [("a".to_owned(), nested(TOO_DEEP))].into_iter().collect(),
            _ => return None,
        }))
    }
}

/// Lists and objects in each other.
fn nested(levels: usize) -> Value {
    (0..levels).fold(
        json!("deep"),
        |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) },
    )
}

/// A value that the schema takes, with nothing in it that need not be.
pub(crate) fn good(schema: &Value) -> Value {
    distinct(schema, 0)
}

/// A good value, another one for each index where that can be.
fn distinct(schema: &Value, index: usize) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return json!("1");
    }
    match schema["type"].as_str() {
        Some("string") => text(schema, index),
        Some("integer" | "number") => {
            let least = schema["minimum"].as_i64().unwrap_or_default().max(0);
            json!(least.saturating_add(i64::try_from(index).unwrap_or_default()))
        }
        Some("boolean") => json!(false),
        Some("array") => {
            let least = usize::try_from(schema["minItems"].as_u64().unwrap_or_default()).unwrap_or_default();
            (0..least).map(|index| distinct(&schema["items"], index)).collect()
        }
        _ => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required.map(|name| (name.to_owned(), distinct(&schema["properties"][name], index))).collect()
        }
    }
}

fn text(schema: &Value, index: usize) -> Value {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    match pattern.starts_with("^[0-9]") || pattern.starts_with("^([0-9") {
        true => json!("1"),
        false => json!(format!("a{index}")),
    }
}

/// An object with all the fields that there are.
fn whole(schema: &Value, level: usize) -> Value {
    let is_list = schema["type"] == "array";
    if is_list && level < DEEP {
        return json!([whole(&schema["items"], level + 1)]);
    }
    match schema["properties"].as_object() {
        Some(fields) if level < DEEP => {
            fields.iter().map(|(name, below)| (name.clone(), whole(below, level + 1))).collect()
        }
        _ => good(schema),
    }
}
