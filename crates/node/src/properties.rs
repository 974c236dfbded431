//! Reads Java's `.properties` format, exactly as `java.util.Properties` does.
//!
//! The launcher decides from the same files that Kafka reads (`server.config`, `meta.properties`), so both must see the
//! same values: escapes, continued lines, the three separators and the Latin-1 encoding are all honoured. Pure.

use std::collections::BTreeMap;

use thiserror::Error;

/// The entries of one file. When a key is repeated the last one wins, as in Java.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

/// The one thing that Java's reader refuses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the entry that begins on line {line} has a `\\u` that is not followed by four hexadecimal digits")]
pub struct BadEscape {
    line: usize,
}

impl Properties {
    /// # Errors
    /// When a `\u` escape is not followed by four hexadecimal digits.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadEscape> {
        let mut entries = BTreeMap::new();
        for logical in LogicalLines::new(bytes) {
            let (key, value) = split(&logical.text);
            let bad_escape = || BadEscape { line: logical.number };
            let key = unescape(key).ok_or_else(bad_escape)?;
            let value = unescape(value).ok_or_else(bad_escape)?;
            entries.insert(key, value);
        }
        Ok(Self(entries))
    }

    /// The value of a key without the blanks around it, which is how Kafka's own configuration reads it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.trim())
    }

    /// The value of a key, unless it is blank.
    #[must_use]
    pub fn get_non_empty(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// All keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.trim()))
    }

    /// The non-blank items of a comma-separated value; none when the key is absent.
    pub fn list(&self, key: &str) -> impl Iterator<Item = &str> {
        self.get(key).unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty())
    }
}

/// One or more natural lines that end in a backslash, joined; blank lines and comments are left out.
struct LogicalLine {
    /// Where it begins, counted from 1.
    number: usize,
    text: Vec<char>,
}

struct LogicalLines {
    natural: std::iter::Enumerate<std::vec::IntoIter<Vec<char>>>,
}

impl LogicalLines {
    fn new(bytes: &[u8]) -> Self {
        Self { natural: natural_lines(bytes).into_iter().enumerate() }
    }
}

impl Iterator for LogicalLines {
    type Item = LogicalLine;

    fn next(&mut self) -> Option<LogicalLine> {
        let (index, first) = self.natural.by_ref().find(|(_, line)| carries_an_entry(line))?;
        let mut text = without_leading_blanks(&first).to_vec();
        while ends_in_continuation(&text) {
            text.pop();
            // A comment mark has no meaning here: the entry goes on, whatever the next line begins with.
            let Some((_, next)) = self.natural.next() else { break };
            text.extend_from_slice(without_leading_blanks(&next));
        }
        Some(LogicalLine { number: index + 1, text })
    }
}

/// Splits at `\n`, `\r` and `\r\n`; every byte is one Latin-1 character.
fn natural_lines(bytes: &[u8]) -> Vec<Vec<char>> {
    let mut lines = vec![Vec::new()];
    let mut previous = 0;
    for &byte in bytes {
        match byte {
            b'\n' if previous == b'\r' => {}
            b'\n' | b'\r' => lines.push(Vec::new()),
            _ => {
                if let Some(line) = lines.last_mut() {
                    line.push(char::from(byte));
                }
            }
        }
        previous = byte;
    }
    lines
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

fn without_leading_blanks(line: &[char]) -> &[char] {
    let start = line.iter().position(|&c| !is_blank(c)).unwrap_or(line.len());
    &line[start..]
}

fn carries_an_entry(line: &[char]) -> bool {
    without_leading_blanks(line).first().is_some_and(|&c| c != '#' && c != '!')
}

/// An even number of backslashes is so many escaped backslashes, not a continuation.
fn ends_in_continuation(line: &[char]) -> bool {
    line.iter().rev().take_while(|&&c| c == '\\').count() % 2 == 1
}

/// Key and value, both still escaped: the key ends at the first `=`, `:` or blank that no backslash protects.
fn split(line: &[char]) -> (&[char], &[char]) {
    let mut escaped = false;
    let key_end = line
        .iter()
        .position(|&c| {
            let ends = !escaped && (c == '=' || c == ':' || is_blank(c));
            escaped = c == '\\' && !escaped;
            ends
        })
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(key_end);
    let rest = without_leading_blanks(rest);
    match rest.first() {
        Some('=' | ':') => (key, without_leading_blanks(&rest[1..])),
        _ => (key, rest),
    }
}

/// `None` for a `\u` without its four digits. Characters beyond the basic plane are written as two such escapes.
fn unescape(escaped: &[char]) -> Option<String> {
    let mut utf16 = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter().copied();
    while let Some(c) = rest.next() {
        let unit = match c {
            '\\' => match rest.next() {
                Some('u') => hex_unit(&mut rest)?,
                Some('t') => u16::from(b'\t'),
                Some('n') => u16::from(b'\n'),
                Some('r') => u16::from(b'\r'),
                Some('f') => 0x0c,
                Some(other) => latin1_unit(other),
                None => break,
            },
            plain => latin1_unit(plain),
        };
        utf16.push(unit);
    }
    Some(String::from_utf16_lossy(&utf16))
}

fn hex_unit(rest: &mut impl Iterator<Item = char>) -> Option<u16> {
    (0..4).try_fold(0, |unit, _| {
        let digit = rest.next()?.to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

/// Every character here came from a single byte, so it is always one UTF-16 unit.
fn latin1_unit(c: char) -> u16 {
    u16::try_from(u32::from(c)).unwrap_or(0xfffd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_reads(text: &str, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(Properties::parse(text.as_bytes()), Ok(Properties(expected)), "{text:?}");
    }

    #[test]
    fn a_key_ends_at_an_equals_sign_a_colon_or_a_blank() {
        for text in ["a=b", "a:b", "a b", "a\tb", "a = b", "a : b", "  a=b", "a\x0cb", "a   b"] {
            assert_reads(text, &[("a", "b")]);
        }
    }

    #[test]
    fn only_the_first_separator_counts() {
        assert_reads("a==b", &[("a", "=b")]);
        assert_reads("a=:b", &[("a", ":b")]);
        assert_reads(
            "listeners=CONTROLPLANE-9090://0.0.0.0:9090",
            &[("listeners", "CONTROLPLANE-9090://0.0.0.0:9090")],
        );
    }

    #[test]
    fn a_key_may_stand_alone() {
        assert_reads("a", &[("a", "")]);
        assert_reads("a=", &[("a", "")]);
        assert_reads("=b", &[("", "b")]);
    }

    #[test]
    fn separators_in_a_key_can_be_escaped() {
        assert_reads(r"a\=b\:c\ d=e", &[("a=b:c d", "e")]);
        assert_reads(r"a\\=b", &[(r"a\", "b")]);
    }

    #[test]
    fn comments_and_blank_lines_carry_nothing() {
        assert_reads("# c\n  ! d\n\n \t\na=b # not a comment\n", &[("a", "b # not a comment")]);
    }

    #[test]
    fn a_comment_is_never_continued() {
        assert_reads("# c \\\na=b", &[("a", "b")]);
    }

    #[test]
    fn a_line_that_ends_in_a_backslash_goes_on() {
        assert_reads("a=b,\\\n   c,\\\r\n\td", &[("a", "b,c,d")]);
        assert_reads("a=b\\\n#c", &[("a", "b#c")]);
        assert_reads("a=b\\\n\nc=d", &[("a", "b"), ("c", "d")]);
        assert_reads("a=b\\", &[("a", "b")]);
    }

    #[test]
    fn an_escaped_backslash_at_the_end_is_no_continuation() {
        assert_reads("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]);
    }

    #[test]
    fn every_kind_of_line_end_is_one() {
        assert_reads("a=1\nb=2\rc=3\r\nd=4", &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    }

    #[test]
    fn escapes_are_resolved() {
        assert_reads(r"a=\t\n\r\f\q\u00e9\u20AC", &[("a", "\t\n\r\u{c}qé€")]);
        assert_reads(r"a=\ud83d\ude00", &[("a", "😀")]);
    }

    #[test]
    fn bytes_are_latin_1() {
        let properties = Properties::parse(b"a=\xe9").unwrap();
        assert_eq!(properties.get("a"), Some("é"));
    }

    #[test]
    fn a_broken_unicode_escape_is_refused_with_its_line() {
        for text in ["ok=1\na=\\u12", "ok=1\na=\\u12g4", "ok=1\na\\u=1"] {
            assert_eq!(Properties::parse(text.as_bytes()), Err(BadEscape { line: 2 }), "{text}");
        }
    }

    #[test]
    fn the_last_of_two_equal_keys_wins() {
        assert_reads("a=1\na=2", &[("a", "2")]);
    }

    #[test]
    fn lists_are_split_at_commas_and_trimmed() {
        let properties = Properties::parse(b"a= x , y,,z ").unwrap();
        assert_eq!(properties.list("a").collect::<Vec<_>>(), ["x", "y", "z"]);
        assert_eq!(properties.list("absent").count(), 0);
    }
}
