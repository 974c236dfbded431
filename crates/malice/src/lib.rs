//! Resources that nobody should write, and that somebody writes: made from the schemas themselves.
//!
//! For every field of a schema there are values at its bounds and beyond them, long, deep, many, and of odd characters, each put
//! into a resource that is good otherwise, alone or several at once. The same seed always makes the same resources. Nothing here
//! knows what the operator does with them: the tests of the decisions and those on a real Kubernetes share it.

mod check;
mod dice;
mod field;
mod values;

use serde_json::Value;

pub use check::violation;
pub use dice::Dice;
pub use field::{Field, Step};
pub use values::Bad;

/// What etcd takes. Nothing larger can reach an operator.
pub const LARGEST: usize = 1_500_000;

/// A resource, and what is wrong with it.
#[derive(Debug, Clone)]
pub struct Case {
    /// What was put where.
    pub name: String,
    /// The resource.
    pub object: Value,
}

/// Makes resources of one kind.
#[derive(Debug)]
pub struct Malice {
    good: Value,
    fields: Vec<Field>,
}

impl Malice {
    /// From the schema of the kind, and a resource that is good. `keys` are annotations that mean something.
    pub fn new(schema: &Value, good: Value, keys: &[&str]) -> Self {
        let mut fields = Vec::new();
        field::collect(&mut Vec::new(), schema, &mut fields);
        fields.retain(|field| !field.is_of_every_object());
        fields.extend(field::of_metadata(keys));
        Self { good, fields }
    }

    /// The fields, each with what it can be.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Every field with every value, one at a time.
    pub fn all(&self) -> impl Iterator<Item = Case> {
        self.fields.iter().flat_map(|field| Bad::ALL.iter().filter_map(|bad| self.one(field, *bad)))
    }

    /// One field of this kind with one bad value; nothing when the value means nothing there, or the resource would be too large.
    pub fn one(&self, field: &Field, bad: Bad) -> Option<Case> {
        let mut object = self.good.clone();
        field.put(&mut object, bad.value(field.schema())?);
        fits(&object).then(|| Case { name: format!("{} is {bad:?}", field.name()), object })
    }

    /// A few fields at once, chosen by dice.
    pub fn several(&self, dice: &mut Dice) -> Case {
        let mut case = Case { name: String::new(), object: self.good.clone() };
        for _ in 0..=dice.below(5) {
            let Some(field) = self.fields.get(dice.below(self.fields.len())) else { continue };
            let Some(bad) = Bad::ALL.get(dice.below(Bad::ALL.len())) else { continue };
            let Some(value) = bad.value(field.schema()) else { continue };
            let before = case.object.clone();
            field.put(&mut case.object, value);
            if fits(&case.object) {
                case.name.push_str(&format!("{} is {bad:?}; ", field.name()));
            } else {
                case.object = before;
            }
        }
        case
    }
}

fn fits(object: &Value) -> bool {
    object.to_string().len() <= LARGEST
}
