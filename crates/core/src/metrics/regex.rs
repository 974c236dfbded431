//! Mistakes in regular expressions that are surely mistakes.
//!
//! Java reads them, and knows more than any other reader: whatever is not surely wrong is left to it. A JVM whose agent cannot read
//! one does not start.

/// One thing in a regular expression, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// `(`, and whether it remembers what it matched.
    Open { captures: bool },
    /// `)`
    Close,
    /// `|`
    Or,
    /// `*`, `+` or `?`
    Repeat(char),
    /// A `{` that no number follows.
    Brace,
    /// Anything that can stand for itself.
    Thing,
}

/// What is wrong with the parts.
type Broken = &'static str;

/// Reads one token after the other.
struct Tokens<'a> {
    rest: &'a str,
}

impl Tokens<'_> {
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn next(&mut self) -> Option<Result<Token, Broken>> {
        Some(Ok(match self.take()? {
            '\\' => return Some(self.escaped()),
            '[' => return Some(self.class()),
            '(' => self.open(),
            ')' => Token::Close,
            '|' => Token::Or,
            c @ ('*' | '+' | '?') => Token::Repeat(c),
            '{' if !self.rest.starts_with(|c: char| c.is_ascii_digit()) => Token::Brace,
            _ => Token::Thing,
        }))
    }

    fn escaped(&mut self) -> Result<Token, Broken> {
        match self.take().ok_or("it ends with a backslash")? {
            'Q' => self.rest = self.rest.split_once("\\E").map_or("", |(_, after)| after),
            // A property or a name: its braces belong to it.
            'p' | 'P' | 'x' | 'k' | 'N' if self.rest.starts_with(['{', '<']) => {
                self.rest = self.rest.split_once(['}', '>']).map_or("", |(_, after)| after);
            }
            _ => {}
        }
        Ok(Token::Thing)
    }

    /// Characters in brackets, which can hold others of their kind.
    fn class(&mut self) -> Result<Token, Broken> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.take().ok_or("a '[' is not closed")? {
                '\\' => drop(self.escaped()?),
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
        }
        Ok(Token::Thing)
    }

    /// What follows `(?` says what kind of group it is, and repeats nothing.
    fn open(&mut self) -> Token {
        let Some(kind) = self.rest.strip_prefix('?') else { return Token::Open { captures: true } };
        self.rest = kind;
        let is_named = kind.starts_with('<') && !kind.starts_with("<=") && !kind.starts_with("<!");
        Token::Open { captures: is_named }
    }
}

/// What is surely wrong. Of a pattern with comments nothing is sure.
pub(super) fn problem(pattern: &str) -> Option<String> {
    if pattern.contains("(?x") {
        return None;
    }
    let mut tokens = Tokens { rest: pattern };
    let (mut open, mut is_start) = (0_usize, true);
    while let Some(token) = tokens.next() {
        match token {
            Err(why) => return Some(why.to_owned()),
            Ok(Token::Open { .. }) => open += 1,
            Ok(Token::Close) => match open.checked_sub(1) {
                Some(left) => open = left,
                None => return Some("a ')' closes nothing".to_owned()),
            },
            Ok(Token::Repeat(c)) if is_start => {
                return Some(format!(
                    "there is nothing before '{c}' that it could repeat; write '.{c}' for anything, or '\\{c}' for the character"
                ));
            }
            Ok(Token::Brace) => {
                return Some("a '{' without a number after it; write '\\{' for the character".to_owned());
            }
            Ok(Token::Or | Token::Repeat(_) | Token::Thing) => {}
        }
        is_start = matches!(token, Ok(Token::Open { .. } | Token::Or));
    }
    (open > 0).then(|| "a '(' is not closed".to_owned())
}

/// How many groups remember what they matched.
pub(super) fn groups(pattern: &str) -> usize {
    let mut tokens = Tokens { rest: pattern };
    let mut groups = 0;
    while let Some(token) = tokens.next() {
        groups += usize::from(token == Ok(Token::Open { captures: true }));
    }
    groups
}

/// The groups that a text takes from a match: `$1` and so on. Of a number with several digits Java takes as many as there are
/// groups, so the first one tells.
pub(super) fn groups_used(text: &str) -> impl Iterator<Item = usize> {
    let mut is_escaped = false;
    let marks = text.char_indices().filter(move |(_, c)| {
        let is_mark = *c == '$' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_mark
    });
    let digit = |at: usize| text[at + 1..].chars().next()?.to_digit(10);
    marks.filter_map(move |(at, _)| usize::try_from(digit(at)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_java_can_read_is_left_alone() {
        for pattern in [
            "",
            ".*",
            r"kafka.server<type=(.+), name=([^,]+)><>(Count|Value)",
            r"a\(",
            r"[(]",
            r"[\]*]+",
            r"\Q((*\E",
            r"\Q((",
            "a[b[c]]",
            "a*+b",
            "a{2,3}?",
            "(?i)a|b",
            "(?<name>a)(?=b)(?!c)(?<=d)",
            "(?:a|)",
            r"\p{Alpha}+",
            r"\{a}",
            "a}",
            "^+",
            "(?x) a # (",
        ] {
            assert_eq!(problem(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn what_no_jvm_could_read_is_said_in_words() {
        for (pattern, why) in [
            ("((", "a '(' is not closed"),
            ("a)", "a ')' closes nothing"),
            ("[a", "a '[' is not closed"),
            ("(a]", "a '(' is not closed"),
            (r"a\", "it ends with a backslash"),
            ("*", "there is nothing before '*'"),
            ("a|+b", "there is nothing before '+'"),
            ("(*a)", "there is nothing before '*'"),
            ("kafka.{name}", "a '{' without a number"),
        ] {
            let said = problem(pattern).unwrap_or_default();
            assert!(said.starts_with(why), "{pattern}: {said}");
        }
    }

    #[test]
    fn groups_are_counted_as_java_counts_them() {
        for (pattern, count) in [("", 0), ("(a)(b(c))", 3), (r"\(a[(](?:b)(?i)(?<=c)", 0), ("(?<n>a)(b)", 2)]
        {
            assert_eq!(groups(pattern), count, "{pattern}");
        }
        assert_eq!(groups_used(r"a_$1_$23_\$4_$").collect::<Vec<_>>(), [1, 2]);
    }
}
