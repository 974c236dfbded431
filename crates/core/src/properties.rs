//! Writing Java `.properties` so that no key or value can become another line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Settings in the order they are written. A key stands once: the last value wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: Vec<(String, String)>,
    /// Where each key stands: users may write very many.
    places: BTreeMap<String, usize>,
}

impl Properties {
    /// Sets a key.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        match self.places.get(&key).and_then(|place| self.entries.get_mut(*place)) {
            Some(entry) => entry.1 = value,
            None => {
                self.places.insert(key.clone(), self.entries.len());
                self.entries.push((key, value));
            }
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(*self.places.get(key)?).map(|(_, value)| value.as_str())
    }

    /// The keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// A value as it stands in the file.
    pub(crate) fn escaped(value: &str) -> String {
        let mut text = String::with_capacity(value.len());
        escape(&mut text, value, false);
        text
    }

    /// The file's text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.iter() {
            escape(&mut text, key, true);
            text.push('=');
            escape(&mut text, value, false);
            text.push('\n');
        }
        text
    }
}

/// Java's reader ends a key at the first `=`, `:` or white space, trims leading white space of a value, and
/// takes `\` as an escape everywhere; a line that starts with `#` or `!` is a comment.
fn escape(out: &mut String, text: &str, is_key: bool) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'=' | b':' | b'#' | b'!');
    // Most of what is written needs no second look.
    if text.as_bytes().iter().all(is_plain) {
        out.push_str(text);
        return;
    }
    for (index, c) in text.chars().enumerate() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' if is_key || index == 0 => out.push_str("\\ "),
            '=' | ':' | '#' | '!' if is_key => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() || !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would take minutes if each key were looked for among all others.
    #[test]
    fn very_many_keys_are_no_more_work_each() {
        let mut properties = Properties::default();
        for value in ["1", "2"] {
            (0..200_000).for_each(|key| properties.set(format!("key.{key}"), value));
        }
        assert_eq!((properties.iter().count(), properties.get("key.199999")), (200_000, Some("2")));
    }

    #[test]
    fn a_value_cannot_start_another_line() {
        let mut properties = Properties::default();
        properties.set("log.retention.hours", "1\nnode.id=7");
        assert_eq!(properties.render(), "log.retention.hours=1\\nnode.id=7\n");
    }

    #[test]
    fn a_key_cannot_hide_a_separator_or_an_escape() {
        let mut properties = Properties::default();
        properties.set("a=b:c d", " x");
        properties.set("\\u006eode.id", "7");
        assert_eq!(properties.render(), "a\\=b\\:c\\ d=\\ x\n\\\\u006eode.id=7\n");
    }

    #[test]
    fn a_key_stands_once_and_the_last_value_wins() {
        let mut properties = Properties::default();
        properties.set("a", "1");
        properties.set("b", "2");
        properties.set("a", "3");
        assert_eq!(properties.render(), "a=3\nb=2\n");
    }
}
